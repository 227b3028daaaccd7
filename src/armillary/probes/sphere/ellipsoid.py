"""Does the gain warp the sphere into an ellipsoid, and the shift displace it?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import RANDOM, Evidence, Flags, Floats, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Norm

COLUMNS = (
    Column("site", "norm site"),
    Column("norm", "layernorm or rmsnorm"),
    Column("axis_ratio", "longest semi-axis over shortest that is not flat, max|γ| / min|γ|"),
    Column("axis_ratio_all", "longest over shortest semi-axis, flat ones included; empty where one is zero"),
    Column("p95_p05", "95th over 5th percentile of |γ|: the ratio without its extremes"),
    Column("longest", "longest semi-axis max|γ|", "√d"),
    Column("median", "median semi-axis", "√d"),
    Column("flat", "flat axes: |γ| below 1 % of the median", "axes"),
    Column("negative", "axes with negative γ (mirrored)", "axes"),
    Column("displacement", "‖β‖ / (√d · rms γ); empty where the norm has no shift"),
)


@dataclass(frozen=True)
class Ellipsoid:
    """Semi-axes √d·|γ_i| and centre β, from the weights alone."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.ellipsoid",
        chapter="A",
        statement="The gain γ warps the sphere into an ellipsoid and the shift β displaces it.",
        source="S0 S3",
        definition=(
            "Semi-axes √d·|γ_i| at every norm site: ratio of the longest to the shortest that is not flat, flat axes, "
            "negative γ; displacement ‖β‖/(√d·rms γ). Weights only: no text, no sampling, so no interval."
        ),
        control="random initialisation, where γ = 1 and β = 0: ratio 1, displacement 0",
        rule=(
            f"Warped: axis ratio ≥ {T.warp_ratio:.0f}. Displaced: displacement ≥ {T.displacement}. Supported: both at "
            f"≥ {T.sites_most:.0%} of sites. Refuted: neither at more than {T.sites_few:.0%}. Qualified otherwise; a "
            "norm without a shift cannot displace anything, and the reading says so."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        norms = evidence.anatomy.norms
        rows = [{"site": site, **_shape(norm)} for site, norm in norms.items()]
        ratios = np.array([row["axis_ratio"] for row in rows], dtype=float)
        moved = np.array([np.nan if row["displacement"] is None else row["displacement"] for row in rows], dtype=float)
        warped, displaced = ratios >= T.warp_ratio, np.nan_to_num(moved) >= T.displacement
        verdict = _verdict(warped, displaced)
        value = float(np.median(ratios))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("longest over shortest semi-axis, median site", value, value, value),
            n=len(rows),
            controls=_controls(evidence),
            reading=_reading(evidence, warped, displaced, moved),
            headline=_headline(value, warped, displaced, moved),
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(evidence, ratios, moved),
        )


def _shape(norm: "Norm") -> dict[str, Any]:
    gain = norm.gain.detach().double().cpu().numpy()
    axes = np.abs(gain)
    flat = axes < T.flat_axis * np.median(axes)
    displacement = None
    if norm.shift is not None:
        shift = norm.shift.detach().double().cpu().numpy()
        displacement = float(np.linalg.norm(shift) / (np.sqrt(norm.d) * np.sqrt(np.mean(gain**2))))
    return {
        "norm": norm.kind,
        "axis_ratio": float(axes.max() / axes[~flat].min()),
        "axis_ratio_all": float(axes.max() / axes.min()) if axes.min() > 0 else None,
        "p95_p05": float(np.percentile(axes, 95) / max(np.percentile(axes, 5), 1e-300)),
        "longest": float(axes.max()),
        "median": float(np.median(axes)),
        "flat": int(flat.sum()),
        "negative": int((gain < 0).sum()),
        "displacement": displacement,
    }


def _verdict(warped: Flags, displaced: Flags) -> Verdict:
    if warped.mean() >= T.sites_most and displaced.mean() >= T.sites_most:
        return "supported"
    if warped.mean() <= T.sites_few and displaced.mean() <= T.sites_few:
        return "refuted"
    return "qualified"


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    if evidence.twin is None:
        return ()
    value = float(np.median([_shape(norm)["axis_ratio"] for norm in evidence.twin.norms.values()]))
    return (Control(RANDOM, value, value, value),)


def _reading(evidence: Evidence, warped: Flags, displaced: Flags, moved: Floats) -> str:
    round_ = [site for site, yes in zip(evidence.sites, warped, strict=True) if not yes]
    shape = f"γ makes an ellipsoid at {int(warped.sum())} of {len(warped)} sites"
    if round_ and warped.any():
        shape += f" (not at {name_sites(round_)})"
    if np.isnan(moved).all():
        return f"{shape}; these norms have no β, so nothing is displaced."
    still = [site for site, yes in zip(evidence.sites, displaced, strict=True) if not yes]
    where = f", not at {name_sites(still)}" if still and displaced.any() else ""
    return f"{shape}; β moves its centre at {int(displaced.sum())}{where} (median {np.nanmedian(moved):.2g} of a semi-axis)."


def _headline(value: float, warped: Flags, displaced: Flags, moved: Floats) -> str:
    centre = "and stays centred" if np.isnan(moved).all() else f"and is displaced at {int(displaced.sum())} sites"
    return (
        f"The sphere becomes an ellipsoid at {int(warped.sum())} of {len(warped)} sites (axes 1 : {value:.3g}) {centre}"
    )


def _quantities(evidence: Evidence, ratios: Floats, moved: Floats) -> tuple[Quantity, ...]:
    coords = {"site": evidence.sites}
    controls = {}
    if evidence.twin is not None:
        shapes = [_shape(norm) for norm in evidence.twin.norms.values()]
        controls[RANDOM] = np.array([shape["axis_ratio"] for shape in shapes], dtype=float)
    made = [
        Quantity(
            "axis ratio",
            "longest over shortest semi-axis that is not flat",
            "ratio",
            ("site",),
            coords,
            ratios,
            controls=controls,
            theory={"a sphere: 1": np.ones(len(ratios))},
            logs=("value",),
        )
    ]
    if not np.isnan(moved).all():
        made.append(
            Quantity(
                "displacement",
                "‖β‖ / (√d · rms γ)",
                "semi-axes",
                ("site",),
                coords,
                moved,
                theory={"centred: 0": np.zeros(len(moved))},
            )
        )
    return tuple(made)
