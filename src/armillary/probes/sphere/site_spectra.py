"""What is the spectrum of one site's covariance, on all documents and on either half of them?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery.evidence import Evidence, Floats
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.thresholds import THRESHOLDS as T

if TYPE_CHECKING:
    from armillary.probes.instruments.norm_record import NormRecord

FLOAT32_NOISE = 2e-8


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues ascending; `halves` holds those of each half of the documents where both have enough tokens."""

    mean: Floats
    covariance: Floats
    values: Floats
    halves: tuple[Floats, ...]
    cross_power: float
    """tr(C₀C₁)/(tr C₀ · tr C₁): the inverse participation ratio, free of the bias of a covariance with itself."""
    tokens: int
    zeros: int
    zeros_halves: tuple[int, ...]
    """Vanishing eigenvalues, counted by `vanishing`."""


def spectra(evidence: Evidence, arm: str, halves: bool = True) -> dict[str, Spectrum]:
    """Every site's spectrum in one arm; decomposed once, however many probes ask."""
    kept = evidence.kept.setdefault(("spectra", arm, halves), {})
    if not kept:
        records = evidence.records[arm]
        kept.update(over_sites(evidence.sites, lambda site: _spectrum(records[site], halves)))
    return kept


def _spectrum(record: "NormRecord", halves: bool) -> Spectrum:
    from armillary.geometry.spectrum import eigenvalues

    assert record.spectra is not None
    first, second = record.spectra
    total = first + second
    cov = total.covariance()
    parts: tuple[Floats, ...] = ()
    zeros_halves: tuple[int, ...] = ()
    cross = float("nan")
    if min(first.count, second.count) > 1:
        c0, c1 = first.covariance(), second.covariance()
        cross = float((c0 * c1).sum() / (c0.trace() * c1.trace()))
        if halves and min(first.count, second.count) > record.norm.d:
            parts = tuple(eigenvalues(c).values.numpy() for c in (c0, c1))
            zeros_halves = tuple(vanishing(c.numpy(), part) for c, part in zip((c0, c1), parts, strict=True))
    values = eigenvalues(cov).values.numpy()
    zeros = vanishing(cov.numpy(), values)
    return Spectrum(total.mean().numpy(), cov.numpy(), values, parts, cross, int(total.count), zeros, zeros_halves)


def vanishing(cov: Floats, values: Floats) -> int:
    """How many eigenvalues vanish: below 1e-6 of the median one.

    Products in float32 leave noise of about 2e-8 of the mean variance on every eigenvalue. Where a few axes hold most
    of the variance that hides a zero, so there the count is taken on the correlation matrix, whose noise is relative to
    each axis: scaling axes moves no eigenvalue to or from zero (Sylvester).
    """
    from armillary.geometry.spectrum import eigenvalues, near_zero_count

    middle = float(np.median(values))
    if FLOAT32_NOISE * float(np.mean(values)) < T.zero_eigenvalue * middle / 10:
        return near_zero_count(values, T.zero_eigenvalue)
    scale = np.sqrt(np.maximum(np.diag(cov), 0))
    live = scale > 1e-9 * scale.max()
    kept = cov[np.ix_(live, live)] / np.outer(scale[live], scale[live])
    flat = int((~live).sum())
    return flat + near_zero_count(eigenvalues(kept).values.numpy(), T.zero_eigenvalue)
