"""Do angles on the sphere stay informative in many dimensions, where distances are said to be noise?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    median_defined,
    missing_interval,
    weakest,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.machinery.verdicts import more_text
from armillary.probes.sphere.across_sites import across_sites, by_site, defined_median
from armillary.probes.sphere.neighbours import (
    ANGLE,
    DISTANCE,
    NEAR,
    Neighbours,
    contrast,
    gaussian_contrast,
    random_contrasts,
    site_neighbours,
    skewness,
)
from armillary.results import Claim, Control, Finding, Part, Quantity, Statistic, Table, Verdict, Why, say

CONTROL_SITES = 5
METRICS = {
    "angle": "of the angle between two z",
    "chord": "of the straight distance between two z",
    "distance": "of the distance between two x, before the norm",
}


@dataclass(frozen=True)
class Contrast:
    """Relative contrast of angles and distances at every norm, against random directions."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.contrast",
        chapter="A",
        statement="On the sphere, angles stay informative in many dimensions, where Euclidean distances are noise.",
        source="S2 S3",
        definition=(
            "How much a token's nearest token stands out: its contrast is (mean − nearest)/mean distance to tokens of "
            "other words and documents, 0 where all are equally far, 1 where one coincides; the mean over tokens, one "
            "of each word form. In many dimensions the contrast of random points goes to 0, which is the curse that "
            "the sources speak of. It is taken of the angle between two tokens' z, and of the distance between their x "
            "before the norm, each over that of as many Gaussian vectors of the same dimension: an angle and a "
            "distance have different contrasts even then. The statistic is that ratio for angles, at the median norm. "
            "The straight distance on the sphere orders tokens as the angle does, so it has the same neighbours. Hubs, "
            f"tokens that are among the {NEAR} nearest of many others, show as skewness of that count."
        ),
        control=(
            "random directions, for which the statistic is 1; a Gaussian with the mean and covariance of z: the "
            "contrast that fewer effective dimensions alone give; random initialisation; shuffled text"
        ),
        rule=(
            "Parts, the weaker of the first two decides. 'Angles keep their contrast': supported if the contrast lies "
            f"above {T.contrast_ratio:g} times that of random directions, with both intervals; refuted below. 'Angles "
            "keep more than distances': supported if the angles' ratio over that of distances lies above "
            f"{T.contrast_more:g}, refuted below. Ours: 'angles have fewer hubs than distances', supported if the "
            "skewness is smaller, refuted if it is larger. Undecided where an interval spans its limit."
        ),
        kind="behaviour",
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        near = list(site_neighbours(evidence, MODEL, evidence.sites).values())
        count = min(site.tokens for site in near)
        random = random_contrasts(evidence.anatomy.d, count, evidence.seed)
        angle = _median(evidence, near, lambda c: c[..., ANGLE])
        more = _median(
            evidence, near, lambda c: c[..., ANGLE] / random[ANGLE, 0] / (c[..., DISTANCE] / random[DISTANCE, 0])
        )
        parts = (_keeps(angle, random), _more(more, near, random), _hubs(evidence, near))
        verdict, why = weakest(parts)
        value, low, high = _over(angle, random)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("contrast of angles over that of random directions, median norm", value, low, high),
            n=count,
            controls=_controls(evidence, random, count),
            reading=" ".join(part.reading for part in parts) + more_text(why),
            headline=f"The nearest token stands out {say(value, '.2g')} times as much as among random directions by "
            f"angle, {say(value / more[0], '.2g')} times by distance before the norm",
            table=_table(evidence, near),
            quantities=_quantities(evidence, near, random, count),
            why=why,
            parts=parts,
        )


def _contrasts(near: Sequence[Neighbours]) -> Floats:
    """[site, group, (ANGLE, CHORD, DISTANCE), (tokens, contrast)]."""
    return np.stack([site.contrast for site in near])


def _median(evidence: Evidence, near: Sequence[Neighbours], value: Callable[[Floats], Floats]) -> Interval:
    """At the median site, from contrasts [draw, site, 3]."""
    return across_sites(evidence, _contrasts(near), lambda sums: value(contrast(sums)), defined_median)


def _over(angle: Interval, random: Floats) -> Interval:
    """Over the mean contrast of random directions."""
    share = float(random[ANGLE, 0])
    return angle[0] / share, angle[1] / share, angle[2] / share


def _keeps(angle: Interval, random: Floats) -> Part:
    name = "angles keep their contrast"
    value, low, high = random[ANGLE]
    sides = above(angle, T.contrast_ratio * high), above(angle, T.contrast_ratio * low)
    verdict: Verdict = "supported" if sides[0] else "refuted" if sides[1] is False else "undecided"
    reading = (
        f"By angle, the nearest token is {say(angle[0], '.0%')} nearer than the mean token (median norm), among random "
        f"directions {say(value, '.0%')}."
    )
    why = _missing(angle) if verdict == "undecided" else None
    return Part(name, verdict, reading, Statistic("contrast of angles, median norm", *angle), why=why)


def _more(more: Interval, near: Sequence[Neighbours], random: Floats) -> Part:
    name = "angles keep more than distances"
    side = above(more, T.contrast_more)
    distance = median_defined(contrast(site.contrast.sum(0))[DISTANCE] for site in near)
    reading = (
        f"By distance before the norm it is {say(distance, '.0%')}, among Gaussian vectors "
        f"{say(random[DISTANCE, 0], '.0%')}: over their own chance levels, angles have {say(more[0], '.2f')} times the "
        "contrast of distances."
    )
    if side is False:
        reading += " Distances are as informative."
    verdict: Verdict = "undecided" if side is None else "supported" if side else "refuted"
    statistic = Statistic("contrast of angles over that of distances, each over chance, median norm", *more)
    return Part(name, verdict, reading, statistic, why=_missing(more) if side is None else None)


def _hubs(evidence: Evidence, near: Sequence[Neighbours]) -> Part:
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
        f"Hubs: the skewness of how often a token is among the {NEAR} nearest is {say(angle, '.2g')} by angle and "
        f"{say(distance, '.2g')} by distance (median norm)."
    )
    verdict: Verdict = "undecided" if side is None else "supported" if side else "refuted"
    statistic = Statistic("skewness of the neighbour count, by distance less by angle, median norm", *fewer)
    why = _missing(fewer) if side is None else None
    return Part("angles have fewer hubs than distances", verdict, reading, statistic, asserted=False, why=why)


def _missing(interval: Interval) -> Why:
    return Why.TOO_LITTLE_TEXT if np.isnan(interval[0]) else missing_interval(*interval[1:])


def _controls(evidence: Evidence, random: Floats, count: int) -> tuple[Control, ...]:
    share = float(random[ANGLE, 0])
    some = evidence.sites[:: -(-len(evidence.sites) // CONTROL_SITES)]

    def of(arm: str) -> Interval:
        near = list(site_neighbours(evidence, arm, some).values())
        return _over(_median(evidence, near, lambda c: c[..., ANGLE]), random)

    controls = [Control("random directions", *(random[ANGLE] / share).tolist())]
    gaussian = median_defined(gaussian_contrast(evidence, site, count)[0] for site in some) / share
    controls.append(Control("a Gaussian of the same covariance", *(gaussian,) * 3))
    if RANDOM in evidence.controls(SAMPLES):
        controls.append(Control(RANDOM, *evidence.over_twins(of)))
    if SHUFFLED in evidence.controls(SAMPLES):
        controls.append(Control(SHUFFLED, *of(SHUFFLED)))
    return tuple(controls)


def _table(evidence: Evidence, near: Sequence[Neighbours]) -> Table:
    sums = _contrasts(near)
    hubs = np.stack([site.hubs for site in near])
    columns = [
        interval_cells(
            f"contrast_{name}", f"(mean − nearest)/mean {meaning}", by_site(evidence, sums[:, :, i], contrast)
        )
        for i, (name, meaning) in enumerate(METRICS.items())
    ]
    columns += [
        interval_cells(f"hubs_{name}", f"skewness of N {METRICS[name]}", by_site(evidence, hubs[:, :, i], skewness))
        for name, i in (("angle", ANGLE), ("distance", DISTANCE))
    ]
    return site_table(
        evidence.sites,
        *columns,
        cells("tokens", "tokens compared, one of each word form", [site.tokens for site in near], "tokens"),
    )


def _quantities(evidence: Evidence, near: Sequence[Neighbours], random: Floats, count: int) -> tuple[Quantity, ...]:
    sites, unit = evidence.sites, "(mean − nearest)/mean"
    sums, hubs = _contrasts(near), np.stack([site.hubs for site in near])
    angle = by_site(evidence, sums[:, :, ANGLE], contrast)
    law = {f"random directions: {say(random[ANGLE, 0], '.2g')}": np.full(len(sites), random[ANGLE, 0])}
    limit = T.contrast_ratio * random[ANGLE, 0]
    law[f"the limit: {say(limit, '.2g')}"] = np.full(len(sites), limit)
    # Distances are drawn on the angles' scale: times the ratio of what chance gives either.
    scaled = contrast(sums.sum(1))[:, DISTANCE] * random[ANGLE, 0] / random[DISTANCE, 0]
    skewed = by_site(evidence, hubs[:, :, ANGLE], skewness)
    by_distance = {"by distance before the norm": skewness(hubs.sum(1))[:, DISTANCE]}
    return (
        line(
            "contrast of angles",
            f"how much nearer the nearest of {count} tokens is than the mean one; distances before the norm are drawn "
            "on the same scale (over chance)",
            unit,
            "site",
            sites,
            angle,
            {"distance before the norm": scaled},
            law,
        ),
        line(
            "hubs by angle",
            f"skewness of how often a token is among the {NEAR} nearest of another: 0 without hubs",
            "skewness",
            "site",
            sites,
            skewed,
            by_distance,
        ),
    )
