"""Does the norm take two dimensions away?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    median_defined,
    missing_interval,
    over_twins,
    undecided,
    weighed,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.sphere.across_sites import across_sites, by_site, defined_median, drawn_interval
from armillary.probes.sphere.spectra.dimension_estimates import Dimensions, dimensions, inverse, participations
from armillary.probes.sphere.spectra.site_spectra import spectra
from armillary.results import (
    Claim,
    Control,
    Finding,
    Part,
    Quantity,
    Rewording,
    RuleChange,
    Statistic,
    Table,
    Verdict,
    Why,
    say,
)

UNIT = "dimensions"
CONTROL_SITES = 5
GAUSSIANS = 5
CHANGE = "change by the norm, participation ratio of z − of x, median site"
EXPECTED = {-2: "S3", -1: "one constraint", 0: "none"}


@dataclass(frozen=True)
class EffectiveDimension:
    """The dimension of z less that of x, by three estimates, against S3's −2."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.dimension",
        chapter="A",
        statement="The norm reduces the effective dimension of the features by two.",
        source="S3",
        question="Count how many directions tokens use, before a norm and after it. Are there two fewer after it?",
        definition=(
            "The number of dimensions that tokens use after a norm, minus the number that the same tokens use before "
            "it, at the median site. S3 predicts −2: one for the plane and one for the constant length. −1 would be "
            "one constraint, 0 none.\n"
            "Dimensions are counted in three ways.\n"
            "Participation ratio (the statistic): (Σλ)²/Σλ² of the covariance's eigenvalues λ, the effective number "
            "of equally strong axes. Σλ² is estimated from pairs of tokens of different documents, because the "
            "covariance of few tokens overestimates it.\n"
            "Rank: axes with any variance, above 1e-6 of the mean.\n"
            "TwoNN: the dimension near a token, estimated from its two nearest tokens (one token per word form). With "
            "few tokens it comes out too low.\n"
            "How many of d − 2 dimensions tokens fill after the norm is reported but decides nothing (d is the width "
            "of the model), because S3's d − 2 is an upper bound."
        ),
        control=(
            "random initialisation, several times; Gaussian vectors through the norm (−1 under LayerNorm, 0 under "
            "RMSNorm); for TwoNN after the norm a Gaussian with the same mean and covariance"
        ),
        rule=(
            f"Three parts, one per way of counting, each comparing the change with −{T.dimension_removed:.0f}. The "
            "weakest decides, because S3 claims the change for any way of counting.\n"
            f"Supported if the whole interval of the change is within −{T.dimension_removed:.0f} ± "
            f"{T.dimension_within}.\n"
            "Refuted if the whole interval is outside.\n"
            "Undecided if the interval spans a limit or is missing.\n"
            "For the rank, the interval runs from the smallest to the largest change among all documents and either "
            "half of them."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "the claim was that features fill d − 2 dimensions, which S3 does not say: it says that the norm takes "
                "two away; one bootstrap for all intervals, with the guard for few documents",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "69115479da3b", 1),
            Rewording("2026-11-18", "97b29b80d77f", 1),
            Rewording("2026-11-19", "206efa30a639", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        if not all(spectrum.values.any() for spectrum in spectra(evidence, MODEL).values()):
            reading = "At a norm all ordinary tokens give one vector, which fills no dimension. Give more text, with "
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, f"{reading}different words.")
        sites = dimensions(evidence)
        tokens = [spectrum.tokens for spectrum in spectra(evidence, MODEL).values()]
        full = evidence.anatomy.d - 2
        change = _change(evidence, np.stack([site.participation for site in sites], 1))
        two_nn = across_sites(evidence, np.stack([site.two_nn for site in sites]), _two_nn_change, defined_median)
        parts = (
            _part("participation ratio", change, sites, _participations(sites)),
            _part("rank", _rank_change(sites), sites, np.array([site.ranks[0] for site in sites])),
            _part("TwoNN", two_nn, sites, np.array([inverse(site.two_nn.sum(0)) for site in sites])),
        )
        return Finding(
            claim=self.claim,
            **weighed(parts, _reading(parts, sites, full)),
            statistic=Statistic(CHANGE, *change, UNIT),
            n=min(tokens),
            controls=_controls(evidence),
            headline=_headline(parts),
            table=_table(evidence, sites, tokens),
            quantities=_quantities(evidence, sites, full),
        )


def _participations(sites: Sequence[Dimensions]) -> Floats:
    """[site, (z, x)]."""
    return np.array([site.participation[0] for site in sites])


def _change(evidence: Evidence, participation: Floats) -> Interval:
    """The change at the median site from [1 + draw, site, (z, x)]."""
    return drawn_interval(evidence, np.median(participation[..., 0] - participation[..., 1], axis=1))


def _two_nn_change(sums: Floats) -> Floats:
    """From sums [draw, site, (z, x), (points, logs)]."""
    values = inverse(sums)
    return np.asarray(values[..., 0] - values[..., 1])


def _rank_change(sites: Sequence[Dimensions]) -> Interval:
    """The median change over all documents, and in the two halves of them; NaN where there are too few tokens."""
    changes = np.array([site.ranks[:, 0] - site.ranks[:, 1] for site in sites])
    value, *halves = (median_defined(column) for column in changes.T)
    # Halves of a sample can be too small for a rank where the whole is not.
    defined = [half for half in halves if not np.isnan(half)] or [value]
    return value, min(value, *defined), max(value, *defined)


def _verdict(interval: Interval) -> Verdict:
    least, most = (above(interval, -T.dimension_removed + side * T.dimension_within) for side in (-1, 1))
    if least is False or most is True:
        return "refuted"
    return "supported" if least is True and most is False else "undecided"


def _part(name: str, interval: Interval, sites: Sequence[Dimensions], values: Floats) -> Part:
    """One way of counting, from its change and its values [site, (z, x)]."""
    after, before = (median_defined(column) for column in values.T)
    statistic = Statistic(f"change by the norm, {name}, median site", *interval, UNIT)
    reading = f"By {name}, tokens use {say(before, '.3g')} dimensions before the norm and {say(after, '.3g')} after it "
    reading += f"(median site): a change of {say(interval[0], '+.2g')} ({say(interval[1], '+.2g')} to "
    reading += f"{say(interval[2], '+.2g')})."
    verdict = _verdict(interval)
    why = None
    if verdict == "undecided":
        inside = [f"{say(n, '.0f')} ({who})" for n, who in EXPECTED.items() if interval[1] <= n <= interval[2]]
        reading += f" The interval contains {' and '.join(inside)}." if inside else ""
        why = Why.TOO_LITTLE_TEXT if np.isnan(interval[0]) else missing_interval(*interval)
    return Part(name, verdict, reading, statistic, why=why)


def _reading(parts: Sequence[Part], sites: Sequence[Dimensions], full: int) -> str:
    used = say(median_defined(site.all_tokens for site in sites) / full, ".0%")
    near = median_defined(float(inverse(site.two_nn.sum(0))[0]) for site in sites)
    gaussian = median_defined(site.gaussian_two_nn for site in sites)
    described = f"After the norm, features use {used} of d − 2 = {full} dimensions by participation ratio. "
    described += f"Near a token TwoNN finds {say(near)}; for a Gaussian of the same covariance, {say(gaussian)}."
    return " ".join([*(part.reading for part in parts), described])


def _headline(parts: Sequence[Part]) -> str:
    changes = [f"{say(part.statistic.value, '+.2g')} by {part.name}" for part in parts if part.statistic is not None]
    return f"The norm changes the number of dimensions by {', '.join(changes)} (claimed −2)"


def _two_nn_intervals(evidence: Evidence, sites: Sequence[Dimensions], which: int) -> Floats:
    return by_site(evidence, np.stack([site.two_nn[:, which] for site in sites]), inverse)


def _participation_intervals(evidence: Evidence, sites: Sequence[Dimensions], which: int) -> Floats:
    return np.array([drawn_interval(evidence, site.participation[:, which]) for site in sites])


def _table(evidence: Evidence, sites: Sequence[Dimensions], tokens: list[int]) -> Table:
    ranks = np.array([site.ranks[0] for site in sites])
    after, before = (_participation_intervals(evidence, sites, which) for which in (0, 1))
    near, near_before = (_two_nn_intervals(evidence, sites, which) for which in (0, 1))
    mle = by_site(evidence, np.stack([site.mle for site in sites]), inverse)
    return site_table(
        evidence.sites,
        interval_cells("participation", "participation ratio of z, sampled tokens", after, UNIT),
        interval_cells("participation_before", "of x, before the norm", before, UNIT),
        cells("rank", "axes of z with any variance, sampled tokens; empty if too few", ranks[:, 0], UNIT),
        cells("rank_before", "of x, before the norm", ranks[:, 1], UNIT),
        interval_cells("two_nn", "TwoNN dimension of z, sampled tokens, one per word form", near, UNIT),
        interval_cells("two_nn_before", "of x, before the norm", near_before, UNIT),
        cells(
            "participation_all",
            "participation ratio of z over all tokens, across the two halves",
            [site.all_tokens for site in sites],
            UNIT,
        ),
        cells("entropy_rank", "exp of the entropy of the eigenvalues of z", [s.entropy_rank for s in sites], UNIT),
        interval_cells("mle", "maximum-likelihood dimension of z, 16 neighbours", mle, UNIT),
        cells(
            "gaussian_two_nn",
            "TwoNN of Gaussian points with the mean and covariance of z",
            [site.gaussian_two_nn for site in sites],
            UNIT,
        ),
        cells("gaussian_mle", "maximum likelihood for the same Gaussian points", [s.gaussian_mle for s in sites], UNIT),
        cells("tokens", "ordinary tokens behind the covariance", tokens, "tokens"),
    )


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    sites = evidence.sites[:: -(-len(evidence.sites) // CONTROL_SITES)]
    controls = [Control("Gaussian vectors through the norm", *_gaussian_change(evidence))]
    if RANDOM in evidence.controls(SAMPLES):
        random = evidence.over_twins(lambda arm: _change(evidence, participations(evidence, arm, sites)))
        controls.append(Control(RANDOM, *random))
    return tuple(controls)


def _gaussian_change(evidence: Evidence) -> Interval:
    """What a norm does to vectors without any structure, and where another draw of them is expected."""
    import torch

    norm = next(iter(evidence.anatomy.norms.values()))
    generator = torch.Generator().manual_seed(evidence.seed)
    changes = []
    for _ in range(GAUSSIANS):
        x = torch.randn(6 * norm.d, norm.d, generator=generator, dtype=torch.float64)
        halves = [[half.T.cov() for half in points.chunk(2)] for points in (norm.direction(x), x)]
        after, before = (float(c.trace() * e.trace() / (c * e).sum()) for c, e in halves)
        changes.append((after - before,) * 3)
    value, low, high = over_twins(changes).tolist()
    return value, low, high


def _quantities(evidence: Evidence, sites: Sequence[Dimensions], full: int) -> tuple[Quantity, ...]:
    theory = {f"d − 2 = {full}": np.full(len(sites), float(full))}
    after, before = (_participation_intervals(evidence, sites, which) for which in (0, 1))
    near, near_before = (_two_nn_intervals(evidence, sites, which) for which in (0, 1))
    gaussian = np.array([site.gaussian_two_nn for site in sites])
    names, meaning, logs = evidence.sites, "axes that share the variance, after the norm", ("value",)
    controls = {"before the norm": near_before[:, 0], "Gaussian, same covariance": gaussian}
    return (
        line(
            "participation ratio", meaning, UNIT, "site", names, after, {"before the norm": before[:, 0]}, theory, logs
        ),
        line("TwoNN dimension", "coordinates near a token", UNIT, "site", names, near, controls, logs=logs),
    )
