"""Does the gain turn the sphere into an ellipsoid, and does the shift move its centre?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    RANDOM,
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    T,
    by_share,
    median_defined,
    name_sites,
    once,
    over_twins,
    weakest,
)
from armillary.probes.machinery.tables import cells, line, site_table
from armillary.probes.sphere.across_sites import flagged
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

if TYPE_CHECKING:
    from armillary.anatomy import Norm

RATIO = "95th over 5th percentile of the semi-axes, median site"


@dataclass(frozen=True)
class Ellipsoid:
    """Semi-axes √d·|γ_i| and centre β, from the weights alone, next to those of untrained models."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.ellipsoid",
        chapter="A",
        statement="The gain γ warps the sphere into an ellipsoid and the shift β displaces it.",
        source="S0 S3",
        question=(
            "A norm ends by multiplying each axis by a gain γ and adding a shift β. Do these clearly stretch the "
            "sphere into an ellipsoid and move its centre?"
        ),
        definition=(
            "A norm's output is γz + β. These vectors lie on an ellipsoid with semi-axes √d·|γ_i| and centre β.\n"
            "The statistic is the ratio of long to short axes at the median norm: the 95th percentile of the "
            f"semi-axes over the 5th. Flat axes, shorter than {T.flat_axis:.0%} of the median, are left out. (The "
            "longest over the shortest, in the table, grows with d even for random gains.)\n"
            "The displacement is how far the centre has moved: ‖β‖/(√d·rms γ), in typical semi-axes.\n"
            "Both come from the weights alone. No text is read, so there is no interval."
        ),
        control="random initialisation, several times: γ = 1 and β = 0, so the ratio is 1 and the displacement 0",
        rule=(
            f"Two parts; the weaker decides. A norm is warped if its ratio is at least {T.warp_ratio}, and round if it "
            f"is at most {T.warp_none}. It is displaced if its displacement is at least {T.displacement}. A norm whose "
            "ratio does not exceed that of untrained twins (the upper end of their interval) counts as round; one "
            "whose displacement does not exceed theirs counts as not displaced.\n"
            "Part 1, γ warps.\n"
            f"Supported if at least {T.sites_most:.0%} of norms are warped.\n"
            f"Refuted if at most {T.sites_few:.0%} of norms are not round.\n"
            "Qualified otherwise.\n"
            "Part 2, β displaces.\n"
            f"Supported if at least {T.sites_most:.0%} of norms are displaced.\n"
            f"Refuted if at most {T.sites_few:.0%} are.\n"
            "Qualified otherwise.\n"
            "If no norm has a β, nothing can be displaced: part 1 decides alone, and the claim is at most qualified.\n"
            "Both parts are undecided without untrained twins."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "percentiles instead of extremes, because longest over shortest grows with d under noise, with the "
                "limit that 2 on extremes means for random gains at d = 256, and a limit for 'round'; each norm must "
                "beat the untrained twins; both parts have verdicts of their own",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "45523023e279", 1),
            Rewording("2026-11-18", "c3a4c198e61c", 1),
            Rewording("2026-11-19", "3849813af577", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        norms = list(evidence.anatomy.norms.values())
        ratios, displacements = _ratios(norms), _displacements(norms)
        untrained = _untrained(evidence)
        learned = _beats(ratios, untrained[..., 0])
        warped, bent = (ratios >= T.warp_ratio) & learned, (ratios > T.warp_none) & learned
        displaced = (displacements >= T.displacement) & _beats(displacements, untrained[..., 1])
        parts = (_warp_part(evidence, ratios, warped, bent), _shift_part(evidence, displacements, displaced))
        verdict, why = weakest(parts)
        if verdict == "supported" and not all(part.asserted for part in parts):
            verdict = "qualified"
        value = median_defined(ratios)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(RATIO, value, value, value),
            n=len(norms),
            controls=_controls(evidence),
            reading=" ".join(part.reading for part in parts),
            headline=_headline(value, warped, displaced, displacements),
            table=_table(evidence, ratios, displacements),
            quantities=_quantities(evidence, ratios, displacements),
            why=why,
            parts=parts,
        )


def gain_axes(norm: "Norm") -> Floats:
    return np.asarray(norm.gain.detach().double().cpu().numpy())


def flat_axes(axes: Floats) -> Flags:
    return np.asarray(axes < T.flat_axis * np.median(axes))


def _ratios(norms: "Sequence[Norm]") -> Floats:
    """95th over 5th percentile of the semi-axes that are not flat, per norm; NaN where most gains are 0."""
    semi_axes = [np.abs(gain_axes(norm)) for norm in norms]
    ends = np.array([np.percentile(axes[~flat_axes(axes)], [5, 95]) for axes in semi_axes])
    return np.divide(ends[:, 1], ends[:, 0], out=np.full(len(ends), np.nan), where=ends[:, 0] > 0)


def _displacements(norms: "Sequence[Norm]") -> Floats:
    """‖β‖/(√d·rms γ) per norm; NaN where the norm has no shift."""
    return np.array([_displacement(norm) for norm in norms])


def _displacement(norm: "Norm") -> float:
    size = np.sqrt(norm.d) * np.sqrt(np.mean(gain_axes(norm) ** 2))
    if norm.shift is None or not size > 0:
        return float("nan")
    return float(np.linalg.norm(norm.shift.detach().double().cpu().numpy()) / size)


@once
def _untrained(evidence: Evidence) -> Floats:
    """[twin, site, (ratio, displacement)]; a twin is made once, since a large one is not kept."""
    by_twin = [list(evidence.model(twin).norms.values()) for twin in evidence.twins]
    measured = [np.stack([_ratios(norms), _displacements(norms)], -1) for norms in by_twin]
    return np.array(measured).reshape(len(by_twin), len(evidence.sites), 2)


def _beats(values: Floats, by_twin: Floats) -> Flags:
    """Where a norm has more than another initialisation would have; nowhere without twins."""
    if not len(by_twin):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(values > over_twins(np.repeat(by_twin[..., None], 3, -1))[:, 2])


def _warp_part(evidence: Evidence, ratios: Floats, warped: Flags, bent: Flags) -> Part:
    value = median_defined(ratios)
    reading = f"The long semi-axes are {say(value)} times the short ones (95th over 5th percentile, median site)."
    reading += f" γ makes a clear ellipsoid at {_count(evidence, warped)}, and leaves {_count(evidence, ~bent)} round."
    verdict, why = _verdict(evidence, warped, bent)
    return Part("γ warps the sphere", verdict, reading, Statistic(RATIO, value, value, value), why=why)


def _shift_part(evidence: Evidence, displacements: Floats, displaced: Flags) -> Part:
    name = "β displaces it"
    if np.isnan(displacements).all():
        reading = "These norms have no β, so the centre stays at the origin."
        return Part(name, "undecided", reading, asserted=False, why=Why.NOT_APPLICABLE)
    value = float(np.nanmedian(displacements))
    reading = f"β moves the centre by {say(value, '.2g')} semi-axes (median site) and counts as a displacement at "
    reading += f"{_count(evidence, displaced)}."
    verdict, why = _verdict(evidence, displaced, displaced)
    statistic = Statistic("displacement of the centre, median site", value, value, value, "semi-axes")
    return Part(name, verdict, reading, statistic, why=why)


def _verdict(evidence: Evidence, clearly: Flags, possibly: Flags) -> tuple[Verdict, Why | None]:
    return (by_share(clearly, possibly), None) if evidence.twins else ("undecided", Why.NO_CONTROL)


def _table(evidence: Evidence, ratios: Floats, displacements: Floats) -> Table:
    norms = evidence.anatomy.norms.values()
    gains = [gain_axes(norm) for norm in norms]
    semi_axes = [np.abs(gain) for gain in gains]
    extremes = [axes.max() / axes.min() if axes.min() > 0 else None for axes in semi_axes]
    return site_table(
        evidence.sites,
        cells("norm", "layernorm or rmsnorm", [norm.kind for norm in norms]),
        cells("axis_ratio", "95th over 5th percentile of the semi-axes |γ| that are not flat", ratios),
        cells("longest_shortest", "longest over shortest semi-axis, flat ones included; empty if one is 0", extremes),
        cells("longest", "longest semi-axis max|γ|", [axes.max() for axes in semi_axes], "√d"),
        cells("median", "median semi-axis", [np.median(axes) for axes in semi_axes], "√d"),
        cells("flat", "flat axes: |γ| below 1 % of the median", [flat_axes(axes).sum() for axes in semi_axes], "axes"),
        cells("negative", "axes with negative γ (mirrored)", [(gain < 0).sum() for gain in gains], "axes"),
        cells("displacement", "‖β‖ / (√d · rms γ); empty where the norm has no shift", displacements),
    )


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    medians = np.median(_untrained(evidence)[..., 0], axis=-1)
    return (Control(RANDOM, *over_twins(np.repeat(medians[:, None], 3, -1)).tolist()),) if len(medians) else ()


def _count(evidence: Evidence, flags: Flags) -> str:
    """'5 of 6 norms (not at L0.ln1)'."""
    missing = flagged(evidence.sites, ~flags)
    exceptions = f" (not at {name_sites(missing)})" if flags.any() and not flags.all() else ""
    return f"{int(flags.sum())} of {len(flags)} norms{exceptions}"


def _headline(value: float, warped: Flags, displaced: Flags, displacements: Floats) -> str:
    centre = "stays centred" if np.isnan(displacements).all() else f"is displaced at {int(displaced.sum())}"
    return (
        f"The sphere becomes a clear ellipsoid at {int(warped.sum())} of {len(warped)} norms (axes 1 : {say(value)}, "
        f"median) and {centre}"
    )


def _quantities(evidence: Evidence, ratios: Floats, displacements: Floats) -> tuple[Quantity, ...]:
    controls = {RANDOM: _untrained(evidence)[..., 0].mean(0)} if evidence.twins else {}
    sites, sphere = evidence.sites, {"a sphere: 1": np.ones(len(ratios))}
    meaning = "95th over 5th percentile of the semi-axes that are not flat"
    axis_ratio = line("axis ratio", meaning, "ratio", "site", sites, ratios, controls, sphere, ("value",))
    if np.isnan(displacements).all():
        return (axis_ratio,)
    centred = {"centred: 0": np.zeros(len(ratios))}
    meaning = "‖β‖ / (√d · rms γ)"
    return (axis_ratio, line("displacement", meaning, "semi-axes", "site", sites, displacements, theory=centred))
