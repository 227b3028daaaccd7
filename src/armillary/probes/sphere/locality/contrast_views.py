"""How is contrast shown? A table by norm, and lines of the contrast and of hubs."""

from collections.abc import Sequence

import numpy as np

from armillary.probes.machinery import Evidence, Floats, T
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.sphere.across_sites import by_site
from armillary.probes.sphere.locality.contrast_parts import contrasts
from armillary.probes.sphere.locality.neighbours import ANGLE, DISTANCE, NEAR, Neighbours, contrast, skewness
from armillary.results import Quantity, Table, say

METRICS = {
    "angle": "of the angle between two z",
    "chord": "of the straight distance between two z",
    "distance": "of the distance between two x, before the norm",
}


def contrast_table(evidence: Evidence, near: Sequence[Neighbours]) -> Table:
    sums = contrasts(near)
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


def contrast_lines(evidence: Evidence, near: Sequence[Neighbours], random: Floats, count: int) -> tuple[Quantity, ...]:
    sites, unit = evidence.sites, "(mean − nearest)/mean"
    sums, hubs = contrasts(near), np.stack([site.hubs for site in near])
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
