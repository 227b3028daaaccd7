"""Does moving an axis to another head cost more than moving it within its head?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import AnyInstrument, Evidence, Floats, Interval, T, undecided
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.axis_shuffles import ShuffleCase, ShuffleCosts
    from armillary.probes.machinery.bench import Bench, Trials

PLACES = {"z": "at the heads' results", "q": "on queries alone"}
OPEN, IDLE = "open", "idle"


@dataclass(frozen=True)
class HeadAxes:
    """Change of the loss when the same axes are shuffled within their heads and across heads."""

    claim: ClassVar[Claim] = Claim(
        id="heads.axes",
        chapter="F",
        statement="Meaning is encoded in axis indices: shuffling axes across heads hurts more than within heads.",
        source="S3",
        definition=(
            "Change of the next-token loss when axes change places, either within their head or each to another head; "
            "the same axes in both cases. At z, the heads' results before W_O, and on q alone, where q meets k. Some "
            "layers one at a time, and all at once; all axes, and a quarter of them; two shuffles per document, "
            "different in every document. The statistic is (across − within)/across of the summed costs: the share of "
            "the cost that is due to crossing heads. Costly shuffles weigh more. (The numbering of axes within a head "
            "is a convention: W_V and W_O, or W_Q and W_K, could be renumbered together. Here only one side is "
            "shuffled.)"
        ),
        control=(
            "q and k shuffled in the same way within heads, which changes no score; a second shuffle within heads in "
            "place of the one across"
        ),
        rule=(
            f"The limit is a share of {T.crossing_share}: across costs a quarter more than within. It is compared with "
            "two intervals, at z and at q alone. Supported if both lie above it. Refuted if both lie below. Qualified "
            "if one lies above and the other does not. An interval counts only if moving axes across heads has a cost: "
            f"its mean is above 0 with the whole interval, which reaches {T.crossing_cost} nats per token. Undecided "
            "otherwise, and with one head per layer or no next-token loss."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "Every document has its own shuffles, and each shuffle weighs by its cost: two single shuffles had "
                "differed by a quarter of their cost in SmolLM2. On builtin:gpt undecided became refuted.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.grid.axis_shuffles import KINDS, SHUFFLES, shuffle_cases

        return 2 + len(shuffle_cases(anatomy)) * len(KINDS) * SHUFFLES

    def experiment(self, bench: "Bench") -> "Trials | None":
        from armillary.probes.grid.axis_shuffles import shuffle_cases, shuffle_trials

        anatomy = bench.anatomy
        if not bench.scored or not shuffle_cases(anatomy):
            return None
        trials = dict(shuffle_trials(anatomy))
        return bench.compare(trials, lambda t: all(_side(costs) != OPEN for costs in _costs(t, anatomy).values()))

    def conclude(self, evidence: Evidence, result: "Trials | None") -> Finding:
        from armillary.probes.grid.axis_shuffles import ALIKE, case_costs, shuffle_cases, shuffle_line, shuffle_table

        if result is None:
            return undecided(self.claim, Why.NOT_APPLICABLE, _not_applicable(evidence.anatomy))
        cases = shuffle_cases(evidence.anatomy)
        costs = _costs(result, evidence.anatomy)
        shares = {where: cost.crossing_share() for where, cost in costs.items()}
        sides = {where: _side(cost) for where, cost in costs.items()}
        missing = bool(np.isnan([*shares["z"], *shares["q"]]).any())
        verdict, why = _verdict(list(sides.values()), missing)
        values = case_costs(result, cases)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("(across − within)/across at z", *shares["z"]),
            n=result.documents,
            controls=(
                Control("a second shuffle within heads instead", *costs["z"].placebo_share()),
                Control("q and k alike within heads, nats per token", *result.cost(ALIKE)),
            ),
            reading=_reading(cases, values, sides, shares),
            headline=_headline(shares),
            table=shuffle_table(cases, values, result.level),
            quantities=tuple(shuffle_line(where, place, cases, values) for where, place in PLACES.items()),
            notes=(
                f"documents were read in {result.looks} of 3 parts; intervals are taken at {100 * result.level:.3g} %",
            ),
        )


def _costs(trials: "Trials", anatomy: "Anatomy") -> "dict[str, ShuffleCosts]":
    from armillary.probes.grid.axis_shuffles import SITES, ShuffleCosts, shuffle_cases

    cases = shuffle_cases(anatomy)
    return {where: ShuffleCosts(trials, [case for case in cases if case.where == where]) for where in SITES}


def _side(costs: "ShuffleCosts") -> str:
    """On which side of the threshold the share lies: above, below, open, or idle where a shuffle costs nothing."""
    _, least, most = costs.cost("across")
    if most < T.crossing_cost:
        return IDLE
    _, low, high = costs.crossing_share()
    # A ratio to a cost that may be zero has no meaningful interval.
    if not least > 0 or np.isnan([low, high]).any():
        return OPEN
    return "above" if low > T.crossing_share else "below" if high < T.crossing_share else OPEN


def _verdict(sides: list[str], missing: bool) -> tuple[Verdict, Why | None]:
    if sides.count("above") == 2:
        return "supported", None
    if "above" in sides:
        return "qualified", None
    if sides.count("below") == 2:
        return "refuted", None
    if OPEN in sides:
        return "undecided", Why.NO_INTERVAL if missing else Why.SPANS_LIMIT
    return "undecided", Why.UNDEFINED


def _not_applicable(anatomy: "Anatomy") -> str:
    if anatomy.n_heads < 2 or anatomy.k < 2:
        return (
            f"A layer of this model has {anatomy.n_heads} head{'s' * (anatomy.n_heads > 1)} of {anatomy.k} axes, so an "
            "axis cannot move to another head or place. A model with several heads would decide."
        )
    return "This model predicts no next token, so a shuffle has no cost. A causal language model would decide."


def _reading(
    cases: "list[ShuffleCase]",
    values: Mapping[str, Floats],
    sides: Mapping[str, str],
    shares: Mapping[str, Interval],
) -> str:
    from armillary.probes.grid.axis_shuffles import label

    most = max(case.moved for case in cases)
    parts = []
    for where, place in PLACES.items():
        here = [i for i, case in enumerate(cases) if case.where == where]
        single = [i for i in here if label(cases[i], cases) != "all"] or here
        whole = next(i for i in here if label(cases[i], cases) == "all" and cases[i].moved == most)
        layer, every = (
            [say(float(values[kind][rows, 0].mean()), ".2g") for kind in ("within", "across")]
            for rows in (single, [whole])
        )
        text = f"{place[0].upper()}{place[1:]}, "
        if sides[where] == IDLE:
            text += "shuffles cost next to nothing"
        else:
            text += f"{say(shares[where][0], '.0%')} of the cost of a shuffle is due to crossing heads"
        parts.append(
            f"{text}: one layer costs {layer[0]} nats per token within heads and {layer[1]} across, all layers "
            f"{every[0]} and {every[1]}."
        )
    if OPEN in sides.values():
        parts.append("More text would decide.")
    elif set(sides.values()) == {IDLE}:
        parts.append("A model whose heads matter to its loss would decide.")
    return " ".join(parts)


def _headline(shares: Mapping[str, Interval]) -> str:
    parts = [
        f"{say(shares[where][0], '.0%')} {place}" for where, place in PLACES.items() if np.isfinite(shares[where][0])
    ]
    if not parts:
        return "Shuffled axes cost nothing, within heads and across"
    return "Share of a shuffle's cost that is due to crossing heads: " + " and ".join(parts)
