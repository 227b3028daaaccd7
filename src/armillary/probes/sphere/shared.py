"""Do all layers share one space, or has each layer a canvas of its own?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.machinery import (
    MODEL,
    NAN3,
    AnyInstrument,
    Evidence,
    T,
    above,
    weakest,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.machinery.verdicts import more_text
from armillary.probes.sphere.shared_axes import AxisOverlap, GainLikeness, axis_overlap, gain_likeness
from armillary.results import Claim, Control, Finding, Part, Quantity, RuleChange, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.sphere.gain_swaps import Pair, Swaps

UNIT = "nats/token"


@dataclass(frozen=True)
class Shared:
    """Gains and shifts of two layers change places."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.shared",
        chapter="A",
        statement="All layers share one vector space: neighbouring layers can exchange their norms' gains and shifts.",
        source="S0 against S3",
        definition=(
            "S0 says that the norms create a consistent vector space across all layers; S3 says that each norm's γ and "
            "β define a canvas of its own for each step. If the space is shared, two layers can exchange γ and β. The "
            "statistic is the change of the next-token loss when the norms of two neighbouring layers do so, at the "
            "median of three pairs spread over the depth; pairs further apart are drawn. Beside it, from weights and "
            "states: the correlation over axes of two layers' γ and of their β; and how far the strongest d/16 axes of "
            "z at two layers coincide, taken between the two halves of the documents."
        ),
        control=(
            "the same layers with the axes of their own γ and β permuted; for correlations permuted axes, for "
            "principal axes random ones and the halves of one layer. At random initialisation γ is 1 and β is 0, so "
            "neither an exchange nor a permutation changes anything"
        ),
        rule=(
            f"A pair shares its space if the exchange costs less than {T.shared_cost} nats per token, and less than "
            "the permutation, with whole intervals (corrected for the number of pairs). Supported if every pair does; "
            "refuted if at every pair the exchange costs more than the permutation; qualified if neither can be; "
            "undecided if intervals leave it open. A pair at which neither costs that much says nothing; without any "
            "other pair the claim is undecided. Documents are read in three parts, until that is settled. Ours, and "
            f"deciding nothing: neighbours' γ, and their β if there is one, correlate above {T.shared_half}; the "
            f"overlap of neighbours' axes is above {T.shared_half} of that of the two halves of one layer."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "Qualified as soon as neither extreme is possible any more: changed after a first result was seen. "
                "builtin:gpt was undecided and became qualified; the limits did not move.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES,)

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.sphere.gain_swaps import passes

        return passes(anatomy)

    def experiment(self, bench: "Bench") -> "Swaps | None":
        """None where nothing can be exchanged, or where an exchange has no cost."""
        from armillary.probes.sphere.gain_swaps import swap_gains

        return swap_gains(bench) if bench.scored and bench.anatomy.layers > 1 else None

    def conclude(self, evidence: Evidence, result: "Swaps | None") -> Finding:
        gains, overlap = gain_likeness(evidence), axis_overlap(evidence, MODEL)
        parts = (_swap_part(result, evidence.anatomy), _gain_part(gains), _axes_part(overlap))
        verdict, why = weakest(parts)
        median, permuted = (NAN3, NAN3) if result is None else (result.median("swap"), result.median("permute"))
        controls = [Control("permuted γ and β", *permuted)]
        if result is not None and result.far:
            last = result.far[-1]
            controls.append(Control(f"exchange of {last.name}", *result.cost(last)))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("cost of exchanging γ and β of neighbouring layers, median pair", *median, UNIT),
            n=0 if result is None else int(result.trials.count.sum()),
            controls=tuple(controls),
            reading=" ".join(part.reading for part in parts) + more_text(why),
            headline=_headline(result, gains),
            table=_likeness_table(gains, overlap) if result is None else _swap_table(result, evidence.anatomy),
            quantities=_quantities(evidence, result, gains, overlap),
            more_tables={} if result is None else {"likeness": _likeness_table(gains, overlap)},
            why=why,
            parts=parts,
        )


def _swap_part(swaps: "Swaps | None", anatomy: "Anatomy") -> Part:
    name = "neighbours can exchange gains and shifts"
    if swaps is None:
        missing = "one layer alone has no neighbour" if anatomy.layers < 2 else "this model predicts no next token"
        return Part(name, "undecided", f"An exchange has no cost here: {missing}.", why=Why.NOT_APPLICABLE)
    statistic = Statistic("cost of exchanging γ and β, median pair", *swaps.median("swap"), UNIT)
    reading = f"Exchanging γ and β costs {_costs(swaps, swaps.neighbours)} nats per token; permuting their axes "
    reading += f"{say(swaps.median('permute')[0], '.2g')} at the median pair."
    for text in dict.fromkeys(STATES.values()):
        pairs = [pair.name for pair in swaps.neighbours if STATES[_state(swaps, pair)] == text]
        reading += f" {text.format('; '.join(pairs))}." if pairs else ""
    sizes = {pair.name: _size_ratio(anatomy, pair) for pair in swaps.neighbours}
    unlike = [f"{name} by a factor of {say(ratio, '.2g')}" for name, ratio in sizes.items() if not 2 / 3 < ratio < 1.5]
    reading += f" The size of γ differs between {', '.join(unlike)}." if unlike else ""
    if swaps.far:
        reading += f" Further apart: {_costs(swaps, swaps.far)}."
    verdict, why = swaps.verdict()
    return Part(name, verdict, reading, statistic, why=why)


STATES = {
    "shared": "One space is shared by {}",
    "own": "{} have spaces of their own",
    "idle": "Between {} gains do not matter: neither an exchange nor a permutation costs anything",
    "open": "For {} the intervals do not say",
}


def _state(swaps: "Swaps", pair: "Pair") -> str:
    if swaps.idle(pair):
        return "idle"
    return {True: "shared", False: "own", None: "open"}[swaps.shared(pair)]


def _costs(swaps: "Swaps", pairs: "Sequence[Pair]") -> str:
    return ", ".join(f"{say(swaps.cost(pair)[0], '.2g')} between {pair.name}" for pair in pairs)


def _gain_part(gains: GainLikeness) -> Part:
    """Ours, from weights alone."""
    name = "neighbours' gains and shifts are alike"
    gain, shift = (float(values[0]) if len(values) else float("nan") for values in (gains.gain, gains.shift))
    if np.isnan(gain):
        return Part(name, "undecided", "All gains are constant.", asserted=False, why=Why.UNDEFINED)
    reading = f"Over axes, neighbours' γ correlate with {say(gain, '.2f')}"
    reading += f" and their β with {say(shift, '.2f')}" if not np.isnan(shift) else ""
    reading += f" (permuted axes: up to {say(gains.chance, '.2f')})."
    least = np.nanmin([gain, shift])
    verdict: Verdict = "supported" if least > T.shared_half else "refuted" if least < gains.chance else "qualified"
    statistic = Statistic("correlation of neighbours' γ, mean", gain, gain, gain)
    return Part(name, verdict, reading, statistic, asserted=False)


def _axes_part(overlap: AxisOverlap | None) -> Part:
    """Ours: a residual stream keeps most of what it had, so neighbours must be somewhat alike."""
    name = "neighbours' strongest axes coincide"
    if overlap is None or len(overlap.by_distance) < 2:
        why = Why.TOO_LITTLE_TEXT if overlap is None else Why.NOT_APPLICABLE
        return Part(name, "undecided", "There are no axes to compare.", asserted=False, why=why)
    ceiling, near, far = overlap.by_distance[0, 0], overlap.by_distance[1], overlap.by_distance[-1, 0]
    reading = (
        f"The strongest {overlap.axes} axes of z overlap by {say(near[0], '.2f')} with the next layer's and by "
        f"{say(far, '.2f')} between the first and the last (halves of one layer: {say(ceiling, '.2f')}, random axes: "
        f"{say(overlap.chance, '.2f')})."
    )
    value, low, high = (near / ceiling).tolist()
    side = above((value, low, high), T.shared_half)
    verdict: Verdict = "undecided" if side is None else "supported" if side else "refuted"
    statistic = Statistic("overlap of neighbours' axes over that of one layer's halves", value, low, high)
    return Part(name, verdict, reading, statistic, asserted=False, why=Why.SPANS_LIMIT if side is None else None)


def _headline(swaps: "Swaps | None", gains: GainLikeness) -> str:
    if swaps is None:
        gain = say(float(gains.gain[0]), ".2f") if len(gains.gain) else "–"
        return f"Neighbouring layers' γ correlate with {gain} over axes; an exchange has no cost here"
    swap, permuted = swaps.median("swap")[0], swaps.median("permute")[0]
    return (
        f"Exchanging γ and β of neighbouring layers costs {say(swap, '.2g')} nats per token (median pair), permuting "
        f"their axes {say(permuted, '.2g')}"
    )


def _swap_table(swaps: "Swaps", anatomy: "Anatomy") -> Table:
    pairs = [*swaps.neighbours, *swaps.far]
    near = len(swaps.neighbours)
    permuted = [swaps.permuted(pair) if i < near else NAN3 for i, pair in enumerate(pairs)]
    states = [_state(swaps, pair) for pair in swaps.neighbours] + [""] * len(swaps.far)
    level = swaps.strict.level
    return table(
        cells("layers", "two layers that exchange γ and β of all their norms", [pair.name for pair in pairs]),
        cells("distance", "how far apart they are", [pair.distance for pair in pairs], "layers"),
        interval_cells("cost", "change of the loss", np.array([swaps.cost(pair) for pair in pairs]), UNIT, level=level),
        interval_cells("permuted", "with their own γ and β, axes permuted", np.array(permuted), UNIT, level=level),
        cells("state", "what follows for neighbours", states),
        cells("size_ratio", "size of the second layer's γ over the first's", [_size_ratio(anatomy, p) for p in pairs]),
    )


def _size_ratio(anatomy: "Anatomy", pair: "Pair") -> float:
    """Mean over norms of the ratio of root mean squares."""
    from armillary.probes.sphere.gain_swaps import norms_of

    sizes = [
        [float(anatomy.norms[site].gain.double().square().mean().sqrt()) for site in norms_of(anatomy, layer).values()]
        for layer in (pair.first, pair.second)
    ]
    return float(np.mean([two / one for one, two in zip(*sizes, strict=True) if one > 0] or [np.nan]))


def _likeness_table(gains: GainLikeness, overlap: AxisOverlap | None) -> Table:
    count = len(gains.gain)
    nothing = np.full((count, 3), np.nan)
    return table(
        cells("distance", "layers between the two", range(1, count + 1), "layers"),
        cells("gain", "correlation over axes of two layers' γ, mean", gains.gain),
        cells("shift", "of their β", gains.shift),
        cells("overlap", "of the strongest axes of z", (nothing if overlap is None else overlap.by_distance[1:])[:, 0]),
    )


def _quantities(
    evidence: Evidence, swaps: "Swaps | None", gains: GainLikeness, overlap: AxisOverlap | None
) -> tuple[Quantity, ...]:
    quantities = []
    if swaps is not None:
        pairs = [*swaps.neighbours, *swaps.far]
        permuted = [swaps.permuted(pair)[0] for pair in swaps.neighbours] + [np.nan] * len(swaps.far)
        limit = {f"the limit: {T.shared_cost}": np.full(len(pairs), T.shared_cost)}
        quantities.append(
            line(
                "cost of exchanging γ and β",
                "neighbours first, then pairs further apart; the limit is for neighbours",
                UNIT,
                "layers that change places",
                [f"{pair.first} ↔ {pair.second}" for pair in pairs],
                np.array([swaps.cost(pair) for pair in pairs]),
                {"axes permuted instead": np.array(permuted)},
                limit,
                ("value",),
            )
        )
    if len(gains.gain):
        distance = [float(n) for n in range(1, len(gains.gain) + 1)]
        name = "likeness of two layers, by distance"
        chance = {"permuted axes: 0": np.zeros(len(distance))}
        others = {"β": gains.shift} if np.isfinite(gains.shift).any() else {}
        if overlap is not None:
            others["overlap of strongest axes of z"] = overlap.by_distance[1:, 0]
        quantities.append(
            line(
                name,
                "correlation over axes of γ and of β, and overlap of the strongest axes of z",
                "likeness",
                "distance in layers",
                distance,
                gains.gain,
                others,
                chance,
                label="γ",
            )
        )
    return tuple(quantities)
