"""What the claims about sampled queries share: the median head, its controls, and the first key left out."""

from collections.abc import Callable

import numpy as np

from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, RANDOM, Evidence, Flags, Floats, Interval, by_share, name_heads
from armillary.probes.machinery.evidence import SHUFFLED
from armillary.probes.machinery.intervals import NAN3, Statistic, mean
from armillary.results import Control, Verdict, Why

WITHOUT_FIRST = "without the first key"
# What the fields of the instrument end with where position 0 is left out.
LATER = "_later"


def median_head(evidence: Evidence, stats: Floats, statistic: Statistic = mean) -> Interval:
    """The median over heads of a statistic of sums [document group, layer, head, …], with its interval.

    Heads on which the statistic is undefined are left out.
    """
    defined = np.isfinite(statistic(stats.sum(0)[None]).reshape(-1))
    if not defined.any():
        return NAN3
    return evidence.interval(stats, lambda sums: np.median(statistic(sums).reshape(len(sums), -1)[:, defined], axis=1))


def median_controls(
    evidence: Evidence, sums: Callable[[str], Floats], statistic: Statistic = mean
) -> tuple[Control, Control]:
    """The median head's statistic of `sums(arm)` at random initialisation (several twins) and on shuffled text."""
    twins = evidence.over_twins(lambda arm: median_head(evidence, sums(arm), statistic))
    return Control(RANDOM, *twins), Control(SHUFFLED, *median_head(evidence, sums(SHUFFLED), statistic))


def control_maps(evidence: Evidence, sums: Callable[[str], Floats], statistic: Statistic = mean) -> dict[str, Floats]:
    """The same per head [layer, head]; random initialisation is the mean over the twins."""
    twins = [statistic(sums(arm).sum(0)) for arm in evidence.twins]
    return {RANDOM: np.mean(twins, axis=0), SHUFFLED: statistic(sums(SHUFFLED).sum(0))}


def by_sure_share(intervals: Floats, limit: float, *others: Floats) -> tuple[Verdict, Why | None]:
    """Supported where at least 90 % of places lie above a limit, refuted where at most 10 % do, from intervals
    […, (value, low, high)]. Undecided where the places whose interval spans the limit could turn the verdict.

    With `others`, a place must lie above the limit in these intervals as well. Undefined places are left out.
    """
    every = [part.reshape(-1, 3) for part in (intervals, *others)]
    defined = np.all([np.isfinite(part[:, 0]) for part in every], axis=0)
    if defined.mean() <= 0.5:
        return "undecided", Why.UNDEFINED
    known = [part[defined] for part in every]
    if any(np.isnan(part).any() for part in known):
        return "undecided", Why.NO_INTERVAL
    sure, possible = (np.all([part[:, end] > limit for part in known], axis=0) for end in (1, 2))
    verdict = by_share(sure)
    return (verdict, None) if verdict == by_share(possible) else ("undecided", Why.SPANS_LIMIT)


def sampling_note(evidence: Evidence) -> str:
    rows = evidence[HEADS][MODEL]
    return f"Scores were read at {rows.queries} sampled queries ({rows.rate:.1%} of all tokens)."


def changed_heads(before: Flags, after: Flags, state: str) -> str:
    """Which heads reach a state only after something was left out, and which only before.

    >>> changed_heads(np.array([[True, False]]), np.array([[False, False]]), "above ½")
    'L0H0 is no longer above ½'
    """
    rises, falls = after & ~before, before & ~after
    parts = [f"{name_heads(rises)} {_is(rises)} then {state}"] if rises.any() else []
    parts += [f"{name_heads(falls)} {_is(falls)} no longer {state}"] if falls.any() else []
    return " and ".join(parts) or "no head changes side"


def _is(flags: Flags) -> str:
    return "is" if flags.sum() == 1 else "are"
