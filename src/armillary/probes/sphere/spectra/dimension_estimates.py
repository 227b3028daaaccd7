"""How many dimensions do the tokens of one norm site fill, before the norm and after it? By four estimates."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.samples import SAMPLES, Sampled
from armillary.probes.machinery import MODEL, Evidence, Floats, Ints, over_sites
from armillary.probes.machinery.intervals import ratio
from armillary.probes.sphere.across_sites import document_weights
from armillary.probes.sphere.spectra.clouds import membership, participation
from armillary.probes.sphere.spectra.site_spectra import Spectrum, sampled_rank, spectra

if TYPE_CHECKING:
    from torch import Tensor

NEIGHBOURS = 16
# Neighbour distances grow as the square of the points.
POINTS = 768
DRAWS = 400
# The largest ratios of neighbour distances come from points that nearly coincide; a tenth of them is censored.
CENSORED = 0.1


@dataclass(frozen=True, eq=False)
class Dimensions:
    """Participation ratio, rank and entropy rank count axes; TwoNN and maximum likelihood count coordinates near a
    token. Where there are two, the first is of z, the second of x."""

    participation: Floats
    """[1 + draw, 2]: of the sampled tokens, under `document_weights`."""
    ranks: Floats
    """[(all documents, either half), 2]; NaN where there are too few tokens."""
    two_nn: Floats
    """[document group, 2, (points, log distance ratios)]: the dimension is the first sum over the second."""
    mle: Floats
    """[document group, (points, log distance ratios)] of z."""
    all_tokens: float
    """Participation ratio of z over all tokens, across the two halves of the documents."""
    entropy_rank: float
    gaussian_two_nn: float
    gaussian_mle: float
    """Of as many Gaussian points with the mean and covariance of z."""


def inverse(sums: Floats) -> Floats:
    """A dimension from (points, log distance ratios)."""
    return ratio(sums, 0, 1)


def dimensions(evidence: Evidence) -> list[Dimensions]:
    """Per site."""
    by_site = spectra(evidence, MODEL)
    return list(over_sites(evidence.sites, lambda site: _dimensions(evidence, site, by_site[site])).values())


def participations(evidence: Evidence, arm: str, sites: list[str]) -> Floats:
    """[1 + draw, site, 2]: `Dimensions.participation` in any arm."""
    samples, anatomy = evidence[SAMPLES][arm], evidence.anatomy
    by_site = over_sites(sites, lambda site: _participation(evidence, samples.ordinary(anatomy, site)))
    return np.stack(list(by_site.values()), 1)


def _dimensions(evidence: Evidence, site: str, spectrum: Spectrum) -> Dimensions:
    from armillary.geometry.clouds.spectrum import entropy_rank

    assert evidence.corpus is not None
    sample, groups = evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, site), evidence.corpus.groups
    words = sample.distinct()
    document = words.document[:POINTS]
    near = [neighbour_sums(points[:POINTS], document, groups) for points in (words.z, words.x)]
    gaussian = gaussian_points(spectrum, min(len(words), POINTS), evidence.seed)
    gaussian_sums = neighbour_sums(gaussian, np.zeros(len(gaussian), dtype=np.int64), 1).sum(0)
    return Dimensions(
        _participation(evidence, sample),
        _ranks(sample),
        np.stack([sums[:, 0] for sums in near], 1),
        near[0][:, 1],
        1 / spectrum.cross_power,
        entropy_rank(spectrum.values),
        float(inverse(gaussian_sums[0])),
        float(inverse(gaussian_sums[1])),
    )


def _participation(evidence: Evidence, sample: Sampled) -> Floats:
    """[1 + draw, (z, x)]."""
    return participation_draws(evidence, sample.document, (sample.z.numpy(), sample.x.numpy()))


def participation_draws(evidence: Evidence, document: Ints, clouds: Iterable[Floats]) -> Floats:
    """[1 + draw, cloud]: (Σλ)²/Σλ² of points [token, axis], under `document_weights`."""
    weights = document_weights(evidence, DRAWS)
    member = membership(document, weights.shape[1])
    return np.stack([participation(points, member, weights) for points in clouds], 1)


def _ranks(sample: Sampled) -> Floats:
    """[(all, either half of the documents), (z, x)]."""
    half = sample.document % 2 == 0
    parts = [np.ones(len(sample), dtype=bool), half, ~half]
    return np.array([[sampled_rank(points[part]) for points in (sample.z, sample.x)] for part in parts])


def neighbour_sums(points: "Tensor", document: Ints, groups: int) -> Floats:
    """[group, (TwoNN, maximum likelihood), (points, log distance ratios)], added by a point's document.

    Neighbours are those among all points, whichever documents a draw takes: a document drawn twice is no neighbour of
    itself. Points that coincide with another say nothing of dimension and are left out.
    """
    import torch

    from armillary.geometry.clouds.intrinsic_dimension import pairwise_sq_distances

    sums = np.zeros((groups, 2, 2))
    if len(points) < 4 * NEIGHBOURS:
        return sums
    squared = pairwise_sq_distances(points)
    near = squared.topk(NEIGHBOURS + 1, dim=1, largest=False).values[:, 1:]
    apart = near[:, 0] > 1e-12 * squared.mean()
    if int(apart.sum()) < 2 * NEIGHBOURS:
        return sums
    logs = near[apart].log() / 2
    second = logs[:, 1] - logs[:, 0]
    limit = torch.quantile(second, 1 - CENSORED)
    terms = torch.stack(
        (
            torch.stack(((second <= limit).double(), second.clamp_max(limit)), 1),
            torch.stack((torch.ones_like(second), (logs[:, -1:] - logs[:, :-1]).mean(1)), 1),
        ),
        1,
    )
    np.add.at(sums, document[apart.numpy()] % groups, terms.numpy())
    return sums


def gaussian_points(spectrum: Spectrum, count: int, seed: int) -> "Tensor":
    """Gaussian points with the mean and covariance of a site."""
    import torch

    cov = torch.from_numpy(spectrum.covariance)
    # Cholesky needs positive eigenvalues, and LayerNorm's plane has a zero: lift it far below anything that counts.
    lift = (1e-6 * cov.trace() / len(cov)).clamp_min(1e-12)
    factor, failed = torch.linalg.cholesky_ex(cov + lift * torch.eye(len(cov), dtype=cov.dtype))
    if int(failed):  # a handful of distinct points: rounding is larger than the lift
        values, vectors = torch.linalg.eigh(cov)
        factor = vectors * values.clamp_min(0).sqrt()
    drawn = torch.randn(count, len(cov), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn @ factor.T + torch.from_numpy(spectrum.mean)
