"""In how many dimensions do normalised features effectively lie?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, Interval, T, median_defined
from armillary.probes.machinery.tables import cells, line, site_table
from armillary.probes.machinery.verdicts import missing_interval
from armillary.probes.sphere.dimension_estimates import Dimensions, dimensions
from armillary.probes.sphere.site_spectra import spectra
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, say

UNIT = "dimensions"


@dataclass(frozen=True)
class EffectiveDimension:
    """Four estimates of dimension per site, compared with a Gaussian of the same covariance."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.dimension",
        chapter="A",
        statement="Normalised features effectively fill d − 2 dimensions.",
        source="S3",
        definition=(
            "The statistic is the participation ratio (Σλ)²/Σλ² of the eigenvalues λ of Cov(z), divided by d − 2, at "
            "the median site. It is 1 if all d − 2 axes carry the same variance. Its tr C² is the product of the "
            "covariances of the two halves of the documents, which removes the bias of few tokens. The table adds the "
            "entropy rank (exp of the entropy of the eigenvalues), TwoNN and maximum-likelihood dimension. The last "
            "two count coordinates near a token; with few tokens they come out too low, so they are compared with as "
            "many Gaussian points of the same covariance."
        ),
        control="random initialisation; normalised Gaussian vectors; for TwoNN a Gaussian with the same mean and "
        "covariance",
        rule=(
            f"Supported if the interval of the statistic lies above {T.dimension_full}. Refuted if it lies below "
            f"{T.dimension_half}. Qualified otherwise. Undecided without an interval."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        by_site, draws = dimensions(evidence)
        tokens = [spectrum.tokens for spectrum in spectra(evidence, MODEL).values()]
        full = evidence.anatomy.d - 2
        value, low, high = _interval(by_site, draws, full)
        verdict = _verdict(low, high)
        axes, near = (say(_median(by_site, name), spec) for name, spec in (("participation", ".3g"), ("two_nn", ".2g")))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("participation ratio / (d − 2), median site", value, low, high),
            n=min(tokens),
            controls=_controls(evidence, full),
            reading=_reading(verdict, by_site, value, full),
            headline=f"Features use {axes} of {full} dimensions (participation ratio, median site); near a token, "
            f"{near}",
            table=_table(evidence, by_site, tokens),
            quantities=_quantities(evidence, by_site, full),
            why=missing_interval(low, high) if verdict == "undecided" else None,
        )


def _column(by_site: list[Dimensions], name: str) -> Floats:
    """[site, (value, error)] of an estimate, [site] of a plain number."""
    return np.array([getattr(site, name) for site in by_site], dtype=float)


def _median(by_site: list[Dimensions], name: str) -> float:
    """The median over the sites where the estimate is defined; NaN if it is nowhere."""
    column = _column(by_site, name)
    return median_defined(column if column.ndim == 1 else column[:, 0])


def _interval(by_site: list[Dimensions], draws: Floats, full: int) -> Interval:
    shares = _column(by_site, "participation")[:, 0] / full
    drawn = shares[None] * draws
    drawn = np.median(drawn[np.isfinite(drawn).all(1)], axis=1)
    if len(drawn) < len(draws) // 2:
        return float(np.median(shares)), float("nan"), float("nan")
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.median(shares)), float(low), float(high)


def _verdict(low: float, high: float) -> Verdict:
    if np.isnan([low, high]).any():
        return "undecided"
    if low >= T.dimension_full:
        return "supported"
    return "refuted" if high <= T.dimension_half else "qualified"


def _table(evidence: Evidence, by_site: list[Dimensions], tokens: list[int]) -> Table:
    participation, ranks, two_nn, mle = (
        _column(by_site, name).T for name in ("participation", "entropy_rank", "two_nn", "mle")
    )
    jackknife = "its standard error, jackknife over documents"
    gaussian_two_nn, gaussian_mle = (_column(by_site, name) for name in ("gaussian_two_nn", "gaussian_mle"))
    return site_table(
        evidence.sites,
        cells("participation", "participation ratio (Σλ)²/Σλ², across the two halves", participation[0], UNIT),
        cells("participation_se", "its standard error, bootstrap over documents on the sample", participation[1], UNIT),
        cells("entropy_rank", "exp of the entropy of the eigenvalues", ranks[0], UNIT),
        cells("entropy_rank_se", "half the difference between the two halves of the documents", ranks[1], UNIT),
        cells("two_nn", "TwoNN dimension of up to 400 sampled tokens, one per word form", two_nn[0], UNIT),
        cells("two_nn_se", jackknife, two_nn[1], UNIT),
        cells("mle", "maximum-likelihood dimension, 16 neighbours", mle[0], UNIT),
        cells("mle_se", jackknife, mle[1], UNIT),
        cells("gaussian_two_nn", "TwoNN of Gaussian points with the same mean and covariance", gaussian_two_nn, UNIT),
        cells("gaussian_mle", "maximum likelihood for the same Gaussian points", gaussian_mle, UNIT),
        cells("tokens", "ordinary tokens behind the covariance", tokens, "tokens"),
    )


def _controls(evidence: Evidence, full: int) -> tuple[Control, ...]:
    shares = {}
    if RANDOM in evidence[COVARIANCES]:
        powers = [spectrum.cross_power for spectrum in spectra(evidence, RANDOM, halves=False).values()]
        shares[RANDOM] = float(np.median(1 / np.array(powers))) / full
    shares["Gaussian vectors, normalised"] = _isotropic(evidence) / full
    return tuple(Control(name, share, float("nan"), float("nan")) for name, share in shares.items())


def _isotropic(evidence: Evidence) -> float:
    """The participation ratio of Gaussian vectors through the same norm: what filling the space looks like."""
    import torch

    norm = next(iter(evidence.anatomy.norms.values()))
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = norm.direction(torch.randn(6 * norm.d, norm.d, generator=generator)).double()
    first, second = (half.T.cov() for half in drawn.chunk(2))
    return float(first.trace() * second.trace() / (first * second).sum())


def _reading(verdict: Verdict, by_site: list[Dimensions], value: float, full: int) -> str:
    if verdict == "undecided":
        return "Too few documents for an interval. Give more text."
    rank = say(_median(by_site, "entropy_rank") / full, ".0%")
    near, gaussian = say(_median(by_site, "two_nn")), say(_median(by_site, "gaussian_two_nn"))
    return (
        f"The features use {say(value, '.1%')} of d − 2 = {full} dimensions by participation ratio, {rank} by entropy "
        f"rank. Near a token TwoNN counts {near} coordinates; for a Gaussian of the same covariance, {gaussian}."
    )


def _quantities(evidence: Evidence, by_site: list[Dimensions], full: int) -> tuple[Quantity, ...]:
    def band(name: str) -> Floats:
        value, error = _column(by_site, name).T
        return np.stack([value, value - 1.96 * error, value + 1.96 * error], -1)

    sites, theory = evidence.sites, {f"d − 2 = {full}": np.full(len(by_site), float(full))}
    rank = {"entropy rank": _column(by_site, "entropy_rank")[:, 0]}
    near = {"Gaussian, same covariance": _column(by_site, "gaussian_two_nn"), "MLE": _column(by_site, "mle")[:, 0]}
    meaning, logs = "axes that share the variance", ("value",)
    return (
        line("participation ratio", meaning, UNIT, "site", sites, band("participation"), rank, theory, logs),
        line("TwoNN dimension", "coordinates near a token", UNIT, "site", sites, band("two_nn"), near, logs=logs),
    )
