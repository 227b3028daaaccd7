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
from armillary.results import Claim, Control, Finding, Statistic, say

CONTROL_SITES = 5


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
            headline=f"The nearest token stands out {say(value, '.2g')} times as much as among random directions by "
            f"angle, {say(value / more[0], '.2g')} times by distance before the norm",
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
