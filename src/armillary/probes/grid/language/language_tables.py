"""How are gaps of attention shown? By head, by phenomenon, and what removing the best heads costs."""

import numpy as np

from armillary.probes.grid.language.language_parts import LanguageEffects
from armillary.probes.grid.language.templates import GROUPS, MEANINGS, items
from armillary.probes.machinery import RANDOM, T, cells, head_table, interval_cells, line, table
from armillary.probes.machinery.verdicts import largest_head
from armillary.results import Quantity, Table


def language_notes(effects: LanguageEffects) -> tuple[str, ...]:
    listed = len(items()) // len(effects.passes.used)
    used = ", ".join(f"{name} {count}" for name, count in effects.passes.used.items())
    return (
        f"Items that can be read with this tokenizer, of {listed} each: {used}; "
        f"{sum(2 * len(values) for values in effects.values.values())} were read.",
        f"{len(effects.passes.gaps) - 1} untrained models read every second pair of items.",
    )


def effects_table(effects: LanguageEffects) -> Table:
    tells = {name: effects.tells(name) for name in effects.gaps}
    layers, heads = next(iter(tells.values())).shape
    phenomena = [
        ", ".join(name for name, flags in tells.items() if flags[layer, head])
        for layer in range(layers)
        for head in range(heads)
    ]
    columns = [
        cells(
            name,
            f"attention to the target minus that to the distractor, weaker order: {MEANINGS[name]}",
            effects.means(name),
        )
        for name in effects.gaps
    ]
    meaning = f"phenomena with a gap of {T.language_attention} or more that is significant over all heads and phenomena"
    return head_table(effects.evidence.anatomy, *columns, cells("tells", meaning, phenomena))


def phenomena_table(effects: LanguageEffects) -> Table:
    names = list(effects.gaps)
    group = {name: group for group, members in GROUPS.items() for name in members}
    verdicts = {True: "yes", False: "no", None: "open"}
    level = 1 - 0.05 / len(names)
    return table(
        cells("phenomenon", "what one word has to do with another", names),
        cells("group", "what the source calls it", [group[name] for name in names]),
        cells("items", "items whose words are single tokens", [effects.passes.used[name] for name in names]),
        interval_cells(
            "gap",
            "of the head that the other half of the pairs chose, in the weaker order",
            np.array([effects.gaps[name] for name in names]),
            "share of attention",
            level=level,
        ),
        cells("untrained", "the same in untrained models, mean", [effects.untrained[name][0] for name in names]),
        cells("head", "the head with the largest gap on all items", [largest_head(effects.means(n)) for n in names]),
        cells(
            "heads",
            "how many heads have a large and significant gap",
            [int(effects.tells(name).sum()) for name in names],
        ),
        cells("resolved", "by the rule", [verdicts[effects.resolved(name)] for name in names]),
    )


def cost_table(effects: LanguageEffects) -> Table:
    costs, seed = effects.passes.costs, effects.seed
    return table(
        cells("group", "what the source calls it", list(costs)),
        cells(
            "removed",
            "the best head of each phenomenon by one half of the pairs",
            [", ".join(f"L{layer}H{head}" for layer, head in cost.heads) for cost in costs.values()],
        ),
        interval_cells(
            "items",
            "what it costs on the other half, from the query on",
            np.array([cost.on_items(seed) for cost in costs.values()]),
            "nats/token",
        ),
        interval_cells(
            "text",
            "what it costs on text",
            np.array([cost.on_text(seed) for cost in costs.values()]),
            "nats/token",
        ),
    )


def language_quantities(effects: LanguageEffects) -> tuple[Quantity, ...]:
    names = list(effects.gaps)
    stacked = np.maximum(np.stack([effects.means(name) for name in names]), 0)
    layers, heads = ([f"{letter}{i}" for i in range(n)] for letter, n in zip("LH", stacked.shape[1:], strict=True))
    best = line(
        "gap of the best head",
        "attention to the target minus that to the distractor, weaker order, on items that did not choose the head",
        "share of attention",
        "phenomenon",
        names,
        np.array([effects.gaps[name] for name in names]),
        {RANDOM: np.array([effects.untrained[name][0] for name in names])},
        {f"the limit: {T.language_attention}": np.full(len(names), T.language_attention)},
    )
    gaps = Quantity(
        "gap of every head",
        "attention to the target minus that to the distractor, weaker order; a head that goes by position shows 0",
        "share of attention",
        ("phenomenon", "layer", "head"),
        {"phenomenon": names, "layer": layers, "head": heads},
        stacked,
    )
    return best, gaps
