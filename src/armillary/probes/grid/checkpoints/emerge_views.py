"""Tables, figures and sentences of how heads come to their roles over checkpoints."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from armillary.anatomy import Anatomy
from armillary.probes.grid.checkpoints.emerge_ranks import (
    EXCESS,
    HELD,
    NEXT,
    NOW,
    OTHERS,
    RankedHeads,
    cells,
    correlation,
    point,
)
from armillary.probes.grid.checkpoints.emergence import Emergence
from armillary.probes.machinery import Floats, Interval, T, above, by_side
from armillary.probes.machinery.tables import cells as column
from armillary.probes.machinery.tables import head_names, line, table
from armillary.results import Part, Quantity, Statistic, Table, Why, say

RankedByTime = Mapping[str, Sequence[RankedHeads]]


def beyond_role(ranked: Sequence[RankedHeads], seed: int) -> Part:
    """Ours: does the excess say more of the gain than the role itself does?"""
    name, ends = "beyond the role that a head has", correlation(ranked, seed, EXCESS, (OTHERS, HELD))
    statistic = Statistic("partial rank correlation, the role now taken out too", *ends)
    if np.isnan(ends[0]):
        reading = "No gain, so nothing to predict beyond the role."
        return Part(name, "undecided", reading, statistic, asserted=False, why=Why.UNDEFINED)
    side = above(ends, T.emerge_rho)
    text = f"With the role that the head has taken out too, it is {say(ends[0], '.2f')} until the next checkpoint."
    why = None if side is not None else Why.NO_INTERVAL if np.isnan(ends[1]) else Why.SPANS_LIMIT
    verdict = by_side(side)
    return Part(name, verdict, text, statistic, asserted=False, why=why)


def headline(after: Interval, now: Interval) -> str:
    if np.isnan(after[0]):
        return "Nothing can be concluded: no role emerges between these checkpoints"
    return (
        "A head's excess gradient on a phenomenon's tokens, and what it gains of the role until the next checkpoint: "
        f"rank correlation {say(after[0], '.2f')} (with the role it has: {say(now[0], '.2f')})"
    )


def story(result: Emergence) -> str:
    """Who ends with each role, and what it got of the gradient when it gained most."""
    phrases = []
    for place, name in enumerate(result.names):
        last = result.roles[-1, place]
        layer, head = np.unravel_index(int(last.argmax()), last.shape)
        gains = np.diff(result.roles[:, place, layer, head])
        at = int(gains.argmax())
        marked, others = result.shares[at, place, :, layer, head]
        phrases.append(
            f"{name}: L{layer}H{head} ends at {say(last[layer, head], '.2f')}; it gained most from step "
            f"{result.steps[at]} to {result.steps[at + 1]} ({say(gains[at], '+.2f')}), and at step {result.steps[at]} "
            f"got {say(marked, '.0%')} of its layer's gradient on marked tokens, {say(others, '.0%')} on others"
        )
    apart = np.median([late / early for early, late in pairwise(result.steps) if early])
    return (
        f"Each checkpoint has {say(float(apart), '.2g')} times the steps of the one before: what gradients do in "
        f"between is not seen. The strongest head of each role: {'; '.join(phrases)}."
    )


def notes(anatomy: Anatomy, result: Emergence, ranked: RankedByTime, seed: int) -> tuple[str, ...]:
    tokens = ", ".join(f"{name} {count}" for name, count in result.counts.items())
    lines = [f"{len(result.steps)} checkpoints, steps {result.steps[0]} to {result.steps[-1]}; marked tokens: {tokens}"]
    counted = {when: sum(cell.emerges for cell in each) for when, each in ranked.items()}
    lines.append(
        f"a role emerges in {counted[NEXT]} of {len(ranked[NEXT])} intervals (phenomenon by checkpoint), stands out at "
        f"{counted[NOW]} of {len(ranked[NOW])} checkpoints"
    )
    if np.isfinite(result.shares_with_output).all():
        with_output = correlation(cells(result, NEXT, result.shares_with_output), seed)
        lines.append(f"with the slices of W_O counted as the head's own too: {say(with_output[0], '.2f')} (next)")
    if result.making:
        same = result.making.get("fingerprint") == anatomy.provenance.get("fingerprint")
        last = result.making.get("last", "a checkpoint") if same else "a checkpoint with other weights than this model"
        lines.append(
            f"a table that comes with this model, measured {result.making.get('date', '')} at the checkpoints of a "
            f"training repeated by its recipe; the last is {last}"
        )
    return tuple(lines)


def table_of(result: Emergence, ranked: RankedByTime) -> Table:
    """One row per phenomenon and checkpoint: the head with the strongest role, and the correlations over heads."""
    ranks = {when: {(cell.phenomenon, cell.at): point([cell]) for cell in each} for when, each in ranked.items()}
    rows = [(place, name, at) for place, name in enumerate(result.names) for at in range(len(result.steps))]
    tops = [int(result.roles[at, place].argmax()) for place, _, at in rows]
    names = head_names(*result.roles.shape[2:])

    def of(values: Floats) -> list[float]:
        return [float(values[at, place].ravel()[top]) for (place, _, at), top in zip(rows, tops, strict=True)]

    return table(
        column("phenomenon", "whose tokens are marked, and the role that resolves it", [name for _, name, _ in rows]),
        column("step", "training steps at this checkpoint", [str(result.steps[at]) for *_, at in rows]),
        column("head", "with the strongest role", [names[top] for top in tops]),
        column("role", "its share of attention", of(result.roles)),
        column("marked", "its share of its layer's gradient on marked tokens", of(result.shares[:, :, 0])),
        column("other", "its share on other tokens", of(result.shares[:, :, 1])),
        column(
            "now",
            "rank correlation of excess and role over heads; empty where no role stands out",
            [ranks[NOW][n, at] for _, n, at in rows],
        ),
        column(
            "next",
            "rank correlation of excess and gain until the next checkpoint; empty where none stands out",
            [ranks[NEXT].get((n, at), np.nan) for _, n, at in rows],
        ),
    )


def head_rows(result: Emergence) -> Table:
    """Everything measured: one row per checkpoint, phenomenon and head."""
    names = head_names(*result.roles.shape[2:])
    index = list(np.ndindex(len(result.steps), len(result.names), len(names)))
    flat = {
        "role": result.roles.reshape(*result.roles.shape[:2], -1),
        "marked": result.shares[:, :, 0].reshape(*result.roles.shape[:2], -1),
        "other": result.shares[:, :, 1].reshape(*result.roles.shape[:2], -1),
    }
    meanings = {
        "role": "share of attention",
        "marked": "share of its layer's gradient on marked tokens",
        "other": "share on other tokens",
    }
    return table(
        column("step", "training steps", [result.steps[at] for at, _, _ in index]),
        column("phenomenon", "whose tokens are marked", [result.names[place] for _, place, _ in index]),
        column("head", "attention head", [names[n] for *_, n in index]),
        *(column(key, meaning, [flat[key][where] for where in index]) for key, meaning in meanings.items()),
    )


def quantities(result: Emergence, ranked: RankedByTime, null: Interval) -> tuple[Quantity, ...]:
    steps = [str(step) for step in result.steps]
    heads = head_names(*result.roles.shape[2:])
    coords = {"phenomenon": list(result.names), "step": steps, "head": heads}

    def maps(name: str, meaning: str, values: Floats) -> Quantity:
        stacked = values.reshape(*values.shape[:2], -1).swapaxes(0, 1)
        return Quantity(name, meaning, "share", ("phenomenon", "step", "head"), coords, stacked)

    drawn = [
        maps(
            "share of the gradient on marked tokens minus that on others",
            "of the heads of a layer; what stands out here should stand out below, one row later",
            result.excess,
        ),
        maps("role", "share of attention that goes to what the phenomenon asks for", result.roles),
    ]
    if any(cell.emerges for cell in ranked[NEXT]):
        drawn.append(_by_interval(result, ranked, null))
    return tuple(drawn)


def _by_interval(result: Emergence, ranked: RankedByTime, null: Interval) -> Quantity:
    places = sorted({cell.at for cell in ranked[NEXT] if cell.emerges})
    values = [correlation([cell for cell in ranked[NEXT] if cell.at == at], 0) for at in places]
    labels = [f"{result.steps[at]} to {result.steps[at + 1]}" for at in places]
    return line(
        "excess gradient now and gain until the next checkpoint",
        "partial rank correlation over heads, mean over phenomena that emerge in the interval",
        "rank correlation",
        "steps",
        labels,
        np.array(values).reshape(-1, 3),
        controls={"97.5 % of exchanged heads": np.full(len(places), null[2])},
        theory={f"limit {T.emerge_rho}": np.full(len(places), T.emerge_rho)},
    )
