"""In how many dimensions do normalised features effectively lie?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Floats
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.site_sample import Sampled, sampled
from armillary.probes.sphere.site_spectra import Spectrum, spectra
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

BLOCKS = 6
NEIGHBOURS = 16
# Neighbour distances grow as the square of the points; the sample is in random order, so its head is a sample too.
POINTS = 400
COLUMNS = (
    Column("site", "norm site"),
    Column("participation", "participation ratio (Σλ)²/Σλ², across the two halves of the documents", "dimensions"),
    Column("participation_se", "its standard error, bootstrap over documents on the sample", "dimensions"),
    Column("entropy_rank", "exp of the entropy of the eigenvalues", "dimensions"),
    Column("entropy_rank_se", "half the difference between the two halves of the documents", "dimensions"),
    Column("two_nn", "TwoNN intrinsic dimension of up to 400 sampled tokens, one of each word form", "dimensions"),
    Column("two_nn_se", "its standard error, jackknife over documents", "dimensions"),
    Column("mle", "maximum-likelihood intrinsic dimension, 16 neighbours", "dimensions"),
    Column("mle_se", "its standard error, jackknife over documents", "dimensions"),
    Column("gaussian_two_nn", "TwoNN of as many Gaussian points with the same mean and covariance", "dimensions"),
    Column("gaussian_mle", "maximum likelihood for the same Gaussian points", "dimensions"),
    Column("tokens", "ordinary tokens behind the covariance", "tokens"),
)


@dataclass(frozen=True)
class Dimension:
    """Four estimators of dimension per site, beside a Gaussian of the same covariance."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.dimension",
        chapter="A",
        statement="Normalised features effectively fill d − 2 dimensions.",
        source="S3",
        definition=(
            "Participation ratio, entropy rank, TwoNN and maximum-likelihood intrinsic dimension at every site. The "
            "statistic is participation ratio / (d − 2), median over sites; its tr C² is taken across the two halves of "
            "the documents, which frees it of the bias that few tokens bring. Participation ratio and entropy rank "
            "count axes; TwoNN and maximum likelihood count coordinates near a token, and saturate with few tokens, so "
            "they are read against a Gaussian of the same covariance and size."
        ),
        control="random initialisation; normalised Gaussian vectors; for TwoNN a Gaussian with the same mean and covariance",
        rule=(
            f"Supported: the interval of the share lies above {T.dimension_full}. Refuted: below {T.dimension_half}. "
            "Qualified between. Undecided without an interval."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("spectra", "sample")

    def conclude(self, evidence: Evidence) -> Finding:
        found = spectra(evidence, MODEL)
        clouds = {site: sampled(record) for site, record in evidence.records[MODEL].items()}
        draws = _draws(evidence, found, clouds)
        column = {site: draws[:, i] for i, site in enumerate(evidence.sites)}
        rows = list(
            over_sites(
                evidence.sites, lambda site: _row(evidence, site, found[site], clouds[site], column[site])
            ).values()
        )
        full = evidence.anatomy.d - 2
        value, low, high = _headline_interval(rows, draws, full)
        verdict = _verdict(low, high)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("participation ratio / (d − 2), median site", value, low, high),
            n=min(one.tokens for one in found.values()),
            controls=_controls(evidence, rows, full),
            reading=_reading(evidence, verdict, rows, value),
            headline=f"Features use {_of(rows, 'participation'):.3g} of {full} dimensions (participation ratio, "
            f"median site); near a token {_of(rows, 'two_nn'):.2g}",
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(evidence, rows),
        )


def _of(rows: list[dict[str, Any]], name: str) -> float:
    known = [row[name] for row in rows if not np.isnan(row[name])]
    return float(np.median(known)) if known else float("nan")


def _draws(evidence: Evidence, found: dict[str, Spectrum], clouds: dict[str, Sampled]) -> Floats:
    """[draw, site]: the participation ratio over its own value when documents are redrawn, from the sample.

    tr C² is a sum over pairs of tokens from different documents of squared inner products, so a redrawn value needs
    the pair sums of documents alone.
    """
    assert evidence.corpus is not None
    groups = evidence.corpus.groups
    weights = np.random.default_rng(evidence.seed).multinomial(groups, np.full(groups, 1 / groups), size=400)
    weights = np.vstack([np.ones(groups), weights]).astype(float)
    columns = []
    for site, one in found.items():
        cloud = clouds[site]
        away = cloud.z.numpy() - one.mean
        member = np.zeros((groups, len(cloud)))
        member[cloud.document % groups, np.arange(len(cloud))] = 1
        pairs = member @ np.square(away @ away.T) @ member.T
        np.fill_diagonal(pairs, 0)
        size, power = member.sum(1), member @ np.square(away).sum(1)
        crossed = np.outer(size, size)
        np.fill_diagonal(crossed, 0)
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw of one document alone has no pairs
            square = np.einsum("bg,gh,bh->b", weights, pairs, weights)
            square /= np.einsum("bg,gh,bh->b", weights, crossed, weights)
            ratio = (weights @ power / (weights @ size)) ** 2 / square
        columns.append(ratio[1:] / ratio[0])
    return np.stack(columns, 1)


def _row(evidence: Evidence, site: str, one: Spectrum, cloud: Sampled, draws: Floats) -> dict[str, Any]:
    from armillary.geometry.spectrum import entropy_rank

    ranks = [entropy_rank(half) for half in one.halves]
    participation = 1 / one.cross_power
    words = cloud.distinct()
    near = _intrinsic(words.z[:POINTS], words.document[:POINTS])
    gaussian = _gaussian(evidence, one, min(len(words), POINTS))
    return {
        "site": site,
        "participation": participation,
        "participation_se": participation * float(np.std(draws[np.isfinite(draws)])),
        "entropy_rank": entropy_rank(one.values),
        "entropy_rank_se": abs(ranks[0] - ranks[1]) / 2 if ranks else float("nan"),
        "two_nn": near[0],
        "two_nn_se": near[1],
        "mle": near[2],
        "mle_se": near[3],
        "gaussian_two_nn": gaussian[0],
        "gaussian_mle": gaussian[2],
        "tokens": one.tokens,
    }


def _intrinsic(points: Any, documents: Any, jackknife: bool = True) -> tuple[float, float, float, float]:
    """TwoNN and maximum likelihood, each with its standard error over blocks of documents."""
    import torch

    from armillary.geometry.dimension import mle_dimension, pairwise_sq_distances, two_nn
    from armillary.geometry.resample import jackknife_se

    if len(points) < 4 * NEIGHBOURS:
        nothing = float("nan")
        return nothing, nothing, nothing, nothing
    distances = pairwise_sq_distances(points)
    try:
        value = (two_nn(distances).value, mle_dimension(distances, NEIGHBOURS).value)
    except ValueError:  # nearly all points coincide
        nothing = float("nan")
        return nothing, nothing, nothing, nothing
    if not jackknife:
        return value[0], float("nan"), value[1], float("nan")
    left = []
    for block in range(BLOCKS):
        keep = torch.from_numpy(documents % BLOCKS != block)
        if bool(keep.all()) or int(keep.sum()) < 2 * NEIGHBOURS:
            continue
        try:
            left.append((two_nn(distances, keep).value, mle_dimension(distances, NEIGHBOURS, keep).value))
        except ValueError:
            continue
    errors = jackknife_se(np.array(left)) if len(left) > 1 else np.full(2, np.nan)
    return value[0], float(errors[0]), value[1], float(errors[1])


def _gaussian(evidence: Evidence, one: Spectrum, count: int) -> tuple[float, float, float, float]:
    """The same estimators on Gaussian points with the site's own mean and covariance."""
    import torch

    cov = torch.from_numpy(one.covariance)
    # Cholesky wants no exact zero, and LayerNorm's plane is one: lift it far below anything that counts.
    lift = (1e-6 * cov.trace() / len(cov)).clamp_min(1e-12)
    factor, failed = torch.linalg.cholesky_ex(cov + lift * torch.eye(len(cov), dtype=cov.dtype))
    if int(failed):  # a handful of distinct points: rounding is larger than the lift
        values, vectors = torch.linalg.eigh(cov)
        factor = vectors * values.clamp_min(0).sqrt()
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = torch.randn(count, len(cov), generator=generator, dtype=torch.float64)
    return _intrinsic(drawn @ factor.T + torch.from_numpy(one.mean), None, False)


def _headline_interval(rows: list[dict[str, Any]], draws: Floats, full: int) -> tuple[float, float, float]:
    shares = np.array([row["participation"] for row in rows]) / full
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


def _controls(evidence: Evidence, rows: list[dict[str, Any]], full: int) -> tuple[Control, ...]:
    made = []
    if RANDOM in evidence.records:
        powers = [one.cross_power for one in spectra(evidence, RANDOM, halves=False).values()]
        value = float(np.median(1 / np.array(powers))) / full
        made.append(Control(RANDOM, value, float("nan"), float("nan")))
    made.append(_isotropic(evidence, full))
    return tuple(made)


def _isotropic(evidence: Evidence, full: int) -> Control:
    """The same statistic for Gaussian vectors through the same norm: what filling the space would look like."""
    import torch

    norm = next(iter(evidence.anatomy.norms.values()))
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = norm.direction(torch.randn(6 * norm.d, norm.d, generator=generator)).double()
    first, second = (half.T.cov() for half in drawn.chunk(2))
    share = float(first.trace() * second.trace() / (first * second).sum()) / full
    return Control("Gaussian vectors, normalised", share, float("nan"), float("nan"))


def _reading(evidence: Evidence, verdict: Verdict, rows: list[dict[str, Any]], value: float) -> str:
    if verdict == "undecided":
        return "Too few documents for an interval; give more text."
    return (
        f"{value:.1%} of the d − 2 = {evidence.anatomy.d - 2} axes by participation ratio, "
        f"{_of(rows, 'entropy_rank') / (evidence.anatomy.d - 2):.0%} by entropy rank; near a token TwoNN finds "
        f"{_of(rows, 'two_nn'):.3g} coordinates where a Gaussian of the same covariance shows "
        f"{_of(rows, 'gaussian_two_nn'):.3g}."
    )


def _quantities(evidence: Evidence, rows: list[dict[str, Any]]) -> tuple[Quantity, ...]:
    coords = {"site": evidence.sites}

    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], dtype=float)

    def quantity(name: str, column_name: str, meaning: str, controls: dict[str, Floats]) -> Quantity:
        values, error = column(column_name), 1.96 * column(f"{column_name}_se")
        theory = {f"d − 2 = {evidence.anatomy.d - 2}": np.full(len(rows), float(evidence.anatomy.d - 2))}
        return Quantity(
            name,
            meaning,
            "dimensions",
            ("site",),
            coords,
            values,
            values - error,
            values + error,
            controls,
            theory if column_name == "participation" else {},
            ("value",),
        )

    return (
        quantity(
            "participation ratio",
            "participation",
            "axes that share the variance",
            {"entropy rank": column("entropy_rank")},
        ),
        quantity(
            "TwoNN dimension",
            "two_nn",
            "coordinates near a token",
            {"Gaussian, same covariance": column("gaussian_two_nn"), "MLE": column("mle")},
        ),
    )
