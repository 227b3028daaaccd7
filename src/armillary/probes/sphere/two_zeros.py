"""Does the covariance of normalised features have two eigenvalues that vanish?"""

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
    Flags,
    Floats,
    Interval,
    T,
    by_share,
    median_defined,
    name_sites,
    over_sites,
)
from armillary.probes.machinery.tables import cells, line, site_table
from armillary.probes.sphere.across_sites import decided, flagged
from armillary.probes.sphere.spectra.site_spectra import (
    FLOAT32_NOISE,
    Spectrum,
    sampled_rank,
    spectra,
    vanishing_after_gain,
)
from armillary.results import Claim, Control, Finding, Quantity, Rewording, RuleChange, Statistic, Table, Verdict, Why

CLAIMED = 2
LINEAR_CONSTRAINTS = {
    "layernorm": "LayerNorm has one linear constraint, the plane ⟂ 1",
    "rmsnorm": "RMSNorm has no linear constraint",
}


@dataclass(frozen=True)
class TwoZeros:
    """How many eigenvalues of Cov(z) and Cov(y) vanish, compared with S3's two and linear algebra's one or none."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.two-zeros",
        chapter="A",
        statement="The covariance of post-norm activations has two eigenvalues orders of magnitude below the rest.",
        source="S3",
        question=(
            "A norm is said to take away two directions in which tokens could vary. Does the spread of tokens "
            "really vanish in two directions, or in one, or in none?"
        ),
        definition=(
            "The number of directions in which tokens hardly vary after a norm: eigenvalues of Cov(z) below 1e-6 of "
            "the median eigenvalue, over ordinary tokens, at every norm. Where axes differ widely in size, float32 "
            "rounding error is allowed for. The same is counted for y = γz + β.\n"
            "The claim predicts 2: one for the plane and one for the constant length. But only a linear constraint "
            "gives a zero eigenvalue. The plane is linear, the constant length is not.\n"
            "So linear algebra predicts 1 under LayerNorm (along 1 for z, along 1/γ for y), and 0 under RMSNorm.\n"
            "The interval runs from the smaller to the larger count of the two halves of the documents. At random "
            "initialisation, zeros are counted on sampled tokens."
        ),
        control=("normalised Gaussian vectors; random initialisation, several times; the two halves of the documents"),
        rule=(
            "The number of vanishing eigenvalues at each norm is compared with the claimed 2.\n"
            f"Supported if exactly 2 vanish at {T.sites_most:.0%} or more of the norms.\n"
            f"Refuted if exactly 2 vanish at {T.sites_few:.0%} or fewer.\n"
            "Qualified otherwise.\n"
            "Undecided if the verdict could be changed by norms whose count differs between all documents and either "
            f"half of them. Also undecided with fewer than {T.tokens_per_axis:.0f} ordinary tokens per axis at a norm, "
            "or with so few different words that most eigenvalues vanish: both create zeros of their own."
        ),
        kind="behaviour",
        changes=(RuleChange("2026-11-16", "undecided where the two halves of the documents disagree and it matters"),),
        rewordings=(
            Rewording("2026-11-18", "ea1e3c9e0931", 1),
            Rewording("2026-11-18", "68138e924e90", 1),
            Rewording("2026-11-19", "627ba8748608", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        by_site = list(spectra(evidence, MODEL).values())
        counts = np.array([spectrum.zeros for spectrum in by_site])
        ends = np.array(
            [(min(s.zeros_halves), max(s.zeros_halves)) if s.zeros_halves else (np.nan,) * 2 for s in by_site]
        )
        predicted = np.array([float(norm.kind == "layernorm") for norm in evidence.anatomy.norms.values()])
        zeros_y = _zeros_after_gain(evidence, by_site)
        value, low, high = (float(np.median(column)) for column in (counts, ends[:, 0], ends[:, 1]))
        enough = _enough_text(evidence, by_site)
        verdict = _verdict(counts, ends) if enough else "undecided"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("vanishing eigenvalues of Cov(z), median site", value, low, high),
            n=min(spectrum.tokens for spectrum in by_site),
            controls=_controls(evidence),
            reading=_reading(evidence, enough, verdict, counts, zeros_y, predicted),
            headline=_headline(enough, counts, predicted),
            table=_table(evidence, by_site, ends, zeros_y, predicted),
            quantities=_quantities(evidence, by_site, ends, predicted),
            why=(Why.SPANS_LIMIT if enough else Why.TOO_LITTLE_TEXT) if verdict == "undecided" else None,
        )


def _verdict(counts: Floats, ends: Floats) -> Verdict:
    """A norm surely has two if either half has, and possibly if all documents or the halves around them may have."""
    two = counts == CLAIMED
    sure: Flags = two & (np.isnan(ends) | (ends == CLAIMED)).all(1)
    possible: Flags = two | ((ends[:, 0] <= CLAIMED) & (ends[:, 1] >= CLAIMED))
    return decided(by_share, (sure,), (possible,))


def _enough_text(evidence: Evidence, by_site: list[Spectrum]) -> bool:
    """Few distinct tokens span few axes, and then most eigenvalues vanish for lack of text."""
    return all(
        spectrum.tokens >= T.tokens_per_axis * evidence.anatomy.d
        and np.median(spectrum.values) > 10 * FLOAT32_NOISE * spectrum.values.mean()
        for spectrum in by_site
    )


def _gains(evidence: Evidence) -> list[Floats]:
    return [norm.gain.detach().double().cpu().numpy() for norm in evidence.anatomy.norms.values()]


def _zeros_after_gain(evidence: Evidence, by_site: list[Spectrum]) -> Floats:
    pairs = zip(by_site, _gains(evidence), strict=True)
    return np.array([vanishing_after_gain(spectrum, gain) for spectrum, gain in pairs])


def _along(cov: Floats, direction: Floats) -> float:
    return float(direction @ cov @ direction / (direction @ direction))


def _table(evidence: Evidence, by_site: list[Spectrum], ends: Floats, zeros_y: Floats, predicted: Floats) -> Table:
    smallest = np.array([s.values[:3] / s.middle for s in by_site])
    ones, tilted, radial = [], [], []
    for s, gain in zip(by_site, _gains(evidence), strict=True):
        inverse = np.divide(1, gain, out=np.zeros_like(gain), where=gain != 0)
        cov_y = s.covariance * gain[:, None] * gain[None, :]
        ones.append(_along(s.covariance, np.ones(len(gain))) / s.middle)
        tilted.append(_along(cov_y, inverse) / (s.middle * float(np.mean(gain**2))))
        radial.append(_along(s.covariance, s.mean) / s.middle)
    unit = "eigenvalues"
    return site_table(
        evidence.sites,
        cells("norm", "layernorm or rmsnorm", [norm.kind for norm in evidence.anatomy.norms.values()]),
        cells("zeros_z", "eigenvalues of Cov(z) below 1e-6 of the median", [s.zeros for s in by_site], unit),
        cells("zeros_z_low", "the smaller count over the two halves of the documents", ends[:, 0], unit),
        cells("zeros_z_high", "the larger count over the two halves of the documents", ends[:, 1], unit),
        cells("zeros_y", "eigenvalues of Cov(y), y = γz + β, below 1e-6 of the median", zeros_y, unit),
        cells("algebra", "what linear algebra predicts: 1 for LayerNorm, 0 for RMSNorm", predicted.astype(int), unit),
        cells("smallest", "smallest eigenvalue of Cov(z) over the median", smallest[:, 0]),
        cells("second", "second smallest over the median", smallest[:, 1]),
        cells("third", "third smallest over the median", smallest[:, 2]),
        cells("ones_variance", "variance of z along 1 over the median eigenvalue: 0 under LayerNorm", ones),
        cells("inverse_gain_variance", "variance of y along 1/γ over the median eigenvalue times mean γ²", tilted),
        cells("radial_variance", "variance of z along its mean direction over the median eigenvalue", radial),
        cells("tokens", "ordinary tokens behind the covariance", [s.tokens for s in by_site], "tokens"),
    )


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    import torch

    from armillary.geometry.clouds.spectrum import near_zero_count

    norm = next(iter(evidence.anatomy.norms.values()))
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = norm.direction(torch.randn(4 * norm.d, norm.d, generator=generator, dtype=torch.float64))
    gaussian = float(near_zero_count(torch.linalg.eigvalsh(drawn.T.cov()), T.zero_eigenvalue))
    normalised = Control(f"normalised Gaussians ({norm.kind})", gaussian, gaussian, gaussian)
    random = evidence.over_twins(lambda arm: _sampled_zeros(evidence, arm))
    # A sample has too few tokens for the zeros of a wide model.
    return (normalised,) if np.isnan(random[0]) else (normalised, Control(RANDOM, *random))


def _sampled_zeros(evidence: Evidence, arm: str) -> Interval:
    """Zeros at the median site of an arm, counted on its sampled tokens."""
    samples, anatomy = evidence[SAMPLES][arm], evidence.anatomy
    ranks = over_sites(evidence.sites, lambda site: sampled_rank(samples.ordinary(anatomy, site).z))
    zeros = anatomy.d - median_defined(ranks.values())
    return zeros, zeros, zeros


def _reading(
    evidence: Evidence, enough: bool, verdict: Verdict, counts: Floats, zeros_y: Floats, predicted: Floats
) -> str:
    if not enough:
        need = int(T.tokens_per_axis * evidence.anatomy.d)
        return f"{evidence.anatomy.d} axes need {need} ordinary tokens of many words. Give more text (--tokens)."
    differs = flagged(evidence.sites, counts != zeros_y)
    flat = f" The gain γ changes the count at {name_sites(differs)} (flat axes)." if differs else ""
    if verdict == "undecided":
        return "The two halves of the documents disagree on how many eigenvalues vanish. Give more text (--tokens)."
    if verdict != "refuted":
        two = name_sites(flagged(evidence.sites, counts == CLAIMED))
        return f"Two eigenvalues vanish at {two}: there the features satisfy a second linear constraint.{flat}"
    kinds = sorted({norm.kind for norm in evidence.anatomy.norms.values()})
    linear = "; ".join(LINEAR_CONSTRAINTS[kind] for kind in kinds)
    agree = int((counts == predicted).sum())
    return (
        f"{agree} of {len(counts)} norms have the number of zeros that linear algebra predicts. Only linear "
        f"constraints give zeros, and constant length is not linear. {linear}.{flat}"
    )


def _headline(enough: bool, counts: Floats, predicted: Floats) -> str:
    if not enough:
        return "Nothing can be concluded: too few tokens to tell a vanishing eigenvalue from an unsampled one"
    value, algebra = float(np.median(counts)), float(np.median(predicted))
    names = {0.0: "No eigenvalue vanishes", 1.0: "One eigenvalue vanishes", 2.0: "Two eigenvalues vanish"}
    vanish = names.get(value, f"{value:g} eigenvalues vanish")
    two = int((counts == CLAIMED).sum())
    return f"{vanish} at the median site (two at {two} of {len(counts)}); claimed: 2, linear algebra: {algebra:.0f}"


def _quantities(evidence: Evidence, by_site: list[Spectrum], ends: Floats, predicted: Floats) -> tuple[Quantity, ...]:
    smallest, second, third = np.array([s.values[:3] / s.middle for s in by_site]).T
    sites, controls = evidence.sites, {"second smallest": second, "third": third}
    limit = {"counts as zero: 1e-6": np.full(len(sites), T.zero_eigenvalue)}
    counts = np.column_stack([[float(s.zeros) for s in by_site], ends])
    theory = {"S3: 2": np.full(len(sites), float(CLAIMED)), "linear algebra": predicted}
    name, meaning = "smallest eigenvalues of Cov(z)", "smallest, over the median eigenvalue"
    return (
        line(name, meaning, "of the median", "site", sites, smallest, controls, limit, ("value",)),
        line("vanishing eigenvalues", "below 1e-6 of the median", "eigenvalues", "site", sites, counts, theory=theory),
    )
