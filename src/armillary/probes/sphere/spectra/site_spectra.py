"""The spectrum of each norm site's covariance, over all documents and over either half of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.machinery import Evidence, Floats, T, once, over_sites

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.measures import Moments

FLOAT32_NOISE = 2e-8


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues, ascending, with the mean and the covariance of z."""

    mean: Floats
    covariance: Floats
    values: Floats
    halves: tuple[Floats, ...]
    """Eigenvalues of each half of the documents; empty where a half has no more tokens than axes."""
    cross_power: float
    """tr(C₀C₁)/(tr C₀ · tr C₁): the inverse participation ratio, without the bias of a covariance with itself."""
    tokens: int
    zeros: int
    zeros_halves: tuple[int, ...]
    """Vanishing eigenvalues, counted by `vanishing`."""

    @property
    def middle(self) -> float:
        """The median eigenvalue; NaN where it is 0, as for text of two words."""
        return float(np.median(self.values)) or float("nan")


@once
def spectra(evidence: Evidence, arm: str, halves: bool = True) -> dict[str, Spectrum]:
    """The spectrum of every site in one arm, computed once for all probes."""
    state = evidence[COVARIANCES][arm]
    return over_sites(evidence.sites, lambda site: _spectrum(*state.halves(site), halves))


def _spectrum(first: "Moments", second: "Moments", halves: bool) -> Spectrum:
    from armillary.geometry.clouds.spectrum import eigenvalues

    total = first + second
    cov = total.covariance()
    parts: tuple[Floats, ...] = ()
    zeros_halves: tuple[int, ...] = ()
    cross = float("nan")
    if min(first.count, second.count) > 1:
        c0, c1 = first.covariance(), second.covariance()
        cross = float((c0 * c1).sum() / (c0.trace() * c1.trace()))
        if halves and min(first.count, second.count) > len(cov):
            parts = tuple(eigenvalues(c).numpy() for c in (c0, c1))
            zeros_halves = tuple(vanishing(c.numpy(), part) for c, part in zip((c0, c1), parts, strict=True))
    values = eigenvalues(cov).numpy()
    zeros = vanishing(cov.numpy(), values)
    return Spectrum(total.mean().numpy(), cov.numpy(), values, parts, cross, int(total.count), zeros, zeros_halves)


def vanishing(cov: Floats, values: Floats) -> int:
    """How many eigenvalues vanish: below 1e-6 of the median one.

    Products in float32 leave noise of about 2e-8 of the mean variance on every eigenvalue. Where a few axes hold most
    of the variance, this noise hides a zero. There the count is taken on the correlation matrix, whose noise is
    relative to each axis: scaling axes moves no eigenvalue to or from zero (Sylvester).
    """
    from armillary.geometry.clouds.spectrum import eigenvalues, near_zero_count

    middle = float(np.median(values))
    if FLOAT32_NOISE * float(np.mean(values)) < T.zero_eigenvalue * middle / 10:
        return near_zero_count(values, T.zero_eigenvalue)
    scale = np.sqrt(np.maximum(np.diag(cov), 0))
    live = scale > 1e-9 * scale.max()
    if not live.any():
        return len(scale)
    correlation = cov[np.ix_(live, live)] / np.outer(scale[live], scale[live])
    flat = int((~live).sum())
    return flat + near_zero_count(eigenvalues(correlation).numpy(), T.zero_eigenvalue)


def sampled_rank(points: "Tensor") -> float:
    """In how many directions a sample spreads: eigenvalues of its correlation matrix above 1e-6 of their mean, which
    is 1. NaN where there are so few points that their number may be the limit."""
    from armillary.geometry.clouds.spectrum import eigenvalues

    count, d = points.shape
    if count < T.rank_tokens * d:
        return float("nan")
    away = points.double() - points.double().mean(0)
    scale = away.square().mean(0).sqrt()
    live = scale > 1e-9 * scale.max()
    if not bool(live.any()):
        return 0.0
    away = away[:, live] / scale[live]
    return float((eigenvalues(away.T @ away / count) > T.zero_eigenvalue).sum())


def vanishing_after_gain(spectrum: Spectrum, gain: Floats) -> int:
    """The count for Cov(y) = Γ Cov(z) Γ.

    Ostrowski's inequality keeps each eigenvalue within [min γ², max γ²] of its own in Cov(z), which settles most sites
    without a second decomposition.
    """
    from armillary.geometry.clouds.spectrum import eigenvalues

    smallest, largest, middle = np.min(gain**2), np.max(gain**2), np.median(spectrum.values)
    surely_not = int((spectrum.values * smallest >= T.zero_eigenvalue * middle * largest).sum())
    if spectrum.zeros + surely_not == len(spectrum.values):
        return spectrum.zeros
    cov_y = spectrum.covariance * gain[:, None] * gain[None, :]
    return vanishing(cov_y, eigenvalues(cov_y).numpy())
