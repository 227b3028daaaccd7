"""What does a study say about the claim it was made for? A verdict is a function of the arms' outcomes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np
from scipy import stats

from armillary.lab.study.conclusions.paired_runs import (
    LEAST,
    LEVEL,
    Outcome,
    PairedComparison,
    PairedContrast,
    Row,
    Value,
    best_rate,
    compare,
    contrasts,
    values,
)
from armillary.results.claim import Verdict
from armillary.results.numbers import interval

FINE, BAD = ("better", "equivalent"), ("worse", "diverged")
# Of what GELU and norm together gain over neither: norms alone must bring half to be called a source of power. Likewise
# of what GELU gains over the identity: an activation that can be inverted and brings half of it shows another reason.
SHARE = 0.5


@dataclass(frozen=True)
class StudyEvidence:
    """A study's runs, its reference arm, and the description of every arm from its manifest."""

    reference: str
    rows: Sequence[Row]
    arms: Mapping[str, Mapping[str, Any]]

    @cached_property
    def outcomes(self) -> dict[str, PairedComparison]:
        return {comparison.arm: comparison for comparison in compare(self.rows, self.reference)}

    def of(self, arms: Sequence[str]) -> list[PairedComparison]:
        """The comparisons of these arms; an arm without paired runs is undecided, or diverged at every rate."""
        return [self._judged(arm) or missing(arm, self._hopeless(arm)) for arm in arms]

    def _judged(self, arm: str) -> PairedComparison | None:
        """An arm whose paired runs were made at another rate than its tuning gives decides nothing."""
        comparison = self.outcomes.get(arm)
        tuned = [row for row in self.rows if row["arm"] == arm and row["tuning"]]
        rates = {row["rate"] for row in self.rows if row["arm"] == arm and not row["tuning"] and "rate" in row}
        if comparison is None or not tuned or all(row["diverged"] for row in tuned) or rates <= {best_rate(tuned)}:
            return comparison
        return replace(
            comparison, outcome="undecided", seeds_needed=comparison.seeds, not_better=False, not_worse=False
        )

    def _hopeless(self, arm: str) -> bool:
        tuned = [row for row in self.rows if row["arm"] == arm and row["tuning"]]
        return bool(tuned) and all(row["diverged"] for row in tuned)


@dataclass(frozen=True)
class Decision:
    """A verdict, the sentence that explains it, and the comparisons that it rests on."""

    verdict: Verdict
    reading: str
    rests_on: tuple[PairedComparison, ...]


Decide = Callable[[StudyEvidence], Decision]


def missing(name: str, diverged: bool) -> PairedComparison:
    nan = math.nan
    outcome: Outcome = "diverged" if diverged else "undecided"
    return PairedComparison(name, 0, nan, nan, nan, nan, nan, 0, outcome, 0 if diverged else LEAST, not_better=diverged)


def reading(comparisons: Sequence[PairedComparison]) -> str:
    """'Better: sphere (−0.035 [−0.040, −0.029]). Undecided: ring (0.006 [−0.005, 0.017], 128 seeds would decide).'"""
    groups: dict[str, list[str]] = {}
    waiting = [c for c in comparisons if c.outcome == "undecided" and not c.seeds and not c.diverged]
    for comparison in (comparison for comparison in comparisons if comparison not in waiting):
        number = (
            interval(comparison.difference, comparison.low, comparison.high)
            if comparison.seeds >= LEAST
            else f"{comparison.seeds} pairs"
        )
        needed = f"{comparison.seeds_needed} seeds would decide" if comparison.seeds_needed else ""
        lost = f"{comparison.diverged} diverged" if comparison.diverged else ""
        sides = [
            side
            for side, shown in (("not better", comparison.not_better), ("not worse", comparison.not_worse))
            if shown
        ]
        side = ", ".join(sides) if comparison.outcome == "undecided" else ""
        details = ", ".join(part for part in (number, lost, side, needed) if part)
        groups.setdefault(comparison.outcome, []).append(f"{comparison.arm} ({details})")
    ordered = [kind for kind in get_args(Outcome) if kind in groups]
    lines = [f"{kind.capitalize()}: {', '.join(groups[kind])}." for kind in ordered]
    if not lines:
        return "No arm of it was run."
    return " ".join([*lines, *([f"Without paired runs: {', '.join(c.arm for c in waiting)}."] if waiting else [])])


def decided(verdict: Verdict, rests_on: Sequence[PairedComparison], more: str = "") -> Decision:
    return Decision(verdict, " ".join(filter(None, (reading(rests_on), more))), tuple(rests_on))


def some_better(arms: Sequence[str], controls: Sequence[str] = ()) -> Decide:
    """Supported if an arm is better; qualified if a control is better too; refuted if none can be."""

    def decide(evidence: StudyEvidence) -> Decision:
        tested, also = evidence.of(arms), evidence.of(controls)
        if any(c.outcome == "better" for c in tested):
            shared = any(c.outcome == "better" for c in also)
            return decided("qualified" if shared else "supported", [*tested, *also])
        closed = bool(tested) and all(c.not_better for c in tested)
        return decided("refuted" if closed else "undecided", [*tested, *also])

    return decide


def none_better(evidence: StudyEvidence) -> Decision:
    """Refuted if any other norm is better than the reference; supported if each is shown not to be."""
    # The reference's own norm by another schedule is no other norm.
    others = [name for name, arm in evidence.arms.items() if arm.get("norm") or arm.get("layout")]
    comparisons = evidence.of([name for name in others if name != evidence.reference])
    if any(c.outcome == "better" for c in comparisons):
        return decided("refuted", comparisons)
    closed = bool(comparisons) and all(c.not_better for c in comparisons)
    return decided("supported" if closed else "undecided", comparisons)


def some_symmetriser(evidence: StudyEvidence) -> Decision:
    """Supported if a Symmetriser that is not LayerNorm by definition is as good, qualified if another one is not."""
    names = [name for name, arm in evidence.arms.items() if _restricted(arm)]
    comparisons = evidence.of(names)
    fine, bad = (any(c.outcome in kinds for c in comparisons) for kinds in (FINE, BAD))
    if fine:
        return decided("qualified" if bad else "supported", comparisons)
    all_bad = bool(comparisons) and all(c.outcome in BAD for c in comparisons)
    return decided("refuted" if all_bad else "undecided", comparisons)


def _restricted(arm: Mapping[str, Any]) -> bool:
    """Whether an arm is a Symmetriser in the plain model; if all heads hear each other, it is LayerNorm."""
    whole = dict(arm.get("norm_settings") or {}).get("messages") == "all"
    return arm.get("norm") == "symmetriser" and not whole and not arm.get("block_diagonal")


def all_worse(arms: Sequence[str]) -> Decide:
    """Supported if every arm is worse, refuted if every arm is as good, qualified if some are each."""

    def decide(evidence: StudyEvidence) -> Decision:
        comparisons = evidence.of(arms)
        worse, fine = [c for c in comparisons if c.outcome in BAD], [c for c in comparisons if c.not_worse]
        verdict: Verdict = "undecided"
        if worse and fine:
            verdict = "qualified"
        elif len(worse) == len(comparisons):
            verdict = "supported"
        elif len(fine) == len(comparisons):
            verdict = "refuted"
        return decided(verdict, comparisons)

    return decide


def lossy_needed(lossy: Sequence[str], invertible: Sequence[str], straight: str) -> Decide:
    """Refuted if an invertible activation is as good; supported if all are worse, bring less than half of the
    reference's gain over the straight line, and no lossy one is worse."""

    def decide(evidence: StudyEvidence) -> Decision:
        reversible, destroyed = evidence.of(invertible), evidence.of(lossy)
        comparisons = [*reversible, *destroyed]
        shares = {arm: _share(evidence, straight, arm, evidence.reference) for arm in invertible}
        known = {arm: share for arm, share in shares.items() if share[1] == share[1]}
        listed = ", ".join(f"{arm} {interval(*share)}" for arm, share in known.items())
        gain = f"Share of the gain of {evidence.reference} over {straight}: {listed}." if known else ""
        if any(c.not_worse for c in reversible):
            return decided("refuted", comparisons, gain)
        if all(c.outcome in BAD for c in reversible):
            if any(c.outcome in BAD for c in destroyed) or any(low >= SHARE for _, low, _ in known.values()):
                return decided("qualified", comparisons, gain)
            # An arm that diverged has no share.
            small = all(c.outcome == "diverged" or (c.arm in known and known[c.arm][2] < SHARE) for c in reversible)
            if small and all(c.not_worse for c in destroyed):
                return decided("supported", comparisons, gain)
        return decided("undecided", comparisons, gain)

    return decide


def norm_bends(floors: Sequence[str], norms: Sequence[str], tops: Sequence[str]) -> Decide:
    """Without activation: is a model with norms better than the floor, and by what share of what both bring?

    Each of the three is taken with the start that suits it: the arm of the lowest mean loss. All floors must have been
    run, because a floor that starts badly flatters the norm.
    """

    def decide(evidence: StudyEvidence) -> Decision:
        floor, norm, top = (lowest(evidence.rows, arms) for arms in (floors, norms, tops))
        comparisons = contrasts(evidence.rows, [PairedContrast(f"{norm} against {floor}", norm, floor)])
        waiting = [arm for arm in floors if not enough(evidence.rows, arm)]
        if waiting and enough(evidence.rows, floor):
            return decided("undecided", comparisons, f"Still to be run: {', '.join(waiting)}.")
        share, low, high = _share(evidence, floor, norm, top)
        gain = f"Share of the gain of {top} over {floor}: {interval(share, low, high)}." if low == low else ""
        outcome = comparisons[0].outcome
        if comparisons[0].not_better:
            return decided("refuted", comparisons, gain)
        if outcome == "better" and low >= SHARE:
            return decided("supported", comparisons, gain)
        if outcome == "better" and high < SHARE:
            return decided("qualified", comparisons, gain)
        return decided("undecided", comparisons, gain)

    return decide


def lowest(rows: Sequence[Row], arms: Sequence[str]) -> str:
    """The arm of the lowest mean loss among those with enough paired runs; the first one if none has."""
    means = {arm: float(np.mean(known)) for arm in arms if (known := enough(rows, arm))}
    return min(means, key=lambda arm: means[arm]) if means else arms[0]


def enough(rows: Sequence[Row], arm: str) -> list[float]:
    """The losses of an arm's paired runs that did not diverge; none if they are fewer than a comparison needs."""
    known = [loss for loss in values(rows, arm, lambda row: row["loss"]).values() if loss is not None]
    return known if len(known) >= LEAST else []


def _share(evidence: StudyEvidence, floor: str, norm: str, top: str) -> tuple[float, float, float]:
    """Mean over seeds of (floor − norm) / (floor − top), with its t interval."""
    losses = [values(evidence.rows, arm, lambda row: row["loss"]) for arm in (floor, norm, top)]
    shares = []
    for seed in sorted(set.intersection(*(set(by_seed) for by_seed in losses))):
        low, loss, best = (by_seed[seed] for by_seed in losses)
        if low is not None and loss is not None and best is not None and low != best:
            shares.append((low - loss) / (low - best))
    if len(shares) < LEAST:
        return math.nan, math.nan, math.nan
    mean, error = float(np.mean(shares)), float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    half = float(stats.t.ppf(1 - LEVEL / 2, len(shares) - 1)) * error
    return mean, mean - half, mean + half


def misfit_helps(arm: str, reference: str) -> Decide:
    """The arm with the misfit against the one without: gap, loss with axes dropped, loss with noise."""

    def decide(evidence: StudyEvidence) -> Decision:
        measures: dict[str, Value] = {"gap": _gap, "dropped": partial(_extra, name="dropped")}
        measures["noisy"] = partial(_extra, name="noisy")
        wanted = [PairedContrast(f"{name} of {arm}", arm, reference, value) for name, value in measures.items()]
        comparisons = contrasts(evidence.rows, wanted)
        better, worse = (any(c.outcome in kinds for c in comparisons) for kinds in (("better",), BAD))
        if better:
            return decided("qualified" if worse else "supported", comparisons)
        closed = all(c.not_better for c in comparisons)
        return decided("refuted" if closed else "undecided", comparisons)

    return decide


def _gap(row: Row) -> float | None:
    loss, train = row["loss"], row.get("train")
    return None if loss is None or train is None else float(loss - train)


def _extra(row: Row, name: str) -> float | None:
    return None if row["loss"] is None else row.get(name)
