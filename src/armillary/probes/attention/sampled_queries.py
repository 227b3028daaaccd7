"""What the claims about sampled queries share: the median head, and the comparison with the first key left out."""

import numpy as np

from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, Evidence, Flags, Floats, Interval, name_heads
from armillary.probes.machinery.intervals import Statistic, mean

WITHOUT_FIRST = "without the first key"
# What the fields of the instrument end with where position 0 is left out.
LATER = "_later"


def median_head(evidence: Evidence, stats: Floats, statistic: Statistic = mean) -> Interval:
    """The median over heads of a statistic of sums [document group, layer, head, …], with its interval."""
    return evidence.interval(stats, lambda sums: np.median(statistic(sums).reshape(len(sums), -1), axis=1))


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
