"""Does the covariance of normalised features have two eigenvalues that vanish?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Floats, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.site_spectra import FLOAT32_NOISE, Spectrum, spectra, vanishing
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Norm

CLAIMED = 2
COLUMNS = (
    Column("site", "norm site"),
    Column("norm", "layernorm or rmsnorm"),
    Column("zeros_z", "eigenvalues of Cov(z) below 1e-6 of the median", "eigenvalues"),
    Column("zeros_z_low", "the smaller count over the two halves of the documents", "eigenvalues"),
    Column("zeros_z_high", "the larger count over the two halves of the documents", "eigenvalues"),
    Column("zeros_y", "eigenvalues of Cov(y), y = γz + β, below 1e-6 of the median", "eigenvalues"),
    Column("algebra", "what linear algebra says: 1 for LayerNorm (the plane), 0 for RMSNorm", "eigenvalues"),
    Column("smallest", "smallest eigenvalue of Cov(z) over the median"),
    Column("second", "second smallest over the median"),
    Column("third", "third smallest over the median"),
    Column("ones_variance", "variance of z along 1 over the median eigenvalue: LayerNorm's null vector"),
    Column("inverse_gain_variance", "variance of y along 1/γ over the median eigenvalue of Cov(z) times mean γ²"),
    Column("radial_variance", "variance of z along its own mean direction over the median eigenvalue"),
    Column("tokens", "ordinary tokens behind the covariance", "tokens"),
)


@dataclass(frozen=True)
class TwoZeros:
    """Eigenvalues of Cov(z) and Cov(y): how many vanish, against S3's two and algebra's one or none."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.two-zeros",
        chapter="A",
        statement="The covariance of post-norm activations has two eigenvalues orders of magnitude below the rest.",
        source="S3",
        definition=(
            "Eigenvalues of Cov(z) and of Cov(y) at every site over ordinary tokens; how many lie below 1e-6 of the "
            "median. S3 predicts 2. Linear algebra says 1 under LayerNorm (only the plane is a linear constraint; null "
            "vector 1 for z, 1/γ for y) and 0 under RMSNorm: constant length is not a linear constraint, so it leaves "
            "no zero eigenvalue. The interval is the smaller and the larger count of two halves of the documents."
        ),
        control="normalised Gaussian vectors; random initialisation; the two halves of the documents",
        rule=(
            f"Supported: exactly 2 at ≥ {T.sites_most:.0%} of sites. Refuted: at ≤ {T.sites_few:.0%}. Qualified "
            f"between. Undecided with fewer than {T.tokens_per_axis:.0f} tokens per axis, which make zeros of their own."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("spectra",)

    def conclude(self, evidence: Evidence) -> Finding:
        found, norms = spectra(evidence, MODEL), evidence.anatomy.norms
        rows = [_row(site, norms[site], found[site]) for site in evidence.sites]
        counts = np.array([row["zeros_z"] for row in rows], dtype=float)
        value = float(np.median(counts))
        low, high = (float(np.median([row[end] for row in rows])) for end in ("zeros_z_low", "zeros_z_high"))
        enough = all(row["tokens"] >= T.tokens_per_axis * evidence.anatomy.d for row in rows)
        # Few distinct tokens span few axes, and then most eigenvalues vanish for want of text.
        enough = enough and all(
            np.median(one.values) > 10 * FLOAT32_NOISE * one.values.mean() for one in found.values()
        )
        verdict = _verdict(float(np.mean(counts == CLAIMED)), enough)
        algebra = float(np.median([row["algebra"] for row in rows]))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("vanishing eigenvalues of Cov(z), median site", value, low, high),
            n=min(row["tokens"] for row in rows),
            controls=_controls(evidence),
            reading=_reading(evidence, counts, verdict, rows),
            headline=_headline(verdict, value, algebra, counts),
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(evidence, rows),
        )


def _row(site: str, norm: "Norm", found: Spectrum) -> dict[str, Any]:
    cov, values = found.covariance, found.values
    # Text of two words has no median variance to measure by.
    middle = float(np.median(values)) or float("nan")
    gain = norm.gain.detach().double().cpu().numpy()
    cov_y = cov * gain[:, None] * gain[None, :]
    halves = found.zeros_halves
    tilted = np.divide(1, gain, out=np.zeros_like(gain), where=gain != 0)
    return {
        "site": site,
        "norm": norm.kind,
        "zeros_z": found.zeros,
        "zeros_z_low": min(halves) if halves else float("nan"),
        "zeros_z_high": max(halves) if halves else float("nan"),
        "zeros_y": _zeros_after_gain(found, cov_y, gain),
        "algebra": _algebra(norm),
        "smallest": float(values[0] / middle),
        "second": float(values[1] / middle),
        "third": float(values[2] / middle),
        "ones_variance": _along(cov, np.ones(norm.d)) / middle,
        "inverse_gain_variance": _along(cov_y, tilted) / (middle * float(np.mean(gain**2))),
        "radial_variance": _along(cov, found.mean) / middle,
        "tokens": found.tokens,
    }


def _zeros_after_gain(found: Spectrum, cov_y: Floats, gain: Floats) -> int:
    """The count for Cov(y) = Γ Cov(z) Γ.

    Ostrowski's inequality keeps each eigenvalue within [min γ², max γ²] of its own in Cov(z), which settles most sites
    without a second decomposition.
    """
    from armillary.geometry.spectrum import eigenvalues

    smallest, largest, middle = np.min(gain**2), np.max(gain**2), np.median(found.values)
    surely_not = int((found.values * smallest >= T.zero_eigenvalue * middle * largest).sum())
    if found.zeros + surely_not == len(found.values):
        return found.zeros
    return vanishing(cov_y, eigenvalues(cov_y).values.numpy())


def _algebra(norm: "Norm") -> int:
    return 1 if norm.kind == "layernorm" else 0


def _along(cov: Floats, direction: Floats) -> float:
    return float(direction @ cov @ direction / (direction @ direction))


def _verdict(share: float, enough: bool) -> Verdict:
    if not enough:
        return "undecided"
    if share >= T.sites_most:
        return "supported"
    return "refuted" if share <= T.sites_few else "qualified"


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    import torch

    from armillary.geometry.spectrum import near_zero_count

    norm = next(iter(evidence.anatomy.norms.values()))
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = norm.direction(torch.randn(4 * norm.d, norm.d, generator=generator, dtype=torch.float64))
    gaussian = float(near_zero_count(torch.linalg.eigvalsh(drawn.T.cov()), T.zero_eigenvalue))
    made = [Control(f"normalised Gaussians ({norm.kind})", gaussian, gaussian, gaussian)]
    if RANDOM in evidence.records:
        found = spectra(evidence, RANDOM, halves=False).values()
        value = float(np.median([one.zeros for one in found]))
        made.append(Control(RANDOM, value, value, value))
    return tuple(made)


def _reading(evidence: Evidence, counts: Floats, verdict: Verdict, rows: list[dict[str, Any]]) -> str:
    if verdict == "undecided":
        need = int(T.tokens_per_axis * evidence.anatomy.d)
        return f"Needs {need} ordinary tokens of many words for {evidence.anatomy.d} axes; give more text (--tokens)."
    kinds = sorted({row["norm"] for row in rows})
    agree = int(sum(row["zeros_z"] == row["algebra"] for row in rows))
    why = {
        "layernorm": "under LayerNorm only the plane ⟂ 1 is a linear constraint (one zero, along 1)",
        "rmsnorm": "under RMSNorm no constraint is linear (no zero)",
    }
    after = [row["site"] for row in rows if row["zeros_y"] != row["zeros_z"]]
    flat = f" γ adds or hides zeros of Cov(y) at {name_sites(after)} (flat axes)." if after else ""
    two = [row["site"] for row in rows if row["zeros_z"] == CLAIMED]
    if verdict != "refuted":
        return f"Two vanish at {name_sites(two)}, beyond what the norm brings: this model holds a second linear constraint.{flat}"
    said = "; ".join(why[kind] for kind in kinds)
    return (
        f"Constant length is not a linear constraint: {said}; {agree} of {len(counts)} sites show algebra's count "
        f"for z.{flat}"
    )


def _headline(verdict: Verdict, value: float, algebra: float, counts: Floats) -> str:
    if verdict == "undecided":
        return "Too few tokens to tell a vanishing eigenvalue from an unsampled one"
    many = {0: "No eigenvalue vanishes", 1: "One eigenvalue vanishes", 2: "Two eigenvalues vanish"}
    said = many.get(int(value), f"{value:g} eigenvalues vanish")
    two = int((counts == CLAIMED).sum())
    return f"{said} in the median site ({two} of {len(counts)} sites have two): S3 predicts 2, linear algebra {algebra:.0f}"


def _quantities(evidence: Evidence, rows: list[dict[str, Any]]) -> tuple[Quantity, ...]:
    coords = {"site": evidence.sites}

    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], dtype=float)

    return (
        Quantity(
            "smallest eigenvalues of Cov(z)",
            "smallest, over the median eigenvalue",
            "of the median",
            ("site",),
            coords,
            column("smallest"),
            controls={"second smallest": column("second"), "third": column("third")},
            theory={"counts as zero: 1e-6": np.full(len(rows), T.zero_eigenvalue)},
            logs=("value",),
        ),
        Quantity(
            "vanishing eigenvalues",
            "count below 1e-6 of the median",
            "eigenvalues",
            ("site",),
            coords,
            column("zeros_z"),
            column("zeros_z_low"),
            column("zeros_z_high"),
            theory={"S3: 2": np.full(len(rows), 2.0), "algebra": column("algebra")},
        ),
    )
