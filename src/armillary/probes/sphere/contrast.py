"""Do angles on the sphere stay informative in many dimensions, where distances are said to be noise?"""

from dataclasses import dataclass
from typing import ClassVar

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
    median_defined,
    weighed,
)
from armillary.probes.sphere.locality.contrast_parts import (
    angles_keep,
    fewer_hubs,
    median_contrast,
    more_than_distances,
    over_random,
)
from armillary.probes.sphere.locality.contrast_views import contrast_lines, contrast_table
from armillary.probes.sphere.locality.neighbours import (
    ANGLE,
    DISTANCE,
    NEAR,
    gaussian_contrast,
    random_contrasts,
    site_neighbours,
)
from armillary.results import Claim, Control, Finding, Rewording, Statistic, say

CONTROL_SITES = 5


@dataclass(frozen=True)
class Contrast:
    """Relative contrast of angles and distances at every norm, against random directions."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.contrast",
        chapter="A",
        statement="On the sphere, angles stay informative in many dimensions, where Euclidean distances are noise.",
        source="S2 S3",
        question=(
            "In many dimensions, random points are all about equally far from each other. Does the nearest token "
            "still stand out from the others, and more so by angle than by distance?"
        ),
        definition=(
            "How much a token's nearest token stands out (its contrast): (mean − nearest)/mean distance to tokens of "
            "other words and documents. It is 0 if all tokens are equally far, and 1 if one coincides with it. It is "
            "averaged over tokens, one of each word form. In many dimensions the contrast of random points goes to 0, "
            "which is the curse of dimensionality that the sources speak of.\n"
            "It is measured in two ways: by the angle between two tokens after a norm, and by the distance between "
            "them before it. Each is divided by the contrast of as many Gaussian vectors of the same dimension, "
            "because even for those the contrasts of angles and of distances differ.\n"
            "The statistic is this ratio for angles, at the median norm. (The straight distance on the sphere orders "
            "tokens as the angle does, so it has the same neighbours.)\n"
            f"Hubs are tokens that are among the {NEAR} nearest of many others. They show as skewness of that count."
        ),
        control=(
            "random directions, for which the statistic is 1; a Gaussian with the mean and covariance of the tokens "
            "after the norm: the contrast that fewer effective dimensions alone give; random initialisation; shuffled "
            "text"
        ),
        rule=(
            "The weaker of parts 1 and 2 decides. 'Above' and 'below' refer to whole intervals.\n"
            "Part 1, angles keep their contrast.\n"
            f"Supported if the contrast of angles is above {T.contrast_ratio:g} times that of random directions.\n"
            "Refuted if it is below.\n"
            "Part 2, angles keep more than distances. Each contrast is divided by that of random vectors, and the "
            "quotient for angles by the one for distances.\n"
            f"Supported if the result is above {T.contrast_more:g}.\n"
            "Refuted if it is below.\n"
            "Part 3 is ours and decides nothing: angles have fewer hubs than distances.\n"
            "Supported if the skewness is smaller by angle than by distance.\n"
            "Refuted if it is larger.\n"
            "Each part is undecided if an interval spans its limit."
        ),
        kind="behaviour",
        rewordings=(
            Rewording("2026-11-18", "f237b0e8e110", 0),
            Rewording("2026-11-18", "165dd022bbf0", 0),
            Rewording("2026-11-19", "ab7d34bb7add", 0),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        near = list(site_neighbours(evidence, MODEL, evidence.sites).values())
        count = min(site.tokens for site in near)
        random = random_contrasts(evidence.anatomy.d, count, evidence.seed)
        angle = median_contrast(evidence, near, lambda c: c[..., ANGLE])
        more = median_contrast(
            evidence, near, lambda c: c[..., ANGLE] / random[ANGLE, 0] / (c[..., DISTANCE] / random[DISTANCE, 0])
        )
        parts = (angles_keep(angle, random), more_than_distances(more, near, random), fewer_hubs(evidence, near))
        value, low, high = over_random(angle, random)
        return Finding(
            claim=self.claim,
            **weighed(parts, more=True),
            statistic=Statistic("contrast of angles over that of random directions, median norm", value, low, high),
            n=count,
            controls=_controls(evidence, random, count),
            headline=f"By angle, the nearest token stands out {say(value, '.2g')} times as much as among random "
            f"directions; by distance before the norm, {say(value / more[0], '.2g')} times",
            table=contrast_table(evidence, near),
            quantities=contrast_lines(evidence, near, random, count),
        )


def _controls(evidence: Evidence, random: Floats, count: int) -> tuple[Control, ...]:
    share = float(random[ANGLE, 0])
    some = evidence.sites[:: -(-len(evidence.sites) // CONTROL_SITES)]

    def of(arm: str) -> Interval:
        near = list(site_neighbours(evidence, arm, some).values())
        return over_random(median_contrast(evidence, near, lambda c: c[..., ANGLE]), random)

    controls = [Control("random directions", *(random[ANGLE] / share).tolist())]
    gaussian = median_defined(gaussian_contrast(evidence, site, count) for site in some) / share
    controls.append(Control("a Gaussian of the same covariance", *(gaussian,) * 3))
    if RANDOM in evidence.controls(SAMPLES):
        controls.append(Control(RANDOM, *evidence.over_twins(of)))
    if SHUFFLED in evidence.controls(SAMPLES):
        controls.append(Control(SHUFFLED, *of(SHUFFLED)))
    return tuple(controls)
