"""Intervals of a statistic at every norm site and over all sites, with the same documents resampled everywhere.

Every document of the text is drawn, also one that a statistic finds nothing in (a ball around none of its tokens).
"""

from collections.abc import Callable

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval
from armillary.probes.machinery.intervals import Statistic, interval_of_draws, mean, redrawn
from armillary.results import Control, Verdict


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


def defined_median(values: Floats, axis: int = -1) -> Floats:
    """The median of what is defined; NaN where nothing is."""
    nothing = np.isnan(values).all(axis)
    return np.where(nothing, np.nan, np.nanmedian(np.where(np.expand_dims(nothing, axis), 0.0, values), axis=axis))


def sure_and_possible(intervals: Floats, limit: float) -> tuple[Flags, Flags]:
    """Which sites have a value of at most `limit`: with the whole interval, and with any part of it.

    A site without an interval may, but does not surely.
    """
    _, low, high = np.moveaxis(intervals, -1, 0)
    return np.asarray(high <= limit), np.asarray(~(low > limit))


def decided(rule: Callable[..., Verdict], sure: tuple[Flags, ...], possible: tuple[Flags, ...]) -> Verdict:
    """What a rule on flags says, if the sites whose interval spans a limit cannot change it; else undecided."""
    verdict = rule(*sure)
    return verdict if verdict == rule(*possible) else "undecided"


def arm_controls(
    evidence: Evidence, instrument: AnyInstrument, statistic: Callable[[str], Interval]
) -> tuple[Control, ...]:
    """A statistic in the arms that the instrument watched besides the model on its text; the twins are one control."""
    return tuple(
        Control(arm, *(evidence.over_twins(statistic) if arm == RANDOM else statistic(arm)))
        for arm in evidence.controls(instrument)
    )


def arm_lines(evidence: Evidence, instrument: AnyInstrument, values: Callable[[str], Floats]) -> dict[str, Floats]:
    """The values by site in the same arms, for a figure: the mean over the twins is one line."""
    return {
        arm: np.mean([values(twin) for twin in evidence.twins], axis=0) if arm == RANDOM else values(arm)
        for arm in evidence.controls(instrument)
    }


def document_weights(evidence: Evidence, draws: int) -> Floats:
    """[1 + draw, document group]: once every document, then how often each is drawn; the same for every statistic."""
    assert evidence.corpus is not None
    return redrawn(evidence.corpus.groups, draws, evidence.seed)


def drawn_interval(evidence: Evidence, values: Floats) -> Interval:
    """Value and interval from a statistic under `document_weights`, for one that is no function of documents' sums."""
    assert evidence.corpus is not None
    return interval_of_draws(values, evidence.corpus.groups)
