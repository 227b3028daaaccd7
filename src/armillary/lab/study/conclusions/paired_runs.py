"""What do paired runs say? Differences in loss with t intervals, Holm within a study, equivalence by two tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from scipy import stats

from armillary.lab.study.design import EFFECT

Row = Mapping[str, Any]
R = TypeVar("R", bound=Row)
Value = Callable[[Row], float | None]

Outcome = Literal["better", "worse", "equivalent", "undecided", "diverged"]
LEVEL = 0.05
# A pair of runs at least, and better five: below it an interval says nothing.
LEAST = 3
# A difference that lies at the smallest effect would need any number of seeds.
MOST = 999


@dataclass(frozen=True)
class PairedComparison:
    """One arm against the reference, over the seeds that both have."""

    arm: str
    seeds: int
    difference: float
    """Mean of loss(arm) − loss(reference), nats per token; negative is better."""
    low: float
    high: float
    p: float
    """Of the two-sided paired t test that the difference is 0, before Holm's correction."""
    equivalence_p: float
    """The larger p of two one-sided tests that the difference lies outside ± the smallest effect."""
    diverged: int
    outcome: Outcome
    seeds_needed: int
    """Seeds that would decide with 80 % power if the true difference is the one seen; 0 where it is decided."""
    not_better_p: float = float("nan")
    """Of the one-sided test that the arm is better by the smallest effect."""
    not_worse_p: float = float("nan")
    not_better: bool = False
    """Shown not to be better by the smallest effect, with Holm's correction; also where it is worse or diverged."""
    not_worse: bool = False


def best_rate(tuning: Iterable[Row]) -> float:
    """The smallest rate whose worst tuning seed is within the smallest effect of the best one's.

    Rates near the edge of stability are as good as half of them in two seeds, and fail in one of ten (LOG.md).
    """
    losses: dict[float, float] = {}
    for row in tuning:
        loss = float("inf") if row["diverged"] else row["loss"]
        losses[row["rate"]] = max(loss, losses.get(row["rate"], loss))
    best = min(losses.values())
    return min(rate for rate, loss in losses.items() if loss <= best + EFFECT)


def at_last_rate(rows: Sequence[R]) -> list[R]:
    """The runs, without paired ones at a rate that their arm has no longer: that of its last paired run counts."""
    rate = {row["arm"]: row["rate"] for row in rows if not row["tuning"]}
    return [row for row in rows if row["tuning"] or row["rate"] == rate[row["arm"]]]


def compare(rows: Sequence[Row], reference: str, effect: float = EFFECT) -> list[PairedComparison]:
    """Every arm against the reference arm, from the rows of paired runs."""
    arms = dict.fromkeys(row["arm"] for row in rows if not row["tuning"] and row["arm"] != reference)
    return contrasts(rows, [PairedContrast(arm, arm, reference) for arm in arms], effect)


@dataclass(frozen=True)
class PairedContrast:
    """Two arms to be compared by one number of their runs; less is better."""

    name: str
    arm: str
    reference: str
    value: Value = lambda row: row["loss"]


def contrasts(rows: Sequence[Row], wanted: Sequence[PairedContrast], effect: float = EFFECT) -> list[PairedComparison]:
    """Each contrast as a comparison of its name; Holm's correction is over all of them."""
    comparisons = []
    for contrast in wanted:
        compared, base = (values(rows, arm, contrast.value) for arm in (contrast.arm, contrast.reference))
        comparisons.append(_compared(contrast.name, compared, base, effect, len(wanted)))
    return _corrected(comparisons, effect)


def values(rows: Sequence[Row], arm: str, value: Value) -> dict[int, float | None]:
    """Seed → the value of the arm's paired run."""
    return {row["seed"]: value(row) for row in rows if row["arm"] == arm and not row["tuning"]}


def _compared(
    arm: str, losses: Mapping[int, float | None], base: Mapping[int, float | None], effect: float, arms: int
) -> PairedComparison:
    pairs = [(losses[seed], base[seed]) for seed in sorted(losses.keys() & base.keys())]
    differences = np.array([changed - base for changed, base in pairs if changed is not None and base is not None])
    diverged = sum(changed is None for changed, _ in pairs)
    n, nan = len(differences), float("nan")
    if n < LEAST:
        return PairedComparison(arm, n, nan, nan, nan, nan, nan, diverged, "undecided", LEAST)
    mean, error = float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(n))
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * error
    # Runs that agree to the bit have no spread; their difference is certain.
    t = np.inf if error == 0 else abs(mean) / error
    p = 1.0 if mean == 0 == error else float(2 * stats.t.sf(t, n - 1))
    not_better_p, not_worse_p = (_beyond(effect - bound, error, n) for bound in (-mean, mean))
    return PairedComparison(
        arm,
        n,
        mean,
        mean - half,
        mean + half,
        p,
        max(not_better_p, not_worse_p),
        diverged,
        "undecided",
        _needed(differences, effect, arms),
        not_better_p,
        not_worse_p,
    )


def _beyond(margin: float, error: float, n: int) -> float:
    """p of the one-sided test that a mean, this far on the right side of its limit, lies beyond it."""
    return float(stats.t.sf(margin / error, n - 1)) if error else float(margin <= 0)


def _needed(differences: np.ndarray, effect: float, arms: int) -> int:
    """Pairs for 80 % power if the true difference is the one seen, at Holm's strictest level, by the normal
    approximation corrected for t: to call it equivalent where it is smaller than the effect, else better or worse."""
    mean, spread = abs(float(differences.mean())), float(differences.std(ddof=1))
    room, level = (effect - mean, LEVEL / arms) if mean < effect else (mean, LEVEL / (2 * arms))
    z = float(stats.norm.ppf(1 - level))
    wanted = ((z + float(stats.norm.ppf(0.8))) * spread / room) ** 2 + 0.5 * z**2
    return min(MOST, max(len(differences) + 1, int(np.ceil(wanted))))


def _corrected(comparisons: Sequence[PairedComparison], effect: float) -> list[PairedComparison]:
    """Outcomes: p values of differences and of equivalence are each corrected by Holm over the study's arms."""
    different = holm([c.p for c in comparisons])
    equivalent = holm([c.equivalence_p for c in comparisons])
    sides = holm([c.not_better_p for c in comparisons]), holm([c.not_worse_p for c in comparisons])
    decided = []
    for c, apart, same, *shown in zip(comparisons, different, equivalent, *sides, strict=True):
        outcome: Outcome = "undecided"
        if c.diverged and c.diverged >= c.seeds:
            outcome = "diverged"
        elif same:
            outcome = "equivalent"
        elif apart and abs(c.difference) >= effect:
            outcome = "better" if c.difference < 0 else "worse"
        decided.append(
            replace(
                c,
                outcome=outcome,
                seeds_needed=c.seeds_needed if outcome == "undecided" else 0,
                not_better=outcome in ("worse", "equivalent", "diverged") or (outcome == "undecided" and shown[0]),
                not_worse=outcome in ("better", "equivalent") or (outcome == "undecided" and shown[1]),
            )
        )
    return decided


def holm(p: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which hypotheses are rejected, the error rate of the family kept by Holm's method; NaN never is.

    >>> holm([0.01, 0.04, 0.03])
    [True, False, False]
    """
    known = sorted((value, index) for index, value in enumerate(p) if value == value)
    rejected = [False] * len(p)
    for rank, (value, index) in enumerate(known):
        if value > level / (len(known) - rank):
            break
        rejected[index] = True
    return rejected
