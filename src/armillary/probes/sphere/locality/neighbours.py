"""How much nearer than the others is a token's nearest token, and are some tokens everyone's neighbour?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, Evidence, Floats, Ints, over_sites, over_twins
from armillary.probes.machinery.intervals import mean, ratio
from armillary.probes.sphere.spectra.dimension_estimates import gaussian_points
from armillary.probes.sphere.spectra.site_spectra import spectra

if TYPE_CHECKING:
    from torch import Tensor

POINTS = 512
# How many neighbours count as near, as in Radovanović et al. 2010, who named hubs.
NEAR = 10
DRAWS = 5
ANGLE, CHORD, DISTANCE = range(3)
"""The angle and the straight distance of two tokens' z; the distance of their x."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Sums over tokens, by document group; the middle axis is (ANGLE, CHORD, DISTANCE)."""

    contrast: Floats
    """[group, 3, (tokens, contrast)]."""
    hubs: Floats
    """[group, 3, (tokens, N, N², N³)] of the number N of tokens that have this one among their nearest ten."""
    tokens: int


def contrast(sums: Floats) -> Floats:
    """(mean − nearest)/mean distance, on average over tokens: 0 where all others are equally far, 1 where one
    coincides."""
    return mean(sums)


def skewness(sums: Floats) -> Floats:
    """Of N: 0 where all tokens are near to equally many, large where a few are near to most."""
    first, second, third = (ratio(sums, power, 0) for power in (1, 2, 3))
    variance = np.maximum(second - first**2, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        moment = third - 3 * first * second + 2 * first**3
        return np.asarray(np.where(variance > 0, moment / variance**1.5, np.nan))


def site_neighbours(evidence: Evidence, arm: str, sites: list[str]) -> dict[str, Neighbours]:
    """Of tokens of different words and documents, the same number at every site."""
    assert evidence.corpus is not None
    anatomy, groups = evidence.anatomy, evidence.corpus.groups

    def of(site: str) -> Neighbours:
        sample = evidence[SAMPLES][arm].ordinary(anatomy, site).distinct()
        return neighbours(sample.x[:POINTS], sample.z[:POINTS], sample.document[:POINTS], groups)

    return over_sites(sites, of)


def neighbours(x: "Tensor", z: "Tensor", document: Ints, groups: int) -> Neighbours:
    """Sums of tokens x [n, d] and z [n, d]; a token is compared with those of other documents."""
    import torch

    from armillary.geometry.clouds.intrinsic_dimension import pairwise_sq_distances

    sums = np.zeros((groups, 3, 2)), np.zeros((groups, 3, 4))
    if len(x) <= 2 * NEAR:
        return Neighbours(*sums, len(x))
    unit = z / z.norm(dim=1, keepdim=True).clamp_min(1e-300)
    chord = pairwise_sq_distances(unit).clamp(0, 4).sqrt()
    metrics = (2 * torch.asin(chord / 2), chord, pairwise_sq_distances(x).sqrt())
    own = torch.from_numpy(document[:, None] == document[None])
    where = document % groups
    for index, apart in enumerate(metrics):
        values, occurrences = _token_terms(apart, own)
        for into, terms in zip(sums, (values, occurrences), strict=True):
            np.add.at(into[:, index], where, terms)
    return Neighbours(*sums, len(x))


def _token_terms(apart: "Tensor", own: "Tensor") -> tuple[Floats, Floats]:
    """[token, (1, contrast)] and [token, (1, N, N², N³)] from distances [n, n] and which are not compared."""
    import torch

    others = (~own).sum(1)
    known = others >= NEAR
    far = apart.masked_fill(own, torch.inf)
    typical = apart.masked_fill(own, 0).sum(1) / others.clamp_min(1)
    near = far.topk(NEAR, dim=1, largest=False)
    value = torch.where(known & (typical > 0), 1 - near.values[:, 0] / typical.clamp_min(1e-300), 0)
    occurrence = torch.bincount(near.indices[known].flatten(), minlength=len(apart)).double()
    terms = torch.stack((known.double(), value), 1).numpy()
    return terms, torch.stack([occurrence**power for power in range(4)], 1).numpy()


def random_contrasts(d: int, count: int, seed: int) -> Floats:
    """[(ANGLE, CHORD, DISTANCE), (value, low, high)] of Gaussian vectors and their directions: the mean of several
    draws, and where another draw is expected."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(DRAWS):
        x = torch.randn(count, d, generator=generator, dtype=torch.float64)
        sums = neighbours(x, x, np.arange(count), 1)
        values.append(np.repeat(contrast(sums.contrast[0])[:, None], 3, 1))
    return over_twins(np.array(values))


def gaussian_contrast(evidence: Evidence, site: str, count: int) -> float:
    """Contrast of angles of Gaussian points with the mean and covariance of z."""
    points = gaussian_points(spectra(evidence, MODEL)[site], count, evidence.seed)
    sums = neighbours(points, points, np.arange(count), 1)
    return float(contrast(sums.contrast[0, ANGLE]))
