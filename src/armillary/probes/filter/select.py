"""Is what a feed-forward discards irrelevant, and is the choice made in context?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.filter.unmeasured import unmeasured
from armillary.probes.machinery.evidence import Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.ablation import Selected
    from armillary.probes.machinery.bench import Bench, Trials

BELOW, QUIET, ALL = "below zero", "below 1 % of the peak", "all layers"
NATS = "nats/token"


def _measured(key: str, meaning: str) -> tuple[Column, ...]:
    ends = (("", meaning), ("_low", "its interval over documents, low end"), ("_high", "its interval, high end"))
    return tuple(Column(f"{key}{end}", told, NATS) for end, told in ends)


COLUMNS = (
    Column("where", "one layer, or all at once; and which coordinates count as discarded"),
    Column("dropped", "share of hidden coordinates that are"),
    *_measured("cost", "change of the next-token loss when they are zeroed"),
    *_measured("random", "the same for as many coordinates of each token, drawn at random"),
    *_measured("fixed", "the same for as many units, alike for every token: those discarded most often"),
    Column("ratio", "cost over what as many at random cost; nothing where those cost nothing"),
    *_measured("mean", "change when they take the unit's mean over tokens that discard it; nothing for single layers"),
    *_measured("resample", "change when they take another token's value; nothing for single layers"),
)


@dataclass(frozen=True)
class Select:
    """Loss without the discarded coordinates, against as many at random and the same units for every token."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.select",
        chapter="E",
        statement="What is discarded is irrelevant in this context.",
        source="S3",
        definition=(
            "Change of the next-token loss when the coordinates that are below zero before the activation (of the gate, where there "
            "is one) are zeroed before W_out, in all layers at once. Beside it the same for coordinates below 1 % of their token's "
            "peak, for single layers, and with the unit's mean over the tokens that discard it, or another token's value, in place of "
            "zero. After ReLU what lies below zero is zero already, so zeroing it changes nothing, by construction; what is left to "
            "measure there is whether the choice depends on the token."
        ),
        control=(
            "as many coordinates of each token drawn at random; as many units on average, alike for every token, those discarded "
            "most often (random initialisation has no loss to lose)"
        ),
        rule=(
            f"With all layers at once and below zero: irrelevant when zeroing costs at most {T.select_cost} nats a token; chosen in "
            f"context when the same units for every token cost {T.select_cost} more. Supported: both, and random ones cost {T.select_cost} "
            f"more too. Qualified: irrelevant, but not chosen in context; or not irrelevant, but less than {T.select_half:.0%} of what random "
            f"ones cost. Refuted: at least {T.select_half:.0%} of it. Undecided where random ones cost at most {T.select_cost}, where an interval "
            "spans a limit, and for a model without next-token loss. Each with its whole interval, documents read until it decides."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.filter.ablation import HOWS, INSTEAD, LAYERS
        from armillary.probes.sphere.scaling import layers_of

        # The chapter's three arms, the untouched model, both definitions in all layers and in some.
        return 3 + 1 + 2 * (len(HOWS) + len(INSTEAD)) + 2 * len(HOWS) * len(layers_of(anatomy, LAYERS))

    def experiment(self, bench: "Bench") -> "Selected | None":
        from armillary.probes.filter.ablation import dropping

        return dropping(bench, lambda trials: judged(trials)[0] != "undecided") if bench.scored else None

    def conclude(self, evidence: Evidence) -> Finding:
        found: Selected | None = evidence.found[self.claim.id]
        if found is None:
            why = "This model gives no next-token loss, so nothing tells what a coordinate is worth; load a causal language model."
            return unmeasured(self.claim, COLUMNS[0], why)
        verdict, why = judged(found.trials)
        cost, random, fixed = (found.trials.cost(_name(ALL, BELOW, how)) for how in ("zero", "random", "fixed"))
        rows = _rows(found)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("loss when all that is below zero is zeroed, all layers", *cost, NATS),
            n=int(found.trials.count.sum()),
            controls=(Control("as many at random", *random), Control("the same units for every token", *fixed)),
            reading=_reading(found, rows, why),
            headline=f"Zeroing the {found.dropped[ALL, BELOW]:.0%} below zero costs {cost[0]:.2g} nats a token, as many at "
            f"random {random[0]:.2g}, fixed ones {fixed[0]:.2g}",
            table=Table.of(COLUMNS, rows),
            quantities=tuple(_quantity(found, rows, definition) for definition in (BELOW, QUIET)),
            notes=_notes(found),
        )


def _name(place: str, definition: str, how: str) -> str:
    return f"{place}, {definition}, {how}"


def judged(trials: "Trials") -> tuple[Verdict, str]:
    """The verdict of the trials with all layers at once, and why."""
    zero, random, fixed = (_name(ALL, BELOW, how) for how in ("zero", "random", "fixed"))
    cost, chance = trials.cost(zero), trials.cost(random)
    context, luck = trials.beside(fixed, zero), trials.beside(random, zero)
    if np.isnan([*cost, *chance]).any():
        return "undecided", "too few documents for an interval: give more text"
    if chance[2] <= T.select_cost:
        return (
            "undecided",
            "this model loses next to nothing without them whichever are chosen, so its loss cannot tell",
        )
    ratio = trials.interval(lambda loss, count: _ratio(loss, trials, zero, random))
    if cost[1] > T.select_cost and ratio[1] >= T.select_half:
        return "refuted", f"that is {ratio[0]:.0%} of what random ones cost"
    if cost[1] > T.select_cost and ratio[2] < T.select_half:
        return "qualified", f"not irrelevant, but {ratio[0]:.1%} of what random ones cost"
    if cost[2] <= T.select_cost and luck[1] > T.select_cost:
        if context[1] > T.select_cost:
            return "supported", "irrelevant, and chosen in context"
        if context[2] <= T.select_cost:
            return "qualified", "irrelevant, but not chosen in context: the same units for every token do as well"
    return "undecided", f"an interval spans {T.select_cost} nats or half of the random cost: more text would decide"


def _ratio(loss: Floats, trials: "Trials", name: str, other: str) -> Floats:
    above, under = (loss[:, 1 + trials.names.index(n)] - loss[:, 0] for n in (name, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(under > 0, above / under, np.nan))


def _rows(found: "Selected") -> list[dict[str, Any]]:
    rows = []
    for definition in (BELOW, QUIET):
        for place in found.places:
            costs = {how: found.trials.cost(_name(place, definition, how)) for how in ("zero", "random", "fixed")}
            row: dict[str, Any] = {"where": f"{place}, {definition}", "dropped": found.dropped[place, definition]}
            for key, how in (("cost", "zero"), ("random", "random"), ("fixed", "fixed")):
                row |= _ends(key, costs[how])
            row["ratio"] = costs["zero"][0] / costs["random"][0] if costs["random"][0] > 0 else None
            for how, where in (("mean", found.trials), ("resample", found.resampled)):
                ends = where.cost(_name(ALL, definition, how)) if place == ALL else (np.nan,) * 3
                row |= _ends(how, ends)
            rows.append(row)
    return rows


def _ends(key: str, ends: tuple[float, float, float]) -> dict[str, float | None]:
    names = (key, f"{key}_low", f"{key}_high")
    return {name: None if np.isnan(value) else float(value) for name, value in zip(names, ends, strict=True)}


def _reading(found: "Selected", rows: list[dict[str, Any]], why: str) -> str:
    by = {row["where"]: row for row in rows}
    row, quiet = by[f"{ALL}, {BELOW}"], by[f"{ALL}, {QUIET}"]
    told = (
        f"Without the {row['dropped']:.0%} of coordinates below zero the loss changes by {row['cost']:.2g} nats a token"
    )
    if found.exact:
        told += " (nothing at all, by construction: the activation has zeroed them already)"
    told += f", without as many at random by {row['random']:.2g}, without the same units everywhere by {row['fixed']:.2g}: {why}"
    told += f". With each unit's mean there in place of zero it is {row['mean']:.2g}"
    if row["cost"] > T.select_cost and row["mean"] < row["cost"]:
        told += f", so {1 - max(row['mean'], 0) / row['cost']:.0%} of the cost is that of a constant"
    told += f"; with another token's value {row['resample']:.2g}"
    alone = [by[f"{place}, {BELOW}"] for place in found.places if place != ALL]
    worst = max(alone, key=lambda one: float(one["cost"]))
    told += f". Of single layers {worst['where'].split(',')[0]} loses most ({worst['cost']:.2g})"
    return f"{told}; without the {quiet['dropped']:.0%} below 1% of the peak it is {quiet['cost']:.2g} (random {quiet['random']:.2g})."


def _notes(found: "Selected") -> tuple[str, ...]:
    return (
        f"{found.trials.documents} documents were read; intervals are taken at {100 * found.trials.level:.3g} %, so "
        "that looking up to three times counts as one",
    )


def _quantity(found: "Selected", rows: list[dict[str, Any]], definition: str) -> Quantity:
    mine = [row for row in rows if row["where"].endswith(definition)]

    def column(key: str) -> Floats:
        return np.array([np.nan if row[key] is None else row[key] for row in mine], dtype=float)

    low, high = column("cost_low"), column("cost_high")
    unsure = bool(np.isnan(low).any())
    return Quantity(
        f"loss without what is {definition}",
        "zeroed before W_out, in one layer or in all",
        NATS,
        ("where",),
        {"where": list(found.places)},
        column("cost"),
        None if unsure else low,
        None if unsure else high,
        {"as many at random": column("random"), "the same units everywhere": column("fixed")},
        {"no change: 0": np.zeros(len(mine))},
        label="the discarded",
    )
