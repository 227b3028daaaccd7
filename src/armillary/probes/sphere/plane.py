"""Do normalised features lie in the hyperplane perpendicular to the all-ones vector?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, Evidence, Floats, mean, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

COLUMNS = (
    Column("site", "norm site"),
    Column("norm", "layernorm (centres: plane by construction) or rmsnorm (does not)"),
    Column("max_mean", "largest |mean of z's coordinates| over tokens"),
    Column("plane_ratio", "d · mean cos²(z, 1): 0 in the plane, 1 for a random direction"),
    Column("plane_ratio_low", "its 95 % interval over documents, low end"),
    Column("plane_ratio_high", "its 95 % interval over documents, high end"),
    Column("rms_cos", "root mean square of cos(z, 1)"),
    Column("before_ratio", "d · mean cos²(x, 1) of the same tokens before the norm"),
    Column("in_plane", "whether this site lies in the plane by the rule"),
)


@dataclass(frozen=True)
class Plane:
    """cos(z, 1): zero by construction under LayerNorm, a matter of learning under RMSNorm."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.plane",
        chapter="A",
        statement="Normalised features lie in the hyperplane perpendicular to the all-ones vector.",
        source="S0 S3",
        definition=(
            "The share of z's squared length along 1, times d: d·mean cos²(z, 1) over tokens. It is 0 in the plane and "
            "1 for a direction drawn at random. LayerNorm subtracts the mean, so there max|mean z| is rounding; "
            "RMSNorm does not, and the question is whether the model learned it anyway."
        ),
        control="the same tokens before the norm; Gaussian vectors (1 in expectation); random initialisation",
        rule=(
            f"A site is in the plane if d·mean cos² ≤ {T.plane_ratio} (upper end of the interval) and, under "
            f"LayerNorm, its mean is rounding. Supported: ≥ {T.sites_most:.0%} of sites; refuted: ≤ {T.sites_few:.0%}; "
            "qualified between, naming the sites."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("lengths",)

    def conclude(self, evidence: Evidence) -> Finding:
        cos2 = evidence.scalars(MODEL, "cos2")
        ratios = evidence.site_intervals(cos2, mean)
        inside = _inside(evidence, ratios)
        share = float(np.mean(inside))
        verdict: Verdict = "qualified"
        if share >= T.sites_most:
            verdict = "supported"
        elif share <= T.sites_few:
            verdict = "refuted"
        if verdict != "refuted" and np.isnan(ratios[:, 2]).any():
            verdict = "undecided"
        value, low, high = evidence.across_sites(cos2, mean)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("d·mean cos²(z, 1), median site", value, low, high),
            n=evidence.tokens,
            controls=_controls(evidence),
            reading=_reading(evidence, inside, (value, low, high), verdict),
            headline=_headline(verdict, value, inside),
            table=_table(evidence, ratios, inside),
            quantities=_quantities(evidence, ratios),
        )


def _inside(evidence: Evidence, ratios: Floats) -> list[bool]:
    import torch

    means = evidence.extremes(MODEL, "mean_z")[:, 1]
    # Peaked tokens round worse: a mean of d terms, the largest √d, loses roundings of √d.
    rounding = T.roundings * torch.finfo(torch.float32).eps * evidence.anatomy.d**0.5
    inside = []
    for norm, ratio, largest in zip(evidence.anatomy.norms.values(), ratios, means, strict=True):
        top = ratio[0] if np.isnan(ratio[2]) else ratio[2]
        inside.append(bool(top <= T.plane_ratio and (norm.kind == "rmsnorm" or largest <= rounding)))
    return inside


def _table(evidence: Evidence, ratios: Floats, inside: list[bool]) -> Table:
    means = evidence.extremes(MODEL, "mean_z")[:, 1]
    before = mean(evidence.scalars(MODEL, "cos2_x").sum(1))
    rows: list[dict[str, Any]] = [
        {
            "site": site,
            "norm": norm.kind,
            "max_mean": float(means[i]),
            "plane_ratio": float(ratios[i, 0]),
            "plane_ratio_low": float(ratios[i, 1]),
            "plane_ratio_high": float(ratios[i, 2]),
            "rms_cos": float(np.sqrt(ratios[i, 0] / norm.d)),
            "before_ratio": float(before[i]),
            "in_plane": inside[i],
        }
        for i, (site, norm) in enumerate(evidence.anatomy.norms.items())
    ]
    return Table.of(COLUMNS, rows)


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    d = evidence.anatomy.d
    rng = np.random.default_rng(evidence.seed)
    drawn = rng.standard_normal((2000, d))
    cos2 = d * (drawn.sum(1) ** 2 / d) / (drawn**2).sum(1)
    error = 1.96 * float(cos2.std()) / len(cos2) ** 0.5
    average = float(cos2.mean())
    made = [
        Control("Gaussian vectors", average, average - error, average + error),
        Control("before the norm", *evidence.across_sites(evidence.scalars(MODEL, "cos2_x"), mean)),
    ]
    for arm in evidence.controls():
        made.append(Control(arm, *evidence.across_sites(evidence.scalars(arm, "cos2"), mean)))
    return tuple(made)


def _reading(evidence: Evidence, inside: list[bool], interval: tuple[float, float, float], verdict: Verdict) -> str:
    kinds = {norm.kind for norm in evidence.anatomy.norms.values()}
    outside = [site for site, yes in zip(evidence.sites, inside, strict=True) if not yes]
    if verdict == "undecided":
        return "Too few documents for an interval; give more text."
    if kinds == {"layernorm"}:
        exact = "LayerNorm subtracts the mean: exact by definition; what is measured is this model's deviation"
        return f"{exact}, {'rounding' if not outside else 'and it is more than rounding at ' + name_sites(outside)}."
    learned = f"{sum(inside)} of {len(inside)} sites learned a near-zero mean"
    value, low, high = interval
    tail = (
        "like a random direction's"
        if low <= 1 <= high
        else f"{'below' if value < 1 else 'above'} a random direction's 1"
    )
    where = f" ({name_sites([s for s, yes in zip(evidence.sites, inside, strict=True) if yes])})" if any(inside) else ""
    return f"RMSNorm subtracts nothing, so there is no plane by construction; {learned}{where}; the share is {value:.2g}, {tail}."


def _headline(verdict: Verdict, value: float, inside: list[bool]) -> str:
    if verdict == "supported":
        return f"Features lie in the plane ⟂ 1 at {sum(inside)} of {len(inside)} sites"
    if verdict == "refuted":
        return f"No plane: the share along 1 is {value:.2g} of a random direction's"
    return f"The plane ⟂ 1 holds at {sum(inside)} of {len(inside)} sites only"


def _quantities(evidence: Evidence, ratios: Floats) -> tuple[Quantity, ...]:
    controls = {"before the norm": mean(evidence.scalars(MODEL, "cos2_x").sum(1))}
    for arm in evidence.controls():
        controls[arm] = mean(evidence.scalars(arm, "cos2").sum(1))
    return (
        Quantity(
            "share of z along 1, times d",
            "d · mean cos²(z, 1) over tokens",
            "",
            ("site",),
            {"site": evidence.sites},
            ratios[:, 0],
            ratios[:, 1],
            ratios[:, 2],
            controls,
            {"random direction: 1": np.ones(len(evidence.sites))},
            ("value",),
        ),
    )
