"""How is what was found said: many numbers with intervals over documents, or that there was nothing to find?"""

from collections.abc import Callable, Sequence

import numpy as np

from armillary.probes.machinery.evidence import Evidence, Floats
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Finding, Statistic, Table

Interval = tuple[float, float, float]
NOTHING: Interval = (float("nan"),) * 3


def mean(stats: Floats) -> Floats:
    """The mean from (count, sum) along the last axis; NaN of nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(stats[..., 0] > 0, stats[..., 1] / stats[..., 0], np.nan)


def intervals(evidence: Evidence, stats: Floats, statistic: Callable[[Floats], Floats] = mean) -> Floats:
    """[…, (value, low, high)] of a statistic of sums [group, …], documents drawn alike for every entry."""
    from armillary.geometry.resample import bootstrap

    used = stats[(stats.reshape(len(stats), -1) != 0).any(1)]
    value = statistic(stats.sum(0)[None])[0]
    if len(used) < T.documents_least:
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)], -1)
    # An entry that nothing was measured for must not cost the others their draws.
    defined = np.isfinite(value)
    found = bootstrap(used, lambda drawn: np.where(defined, statistic(drawn), 0.0), seed=evidence.seed)
    return np.stack([value, np.where(defined, found.low, np.nan), np.where(defined, found.high, np.nan)], -1)


def unclear(rule: str, found: Floats) -> str:
    """Why nothing was decided: no interval, or one on both sides of the rule."""
    if np.isnan(found).any():
        return "too few documents are long enough for an interval: more text, in longer documents, would decide."
    return f"not clearly on either side of {rule}: more text would decide."


def cell(value: float) -> float | None:
    """A number for a table, where what could not be measured is left empty."""
    return float(value) if np.isfinite(value) else None


def not_measured(claim: Claim, column: Column, rows: Sequence[str], why: str, headline: str) -> Finding:
    """`undecided`, and what would decide it."""
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", *NOTHING),
        n=0,
        controls=(),
        reading=why,
        headline=headline,
        table=Table((column,), tuple((row,) for row in rows)),
    )
