"""Do normalised features lie in the hyperplane perpendicular to the all-ones vector?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery import (
    MODEL,
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    by_share,
    mean,
    name_sites,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.machinery.verdicts import missing_interval
from armillary.probes.sphere.across_sites import (
    across_sites,
    arm_controls,
    arm_lines,
    by_site,
    decided,
    flagged,
    sure_and_possible,
)
from armillary.results import Claim, Control, Finding, Quantity, Rewording, RuleChange, Statistic, Table, Verdict, say

GAUSSIANS = 2000


@dataclass(frozen=True)
class Plane:
    """cos(z, 1): zero by construction under LayerNorm; under RMSNorm only if training made it so."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.plane",
        chapter="A",
        statement="Normalised features lie in the hyperplane perpendicular to the all-ones vector.",
        source="S0 S3",
        question=(
            "After a norm, do the coordinates of a token add up to zero? If so, all tokens lie in one plane through "
            "the centre of the sphere."
        ),
        definition=(
            "How much of a token's z points along the all-ones vector 1, compared with a random direction. z is a "
            "norm's output before gain and shift.\n"
            "The number is d · mean cos²(z, 1) over tokens. It is 0 in the plane perpendicular to 1, and 1 for a "
            "random direction.\n"
            "LayerNorm subtracts the mean of the coordinates, so there it is 0 up to rounding. RMSNorm does not. "
            "There the question is whether the trained model has a mean of zero anyway."
        ),
        control=(
            "the same tokens before the norm; Gaussian vectors (1 on average); random initialisation; shuffled text"
        ),
        rule=(
            f"A norm is in the plane if d · mean cos²(z, 1) is at most {T.plane_ratio}, with its whole interval. Under "
            "LayerNorm, the mean of every token's coordinates must also be zero up to rounding error.\n"
            f"Supported if at least {T.sites_most:.0%} of norms are in the plane.\n"
            f"Qualified if more than {T.sites_few:.0%} but fewer than {T.sites_most:.0%} of norms are. Also qualified, "
            "instead of supported, if the model has RMSNorms and their share in the plane is no larger than in its "
            "untrained twins (the upper end of their interval), or if there are no twins to compare with.\n"
            f"Refuted if at most {T.sites_few:.0%} of norms are.\n"
            "Undecided if norms whose interval spans the limit or is missing could change the verdict."
        ),
        kind="definition",
        changes=(
            RuleChange(
                "2026-11-16",
                "undecided where intervals spanning the limit could change the verdict; RMSNorm must beat its "
                "untrained twins, because nothing in it makes the plane",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "2bdbeebad9a3", 1),
            Rewording("2026-11-18", "28fc7c171cff", 1),
            Rewording("2026-11-19", "8324fc79a638", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (LENGTHS,)

    def conclude(self, evidence: Evidence) -> Finding:
        cos2 = evidence[LENGTHS][MODEL].sums("cos2")
        ratios = by_site(evidence, cos2)
        sure, possible = (_rounded(evidence, MODEL, flags) for flags in sure_and_possible(ratios, T.plane_ratio))
        inside = _inside(evidence, MODEL)
        verdict = decided(by_share, (sure,), (possible,))
        untrained = verdict == "supported" and not _beats_twins(evidence, sure)
        verdict = "qualified" if untrained else verdict
        value, low, high = across_sites(evidence, cos2)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("d·mean cos²(z, 1), median site", value, low, high),
            n=evidence.tokens,
            controls=_controls(evidence),
            reading=_reading(evidence, inside, (value, low, high), verdict, untrained),
            headline=_headline(verdict, value, inside),
            table=_table(evidence, ratios, inside),
            quantities=_quantities(evidence, ratios),
            why=missing_interval(*ratios[:, 1:].ravel()) if verdict == "undecided" else None,
        )


def _rms(evidence: Evidence) -> Flags:
    return np.array([norm.kind == "rmsnorm" for norm in evidence.anatomy.norms.values()])


def _rounded(evidence: Evidence, arm: str, near: Flags) -> Flags:
    """Those of the sites near the plane where, under LayerNorm, every token is in it up to rounding."""
    import torch

    # A mean of d terms, the largest of them √d, loses roundings of √d.
    rounding = T.roundings * torch.finfo(torch.float32).eps * evidence.anatomy.d**0.5
    largest = evidence[LENGTHS][arm].extremes("mean_z")[:, 1]
    return np.asarray(near & (_rms(evidence) | (largest <= rounding)))


def _inside(evidence: Evidence, arm: str) -> Flags:
    """Which sites lie in the plane, by their value."""
    return _rounded(evidence, arm, mean(evidence[LENGTHS][arm].sums("cos2").sum(1)) <= T.plane_ratio)


def _beats_twins(evidence: Evidence, sure: Flags) -> bool:
    """Is the plane more than untrained RMSNorms have? LayerNorm has it by its formula, so nothing is asked of it."""
    rms = _rms(evidence)
    if not rms.any():
        return True

    def share(arm: str) -> Interval:
        value = float(_inside(evidence, arm)[rms].mean())
        return value, value, value

    return bool(sure[rms].mean() > evidence.over_twins(share)[2])


def _table(evidence: Evidence, ratios: Floats, inside: Flags) -> Table:
    lengths, anatomy = evidence[LENGTHS][MODEL], evidence.anatomy
    kinds = [norm.kind for norm in anatomy.norms.values()]
    before = mean(lengths.sums("cos2_x").sum(1))
    return site_table(
        evidence.sites,
        cells("norm", "layernorm (in the plane by construction) or rmsnorm", kinds),
        cells("max_mean", "largest |mean of z's coordinates| over tokens", lengths.extremes("mean_z")[:, 1]),
        interval_cells("plane_ratio", "d · mean cos²(z, 1): 0 in the plane, 1 for a random direction", ratios),
        cells("rms_cos", "root mean square of cos(z, 1)", np.sqrt(ratios[:, 0] / anatomy.d)),
        cells("before_ratio", "d · mean cos²(x, 1) of the same tokens before the norm", before),
        cells("in_plane", "does this site lie in the plane by the rule?", inside),
    )


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    d = evidence.anatomy.d
    drawn = np.random.default_rng(evidence.seed).standard_normal((GAUSSIANS, d))
    cos2 = drawn.sum(1) ** 2 / (drawn**2).sum(1)
    average, error = float(cos2.mean()), 1.96 * float(cos2.std()) / GAUSSIANS**0.5
    arms = arm_controls(evidence, LENGTHS, lambda arm: across_sites(evidence, evidence[LENGTHS][arm].sums("cos2")))
    return (
        Control("Gaussian vectors", average, average - error, average + error),
        Control("before the norm", *across_sites(evidence, evidence[LENGTHS][MODEL].sums("cos2_x"))),
        *arms,
    )


def _reading(evidence: Evidence, inside: Flags, interval: Interval, verdict: Verdict, untrained: bool) -> str:
    value, low, high = interval
    if verdict == "undecided":
        return f"The intervals of some norms are missing or span {T.plane_ratio}. Give more text."
    ratio = (
        f"The squared component of z along the all-ones vector 1 is {say(value, '.2g')} times that of a random "
        "direction (median site)"
    )
    if {norm.kind for norm in evidence.anatomy.norms.values()} == {"layernorm"}:
        rest = (
            ", which is rounding error"
            if inside.all()
            else f"; more than rounding at {name_sites(flagged(evidence.sites, ~inside))}"
        )
        return f"{ratio}{rest}. LayerNorm subtracts the mean, so the plane holds by construction."
    chance = ", and the interval contains 1" if low <= 1 <= high else ""
    where = f" ({name_sites(flagged(evidence.sites, inside))})" if inside.any() else ""
    beside = " An untrained model shows as much." if evidence.twins else " There is no untrained model to compare with."
    return (
        f"{ratio}{chance}. RMSNorm subtracts no mean, so nothing forces the plane: {int(inside.sum())} of "
        f"{len(inside)} norms lie in it{where}.{beside if untrained else ''}"
    )


def _headline(verdict: Verdict, value: float, inside: Flags) -> str:
    count = f"{int(inside.sum())} of {len(inside)} norms"
    if inside.all():
        return f"Features lie in the plane ⟂ 1 at {count}"
    if verdict == "refuted":
        return f"No plane: along 1, z has {say(value, '.2g')} times the squared component of a random direction"
    return f"Features lie in the plane ⟂ 1 at only {count}"


def _quantities(evidence: Evidence, ratios: Floats) -> tuple[Quantity, ...]:
    controls = {"before the norm": mean(evidence[LENGTHS][MODEL].sums("cos2_x").sum(1))}
    controls |= arm_lines(evidence, LENGTHS, lambda arm: mean(evidence[LENGTHS][arm].sums("cos2").sum(1)))
    theory = {"random direction: 1": np.ones(len(evidence.sites))}
    name, meaning = "component of z along 1, squared", "d · mean cos²(z, 1) over tokens"
    return (line(name, meaning, "", "site", evidence.sites, ratios, controls, theory, ("value",)),)
