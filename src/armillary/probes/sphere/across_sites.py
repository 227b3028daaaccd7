"""Intervals of a statistic at every norm site and over all sites, with the same documents resampled everywhere.

Every document of the text is drawn, also one that a statistic finds nothing in (a ball around none of its tokens).
"""

from collections.abc import Callable

import numpy as np

from armillary.probes.machinery import Evidence, Flags, Floats, Interval
from armillary.probes.machinery.intervals import Statistic, mean


def flagged(sites: list[str], flags: Flags) -> list[str]:
    """The names of the sites whose flag is set."""
    return [site for site, flag in zip(sites, flags, strict=True) if flag]


def by_site(evidence: Evidence, sums: Floats, statistic: Statistic = mean) -> Floats:
    """[site, (value, low, high)] from sums [site, document group, …]."""
    return evidence.intervals(np.moveaxis(sums, 0, 1), statistic, every=True)


def across_sites(
    evidence: Evidence, sums: Floats, statistic: Statistic = mean, summary: Callable[..., Floats] = np.median
) -> Interval:
    """Value and interval of a summary over sites, by default the median site."""
    return evidence.interval(np.moveaxis(sums, 0, 1), lambda drawn: summary(statistic(drawn), axis=-1), every=True)
