"""What is the spectrum of one site's covariance, on all documents and on either half of them?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.probes.evidence import Evidence, Floats
from armillary.probes.parallel import over_sites

if TYPE_CHECKING:
    from armillary.probes.record import NormRecord


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
    cross = float("nan")
    if min(first.count, second.count) > 1:
        c0, c1 = first.covariance(), second.covariance()
        cross = float((c0 * c1).sum() / (c0.trace() * c1.trace()))
        if halves and min(first.count, second.count) > record.norm.d:
            parts = tuple(eigenvalues(c).values.numpy() for c in (c0, c1))
    values = eigenvalues(cov).values.numpy()
    return Spectrum(total.mean().numpy(), cov.numpy(), values, parts, cross, int(total.count))
