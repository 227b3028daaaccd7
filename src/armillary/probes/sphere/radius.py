"""Do normalised features have length √d?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Floats, mean, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

COLUMNS = (
    Column("site", "norm site"),
    Column("norm", "layernorm or rmsnorm"),
    Column("eps", "the norm's ε"),
    Column("mean_radius", "mean of ‖z‖/√d over all tokens", "√d"),
    Column("sd_radius", "standard deviation of ‖z‖/√d", "√d"),
    Column("min_radius", "smallest ‖z‖/√d", "√d"),
    Column("max_radius", "largest ‖z‖/√d", "√d"),
    Column("share_short", "share of tokens with ‖z‖/√d < 0.99"),
    Column("share_near", "share of tokens within 1 % of √d"),
    Column("share_near_low", "its 95 % interval over documents, low end"),
    Column("share_near_high", "its 95 % interval over documents, high end"),
    Column("theory_gap", "largest |‖z‖/√d − sqrt(v/(v+ε))|", "√d"),
    Column("module_gap", "largest |module − (γz + β)| on sampled tokens, relative"),
    Column("first_radius", "mean of ‖z‖/√d at the first position", "√d"),
    Column("massive_radius", "mean of ‖z‖/√d at massive-activation tokens, empty where there are none", "√d"),
    Column("share_before", "share of tokens whose length before the norm is within 1 % of the site's median"),
    Column("random_share_near", "share_near at random initialisation"),
)


@dataclass(frozen=True)
class Radius:
    """‖z‖/√d at every norm site, against what ε leaves of it."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.radius",
        chapter="A",
        statement="Normalised features have length √d.",
        source="S0 S1 S2 S3",
        definition=(
            "At every norm site r = ‖z‖/√d of every token, z before gain and shift. Theory: r = sqrt(v/(v+ε)) with v "
            "the token's variance (LayerNorm) or mean square (RMSNorm). The statistic is the share of tokens within "
            "1 % of √d at the site where that share is smallest."
        ),
        control="the same tokens' lengths before the norm; random initialisation; shuffled text",
        rule=(
            f"Supported: |r − theory| and the module's own output are within {T.roundings:.0f} roundings of the dtype "
            f"and {T.radius_share:.0%} of tokens lie within {T.radius_within:.0%} of √d at every site. Qualified: they "
            "do at some sites; the others, where ε bites, are named. Refuted: at no more than "
            f"{T.sites_few:.0%} of sites, or a site departs from theory."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("lengths",)

    def conclude(self, evidence: Evidence) -> Finding:
        near = evidence.scalars(MODEL, "near")
        shares = evidence.site_intervals(near, mean)
        value, low, high = evidence.across_sites(near, mean, np.min)
        table = _table(evidence, shares)
        failing = [site for site, share in zip(evidence.sites, shares[:, 0], strict=True) if share < T.radius_share]
        astray = _astray(evidence)
        verdict = _verdict(len(failing), len(evidence.sites), bool(astray))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("tokens within 1 % of √d, worst site", value, low, high),
            n=evidence.tokens,
            controls=_controls(evidence),
            reading=_reading(evidence, failing, astray),
            headline=_headline(verdict, value, failing, astray),
            table=table,
            quantities=_quantities(evidence, shares),
        )


def _astray(evidence: Evidence) -> list[str]:
    """Sites whose radius or module output is further from theory than rounding explains."""
    import torch

    records = evidence.records[MODEL]
    gaps = evidence.extremes(MODEL, "radius_error")[:, 1]
    ours = T.roundings * torch.finfo(torch.float32).eps
    dtype = evidence.anatomy.dtype
    # A half-precision module rounds its output once or twice; 64 of its roundings would be half the value.
    theirs = (T.roundings if dtype in (torch.float32, torch.float64) else 4) * torch.finfo(dtype).eps
    return [
        site for site, gap in zip(evidence.sites, gaps, strict=True) if gap > ours or records[site].deviation > theirs
    ]


def _verdict(failing: int, sites: int, astray: bool) -> Verdict:
    if astray or failing >= (1 - T.sites_few) * sites:
        return "refuted"
    return "qualified" if failing else "supported"


def _table(evidence: Evidence, shares: Floats) -> Table:
    radius = evidence.scalars(MODEL, "radius").sum(1)
    edges, gaps = evidence.extremes(MODEL, "radius"), evidence.extremes(MODEL, "radius_error")
    short = mean(evidence.scalars(MODEL, "short").sum(1))
    before = mean(evidence.scalars(MODEL, "before_near").sum(1))
    by_kind = [evidence.scalars(MODEL, "radius", [kind]).sum(1) for kind in (1, 2)]
    random = _random_shares(evidence)
    rows: list[dict[str, Any]] = []
    for i, (site, norm) in enumerate(evidence.anatomy.norms.items()):
        first, massive = (float(mean(k[i])) if k[i, 0] else None for k in by_kind)
        average = float(mean(radius[i]))
        rows.append(
            {
                "site": site,
                "norm": norm.kind,
                "eps": norm.eps,
                "mean_radius": average,
                "sd_radius": float(np.sqrt(max(radius[i, 2] / radius[i, 0] - average**2, 0.0))),
                "min_radius": float(edges[i, 0]),
                "max_radius": float(edges[i, 1]),
                "share_short": float(short[i]),
                "share_near": float(shares[i, 0]),
                "share_near_low": float(shares[i, 1]),
                "share_near_high": float(shares[i, 2]),
                "theory_gap": float(gaps[i, 1]),
                "module_gap": evidence.records[MODEL][site].deviation,
                "first_radius": first,
                "massive_radius": massive,
                "share_before": float(before[i]),
                "random_share_near": None if random is None else float(random[i]),
            }
        )
    return Table.of(COLUMNS, rows)


def _random_shares(evidence: Evidence) -> Floats | None:
    return mean(evidence.scalars(RANDOM, "near").sum(1)) if RANDOM in evidence.records else None


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    before = evidence.across_sites(evidence.scalars(MODEL, "before_near"), mean, np.median)
    made = [Control("before the norm", *before)]
    for arm in evidence.controls():
        made.append(Control(arm, *evidence.across_sites(evidence.scalars(arm, "near"), mean, np.min)))
    return tuple(made)


def _reading(evidence: Evidence, failing: list[str], astray: list[str]) -> str:
    sites = len(evidence.sites)
    if astray:
        return f"{name_sites(astray)} do not compute the norm that their weights and ε describe."
    exact = "Exact by definition up to ε; what is measured is this model's deviation"
    if failing:
        return f"{exact}: ε shortens tokens at {len(failing)} of {sites} sites ({name_sites(failing)})."
    short = float(mean(evidence.scalars(MODEL, "short").sum((0, 1))))
    return f"{exact}: none beyond 1 % at any of {sites} sites ({short:.2g} of tokens fall short of 0.99 √d)."


def _headline(verdict: Verdict, value: float, failing: list[str], astray: list[str]) -> str:
    if astray:
        return f"Not the norm it claims to be: {name_sites(astray)} leave the sphere by more than rounding"
    if verdict == "supported":
        return f"Every norm puts its tokens on the sphere: {value:.1%} within 1 % of √d at the worst site"
    return f"ε bites at {len(failing)} sites: only {value:.1%} of tokens reach √d at the worst"


def _quantities(evidence: Evidence, shares: Floats) -> tuple[Quantity, ...]:
    radius = evidence.scalars(MODEL, "radius")
    values = evidence.site_intervals(radius, mean)
    ones = np.ones(len(evidence.sites))
    controls = {arm: mean(evidence.scalars(arm, "radius").sum(1)) for arm in evidence.controls()}
    coords = {"site": evidence.sites}
    return (
        Quantity(
            "mean radius",
            "mean of ‖z‖/√d over tokens",
            "√d",
            ("site",),
            coords,
            values[:, 0],
            values[:, 1],
            values[:, 2],
            controls,
            {"√d": ones},
        ),
        Quantity(
            "share within 1 % of √d",
            "share of tokens with |r − 1| ≤ 0.01",
            "share",
            ("site",),
            coords,
            shares[:, 0],
            shares[:, 1],
            shares[:, 2],
            {"before the norm": mean(evidence.scalars(MODEL, "before_near").sum(1))},
        ),
    )
