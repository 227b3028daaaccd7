"""Four estimates of how many dimensions the tokens of one norm site fill, each with its standard error."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from armillary.probes.instruments.samples import SAMPLES, Sampled
from armillary.probes.machinery import MODEL, Evidence, Floats, Ints, over_sites
from armillary.probes.sphere.site_spectra import Spectrum, spectra

if TYPE_CHECKING:
    from torch import Tensor

BLOCKS = 6
NEIGHBOURS = 16
# Neighbour distances grow as the square of the points; the sample is in random order, so its head is a sample too.
POINTS = 400
DRAWS = 400


class Estimate(NamedTuple):
    value: float = float("nan")
    error: float = float("nan")


@dataclass(frozen=True)
class Dimensions:
    """Participation ratio and entropy rank count axes; TwoNN and maximum likelihood count coordinates near a token."""

    participation: Estimate
    entropy_rank: Estimate
    two_nn: Estimate
    mle: Estimate
    gaussian_two_nn: float
    gaussian_mle: float
    """Of as many Gaussian points with the same mean and covariance."""


def dimensions(evidence: Evidence) -> tuple[list[Dimensions], Floats]:
    """Per site the estimates, and [draw, site] the participation ratio over its value when documents are resampled."""
    by_site = spectra(evidence, MODEL)
    samples = {site: evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, site) for site in by_site}
    draws = {site: _draws(evidence, spectrum.mean, samples[site]) for site, spectrum in by_site.items()}
    estimates = over_sites(
        evidence.sites, lambda site: _estimate(by_site[site], samples[site], draws[site], evidence.seed)
    )
    return list(estimates.values()), np.stack(list(draws.values()), 1)


def _draws(evidence: Evidence, mean: Floats, sample: Sampled) -> Floats:
    """[draw]: the participation ratio of the sample over its own value when documents are resampled.

    tr C² is a sum over pairs of tokens from different documents of squared inner products, so a resampled value needs
    only the pair sums of documents.
    """
    assert evidence.corpus is not None
    groups = evidence.corpus.groups
    weights = np.random.default_rng(evidence.seed).multinomial(groups, np.full(groups, 1 / groups), size=DRAWS)
    weights = np.vstack([np.ones(groups), weights]).astype(float)
    away = sample.z.numpy() - mean
    member = np.zeros((groups, len(sample)))
    member[sample.document % groups, np.arange(len(sample))] = 1
    pairs = member @ np.square(away @ away.T) @ member.T
    np.fill_diagonal(pairs, 0)
    size, power = member.sum(1), member @ np.square(away).sum(1)
    crossed = np.outer(size, size)
    np.fill_diagonal(crossed, 0)
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw of one document alone has no pairs
        square = np.einsum("bg,gh,bh->b", weights, pairs, weights)
        square /= np.einsum("bg,gh,bh->b", weights, crossed, weights)
        ratio = (weights @ power / (weights @ size)) ** 2 / square
        return np.asarray(ratio[1:] / ratio[0])


def _estimate(spectrum: Spectrum, sample: Sampled, draws: Floats, seed: int) -> Dimensions:
    from armillary.geometry.spectrum import entropy_rank

    ranks = [entropy_rank(half) for half in spectrum.halves]
    participation = 1 / spectrum.cross_power
    words = sample.distinct()
    two_nn, mle = _intrinsic(words.z[:POINTS], words.document[:POINTS])
    gaussian_two_nn, gaussian_mle = _intrinsic(_gaussian_points(spectrum, min(len(words), POINTS), seed))
    return Dimensions(
        Estimate(participation, participation * float(np.std(draws[np.isfinite(draws)]))),
        Estimate(entropy_rank(spectrum.values), abs(ranks[0] - ranks[1]) / 2 if ranks else float("nan")),
        two_nn,
        mle,
        gaussian_two_nn.value,
        gaussian_mle.value,
    )


def _intrinsic(points: "Tensor", documents: Ints | None = None) -> tuple[Estimate, Estimate]:
    """TwoNN and maximum likelihood; with documents, their standard errors by a jackknife over blocks of documents."""
    import torch

    from armillary.geometry.dimension import mle_dimension, pairwise_sq_distances, two_nn
    from armillary.geometry.resample import jackknife_se

    if len(points) < 4 * NEIGHBOURS:
        return Estimate(), Estimate()
    distances = pairwise_sq_distances(points)

    def both(keep: "Tensor | None" = None) -> tuple[float, float] | None:
        try:
            return two_nn(distances, keep).value, mle_dimension(distances, NEIGHBOURS, keep).value
        except ValueError:  # nearly all points coincide
            return None

    values = both()
    if values is None:
        return Estimate(), Estimate()
    if documents is None:
        return Estimate(values[0]), Estimate(values[1])
    masks = [torch.from_numpy(documents % BLOCKS != block) for block in range(BLOCKS)]
    usable = [keep for keep in masks if not bool(keep.all()) and int(keep.sum()) >= 2 * NEIGHBOURS]
    without = [pair for pair in map(both, usable) if pair is not None]
    errors = jackknife_se(np.array(without)) if len(without) > 1 else np.full(2, np.nan)
    return Estimate(values[0], float(errors[0])), Estimate(values[1], float(errors[1]))


def _gaussian_points(spectrum: Spectrum, count: int, seed: int) -> "Tensor":
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
