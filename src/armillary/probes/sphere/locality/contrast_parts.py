"""What does 'angles stay informative' say, part by part: of angles, against distances, and of hubs?"""

from collections.abc import Callable, Sequence

import numpy as np

from armillary.probes.machinery import Evidence, Floats, Interval, T, above, by_side, median_defined, missing_interval
from armillary.probes.sphere.across_sites import across_sites, defined_median
from armillary.probes.sphere.locality.neighbours import ANGLE, DISTANCE, NEAR, Neighbours, contrast, skewness
from armillary.results import Part, Statistic, Verdict, Why, say


def contrasts(near: Sequence[Neighbours]) -> Floats:
    """[site, group, (ANGLE, CHORD, DISTANCE), (tokens, contrast)]."""
    return np.stack([site.contrast for site in near])


def median_contrast(evidence: Evidence, near: Sequence[Neighbours], value: Callable[[Floats], Floats]) -> Interval:
    """At the median site, from contrasts [draw, site, 3]."""
    return across_sites(evidence, contrasts(near), lambda sums: value(contrast(sums)), defined_median)


def over_random(angle: Interval, random: Floats) -> Interval:
    """Over the mean contrast of random directions."""
    share = float(random[ANGLE, 0])
    return angle[0] / share, angle[1] / share, angle[2] / share


def angles_keep(angle: Interval, random: Floats) -> Part:
    name = "angles keep their contrast"
    value, low, high = random[ANGLE]
    sides = above(angle, T.contrast_ratio * high), above(angle, T.contrast_ratio * low)
    verdict: Verdict = "supported" if sides[0] else "refuted" if sides[1] is False else "undecided"
    reading = (
        f"By angle, the nearest token is {say(angle[0], '.0%')} nearer than the average one (median norm); among "
        f"random directions, {say(value, '.0%')}."
    )
    why = _missing(angle) if verdict == "undecided" else None
    return Part(name, verdict, reading, Statistic("contrast of angles, median norm", *angle), why=why)


def more_than_distances(more: Interval, near: Sequence[Neighbours], random: Floats) -> Part:
    name = "angles keep more than distances"
    side = above(more, T.contrast_more)
    distance = median_defined(contrast(site.contrast.sum(0))[DISTANCE] for site in near)
    reading = (
        f"By distance before the norm, the nearest token is {say(distance, '.0%')} nearer than the average one; among "
        f"Gaussian vectors, {say(random[DISTANCE, 0], '.0%')}. Relative to chance, angles have {say(more[0], '.2f')} "
        "times the contrast of distances."
    )
    if side is False:
        reading += " So angles are not clearly more informative."
    verdict = by_side(side)
    statistic = Statistic("contrast of angles over that of distances, each over chance, median norm", *more)
    return Part(name, verdict, reading, statistic, why=_missing(more) if side is None else None)


def fewer_hubs(evidence: Evidence, near: Sequence[Neighbours]) -> Part:
    """Ours: the sources do not speak of hubs."""
    sums = np.stack([site.hubs for site in near])
    fewer = across_sites(
        evidence, sums, lambda drawn: skewness(drawn)[..., DISTANCE] - skewness(drawn)[..., ANGLE], defined_median
    )
    angle, distance = (
        median_defined(skewness(site.hubs.sum(0))[which] for site in near) for which in (ANGLE, DISTANCE)
    )
    side = above(fewer, 0.0)
    reading = (
        f"Hubs: how often a token is among the {NEAR} nearest of another has a skewness of {say(angle, '.2g')} by "
        f"angle and {say(distance, '.2g')} by distance (median norm)."
    )
    verdict = by_side(side)
    statistic = Statistic("skewness of the neighbour count, by distance less by angle, median norm", *fewer)
    why = _missing(fewer) if side is None else None
    return Part("angles have fewer hubs than distances", verdict, reading, statistic, asserted=False, why=why)


def _missing(interval: Interval) -> Why:
    return Why.TOO_LITTLE_TEXT if np.isnan(interval[0]) else missing_interval(*interval[1:])
