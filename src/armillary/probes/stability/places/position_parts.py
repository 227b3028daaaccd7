"""What does 'the same at every position' say: of the surface, of the distribution, and beyond the trained length?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import (
    MODEL,
    SHUFFLED,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    missing_interval,
    name_sites,
)
from armillary.probes.sphere.across_sites import drawn_interval, flagged
from armillary.probes.stability.places.position_bins import BinDistances
from armillary.results import Part, Statistic, Verdict, say

if TYPE_CHECKING:
    from armillary.probes.stability.places.untrained_positions import Beyond, Obstacle

NAME = "energy distance of y between the earliest and the latest positions, median norm"


def median_distance(evidence: Evidence, sites: Sequence[BinDistances], halves: bool = False) -> Interval:
    draws = np.stack([site.halves if halves else site.between for site in sites], 1)
    return drawn_interval(evidence, np.median(draws, axis=1))


def distance_intervals(evidence: Evidence, sites: Sequence[BinDistances], halves: bool = False) -> Floats:
    return np.array([drawn_interval(evidence, site.halves if halves else site.between) for site in sites])


def agreeing(evidence: Evidence, sites: Sequence[BinDistances]) -> tuple[Flags, Flags]:
    """Which norms agree, and which differ, each with the whole interval."""
    _, low, high = distance_intervals(evidence, sites).T
    limit = np.fmax(T.position_distance, distance_intervals(evidence, sites, halves=True)[:, 2])
    return np.asarray(high <= limit), np.asarray(low > limit)


def surface_part(sites: Sequence[BinDistances]) -> Part:
    """By definition: what is measured is what ε leaves of it."""
    off = max(site.radius for site in sites)
    reading = (
        f"By definition, every range of positions lies on one surface: the radius is √d within {say(off, '.1g')} of it."
    )
    verdict: Verdict = "supported" if off <= T.radius_within else "refuted"
    statistic = Statistic("largest deviation of a range's radius from √d", off, off, off)
    return Part("one surface", verdict, reading, statistic)


def distribution_part(evidence: Evidence, arms: dict[str, list[BinDistances]], names: list[str]) -> Part:
    name = "the same distribution"
    agree, differ = agreeing(evidence, arms[MODEL])
    median, halves = median_distance(evidence, arms[MODEL]), median_distance(evidence, arms[MODEL], halves=True)
    shuffled = median_distance(evidence, arms[SHUFFLED])
    reading = (
        f"Between positions {names[0]} and {names[-1]} the energy distance of y is {say(median[0], '.2g')} at the "
        f"median norm (0: the same distribution; two halves of the documents: {say(halves[0], '.1g')}; shuffled text: "
        f"{say(shuffled[0], '.2g')}). "
        f"{int(agree.sum())} of {len(agree)} norms agree, {int(differ.sum())} differ"
    )
    reading += f" ({name_sites(flagged(evidence.sites, differ))})." if 0 < differ.sum() < len(differ) else "."
    side = above(median, max(T.position_distance, halves[2]))
    verdict: Verdict = "undecided"
    if side is False:
        verdict = "supported" if differ.mean() <= T.sites_few else "qualified"
    elif side:
        by_words = above(shuffled, max(T.position_distance, median_distance(evidence, arms[SHUFFLED], halves=True)[2]))
        verdict = "undecided" if by_words is None else "refuted" if by_words else "qualified"
        if by_words is False:
            reading += " On shuffled text they agree: the words that documents begin with make the difference."
    why = missing_interval(*median[1:]) if verdict == "undecided" else None
    return Part(name, verdict, reading, Statistic(NAME, *median), why=why)


def beyond_part(beyond: "Beyond | Obstacle") -> Part:
    """Ours: the source speaks of any position, not of positions that a model never saw."""
    name = "the same beyond the trained length"
    from armillary.probes.stability.places.untrained_positions import Obstacle

    if isinstance(beyond, Obstacle):
        reading = f"Beyond the trained length: {beyond.reason}."
        return Part(name, "undecided", reading, asserted=False, why=beyond.why)
    across, before = beyond.median(beyond.across), beyond.median(beyond.before)
    side = above(across, max(T.position_distance, before[2]))
    reading = (
        f"Across the end of the trained length of {beyond.length} tokens the distance is {say(across[0], '.2g')}; "
        f"just before the end, over as many tokens, it is {say(before[0], '.2g')}."
    )
    verdict: Verdict = "undecided" if side is None else "refuted" if side else "supported"
    statistic = Statistic("energy distance of y across the trained length, median norm", *across)
    why = missing_interval(*across[1:]) if side is None else None
    return Part(name, verdict, reading, statistic, asserted=False, why=why)
