"""Does the gain turn the sphere into an ellipsoid, and does the shift move its centre?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Flags, Floats, T, name_sites
from armillary.probes.machinery.tables import cells, line, site_table
from armillary.probes.sphere.across_sites import flagged
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, say

if TYPE_CHECKING:
    from armillary.anatomy import Norm


@dataclass(frozen=True)
class Ellipsoid:
    """Semi-axes √d·|γ_i| and centre β, from the weights alone."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.ellipsoid",
        chapter="A",
        statement="The gain γ warps the sphere into an ellipsoid and the shift β displaces it.",
        source="S0 S3",
        definition=(
            "A norm's output γz + β lies on an ellipsoid with semi-axes √d·|γ_i| and centre β. The statistic is the "
            "ratio of the longest semi-axis to the shortest one that is not flat; a flat axis is shorter than "
            f"{T.flat_axis:.0%} of the median. The displacement is ‖β‖/(√d·rms γ). Both come from the weights alone: "
            "no text is read, so there is no interval."
        ),
        control="random initialisation, where γ = 1 and β = 0: ratio 1, displacement 0",
        rule=(
            f"A norm is warped if the ratio is at least {T.warp_ratio:.0f}, and displaced if the displacement is at "
            f"least {T.displacement}. Supported if at least {T.sites_most:.0%} of the norms are warped and at least "
            f"{T.sites_most:.0%} are displaced. Refuted if at most {T.sites_few:.0%} are warped and at most "
            f"{T.sites_few:.0%} displaced. Qualified otherwise. A norm without β counts as not displaced."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        norms = list(evidence.anatomy.norms.values())
        ratios, displacements = _ratios(norms), np.array([_displacement(norm) for norm in norms])
        warped, displaced = ratios >= T.warp_ratio, np.nan_to_num(displacements) >= T.displacement
        value = float(np.median(ratios))
        return Finding(
            claim=self.claim,
            verdict=_verdict(warped, displaced),
            statistic=Statistic("longest over shortest semi-axis, median site", value, value, value),
            n=len(norms),
            controls=_controls(evidence),
            reading=_reading(evidence, value, warped, displaced, displacements),
            headline=_headline(value, warped, displaced, displacements),
            table=_table(evidence, ratios, displacements),
            quantities=_quantities(evidence, ratios, displacements),
        )


def _gain(norm: "Norm") -> Floats:
    return np.asarray(norm.gain.detach().double().cpu().numpy())


def _flat(axes: Floats) -> Flags:
    return np.asarray(axes < T.flat_axis * np.median(axes))


def _ratios(norms: "list[Norm]") -> Floats:
    """Longest over shortest semi-axis that is not flat, per norm."""
    semi_axes = [np.abs(_gain(norm)) for norm in norms]
    return np.array([axes.max() / axes[~_flat(axes)].min() for axes in semi_axes])


def _displacement(norm: "Norm") -> float:
    """NaN where the norm has no shift."""
    if norm.shift is None:
        return float("nan")
    shift = norm.shift.detach().double().cpu().numpy()
    return float(np.linalg.norm(shift) / (np.sqrt(norm.d) * np.sqrt(np.mean(_gain(norm) ** 2))))


def _verdict(warped: Flags, displaced: Flags) -> Verdict:
    shares = warped.mean(), displaced.mean()
    if min(shares) >= T.sites_most:
        return "supported"
    return "refuted" if max(shares) <= T.sites_few else "qualified"


def _table(evidence: Evidence, ratios: Floats, displacements: Floats) -> Table:
    norms = evidence.anatomy.norms.values()
    gains = [_gain(norm) for norm in norms]
    semi_axes = [np.abs(gain) for gain in gains]
    all_ratios = [axes.max() / axes.min() if axes.min() > 0 else None for axes in semi_axes]
    inner = [np.percentile(axes, 95) / max(np.percentile(axes, 5), 1e-300) for axes in semi_axes]
    return site_table(
        evidence.sites,
        cells("norm", "layernorm or rmsnorm", [norm.kind for norm in norms]),
        cells("axis_ratio", "longest semi-axis over shortest that is not flat, max|γ| / min|γ|", ratios),
        cells("axis_ratio_all", "longest over shortest semi-axis, flat ones included; empty if one is 0", all_ratios),
        cells("p95_p05", "95th over 5th percentile of |γ|: the ratio without its extremes", inner),
        cells("longest", "longest semi-axis max|γ|", [axes.max() for axes in semi_axes], "√d"),
        cells("median", "median semi-axis", [np.median(axes) for axes in semi_axes], "√d"),
        cells("flat", "flat axes: |γ| below 1 % of the median", [_flat(axes).sum() for axes in semi_axes], "axes"),
        cells("negative", "axes with negative γ (mirrored)", [(gain < 0).sum() for gain in gains], "axes"),
        cells("displacement", "‖β‖ / (√d · rms γ); empty where the norm has no shift", displacements),
    )


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    if evidence.twin is None:
        return ()
    value = float(np.median(_ratios(list(evidence.twin.norms.values()))))
    return (Control(RANDOM, value, value, value),)


def _reading(evidence: Evidence, value: float, warped: Flags, displaced: Flags, displacements: Floats) -> str:
    shape = (
        f"The longest semi-axis is {say(value)} times the shortest (median site). γ makes an ellipsoid at "
        f"{_count(evidence, warped)}"
    )
    if np.isnan(displacements).all():
        return f"{shape}. These norms have no β, so the centre stays at the origin."
    centre = say(float(np.nanmedian(displacements)), ".2g")
    count = _count(evidence, displaced)
    return f"{shape}. β moves the centre by {centre} of a semi-axis (median site), enough to count at {count}."


def _count(evidence: Evidence, flags: Flags) -> str:
    """'5 of 6 norms (not at L0.ln1)'."""
    missing = flagged(evidence.sites, ~flags)
    exceptions = f" (not at {name_sites(missing)})" if flags.any() and not flags.all() else ""
    return f"{int(flags.sum())} of {len(flags)} norms{exceptions}"


def _headline(value: float, warped: Flags, displaced: Flags, displacements: Floats) -> str:
    centre = "stays centred" if np.isnan(displacements).all() else f"is displaced at {int(displaced.sum())}"
    return (
        f"The sphere becomes an ellipsoid at {int(warped.sum())} of {len(warped)} norms (axes 1 : {say(value)}) "
        f"and {centre}"
    )


def _quantities(evidence: Evidence, ratios: Floats, displacements: Floats) -> tuple[Quantity, ...]:
    controls = {} if evidence.twin is None else {RANDOM: _ratios(list(evidence.twin.norms.values()))}
    sites, sphere = evidence.sites, {"a sphere: 1": np.ones(len(ratios))}
    meaning = "longest over shortest semi-axis that is not flat"
    axis_ratio = line("axis ratio", meaning, "ratio", "site", sites, ratios, controls, sphere, ("value",))
    if np.isnan(displacements).all():
        return (axis_ratio,)
    centred = {"centred: 0": np.zeros(len(ratios))}
    meaning = "‖β‖ / (√d · rms γ)"
    return (axis_ratio, line("displacement", meaning, "semi-axes", "site", sites, displacements, theory=centred))
