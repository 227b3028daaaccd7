"""Seen from close by, do both constraints of the sphere show?"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, Evidence, Floats, name_sites
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.site_sample import Sampled, sampled
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SCALES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
NEIGHBOURS = 24
CENTRES = 48
OWN_BALLS = (8, 16, 32, 64, 128)
OWN_CENTRES = 96
COLUMNS = (
    Column("site", "norm site"),
    Column(
        "slope", "slope of log(radial/tangential variance) on log α in balls drawn in to their centre; 2 on a sphere"
    ),
    Column("slope_low", "its 95 % interval over documents, low end"),
    Column("slope_high", "its 95 % interval over documents, high end"),
    Column("slope_before", "the same slope for x, before the norm"),
    Column("alpha_small", "angular size of the smallest balls, pooled", "degrees"),
    Column("alpha_large", "angular size of the largest balls (drawn in to ¼), pooled", "degrees"),
    Column("ratio_small", "radial over mean tangential variance in the smallest balls"),
    Column("ratio_large", "radial over mean tangential variance in the largest balls"),
    Column("plane_small", "variance along 1 over mean tangential variance in the smallest balls: 0 under LayerNorm"),
    Column("own_slope", "the slope in undisturbed balls of 8 to 128 nearest tokens; empty where too few tokens"),
    Column("own_alpha_small", "angular radius of those of 8 tokens", "degrees"),
    Column("own_alpha_large", "angular radius of the largest of those", "degrees"),
    Column("tokens", "sampled ordinary tokens, one of each word form", "tokens"),
)


@dataclass(frozen=True)
class Local:
    """Radial against tangential variance in balls of shrinking angle: the repair of the two zeros."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.local",
        chapter="A",
        statement="Locally both constraints show: radial variance falls like α² of the tangential in balls of angle α.",
        source="S3, repaired",
        definition=(
            "Around 48 tokens the 24 nearest by angle, one token of each word form (copies of a point have no shape), "
            "none of the centre's own document. Tokens are far apart (tens of degrees), so no ball of tokens is small: "
            "each is drawn in towards its centre in the stream, to ¼, ⅛, 1/16 and 1/32, and sent through the norm. In each: variance "
            "along the ball's mean direction over the mean tangential variance, pooled over centres; the slope of its "
            "logarithm on log α. The slope of the tokens' own, undisturbed balls is in the table (own_slope), with their "
            "angles. Under LayerNorm the plane shows as zero variance along 1."
        ),
        control="the same balls before the norm (slope 0); random initialisation; shuffled text",
        rule=(
            f"Supported: the median site's slope interval lies within {T.local_slope:.0f} ± {T.local_slope_within}, and the "
            f"tokens' own balls fall too (own_slope ≥ {T.local_slope - T.local_slope_within} in the median site). "
            f"Refuted: the interval lies below {T.local_slope_none} (no fall). Qualified: it falls where balls are drawn "
            "in, which any norm with a small ε brings about, but not at the tokens' own spacing; or not like α². "
            "Undecided: no interval (too few tokens or documents)."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("sample",)

    def conclude(self, evidence: Evidence) -> Finding:
        measured = over_sites(evidence.sites, partial(_measure, evidence))
        found = {site: one for site, one in measured.items() if one is not None}
        slopes = np.array([one.interval for one in found.values()]).reshape(-1, 3)
        value, low, high = _median(evidence, [one.sums for one in found.values()])
        verdict = _verdict(value, low, high, _own(list(found.values())))
        left = [site for site in evidence.sites if site not in found]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("log–log slope of radial/tangential variance, median site", value, low, high),
            n=int(np.median([one.row["tokens"] for one in found.values()])) if found else 0,
            controls=_controls(evidence, list(found.values())),
            reading=_reading(evidence, verdict, value, list(found.values()), left),
            headline=_headline(verdict, value, _own(list(found.values()))),
            table=Table.of(COLUMNS, [one.row for one in found.values()]),
            quantities=_quantities(list(found), slopes, list(found.values())) if found else (),
        )


@dataclass(frozen=True, eq=False)
class _Found:
    interval: tuple[float, float, float]
    sums: Floats
    before: Floats
    row: dict[str, Any]


def _contracted(evidence: Evidence, cloud: Sampled, onto: "Callable[[Tensor], Tensor]") -> Floats | None:
    """[group, scale, 3] of what adds up over balls; None where there are too few tokens outside a document."""
    import torch

    from armillary.geometry.local import contracted

    assert evidence.corpus is not None
    document = torch.from_numpy(cloud.document)
    fullest = int(torch.bincount(document).max()) if len(document) else 0
    if len(document) - fullest < 2 * NEIGHBOURS:
        return None
    balls = contracted(cloud.x, onto, SCALES, NEIGHBOURS, CENTRES, evidence.seed, document)
    sums = np.zeros((evidence.corpus.groups, len(SCALES), 3))
    np.add.at(sums, cloud.document[balls.centres] % evidence.corpus.groups, balls.sums())
    return sums


def _slope(drawn: Floats) -> Floats:
    from armillary.geometry.local import pooled_slope

    return np.asarray(pooled_slope(drawn))


def _pooled(sums: Floats) -> tuple[Floats, Floats]:
    """α in degrees and ratio per scale, over all balls."""
    radial, tangential, weighted = np.moveaxis(sums.sum(0), -1, 0)
    return np.degrees(np.sqrt(weighted / tangential)), radial / tangential


def _measure(evidence: Evidence, site: str) -> _Found | None:
    record = evidence.records[MODEL][site]
    cloud = sampled(record).distinct()
    sums = _contracted(evidence, cloud, record.norm.direction)
    before = _contracted(evidence, cloud, lambda x: x)
    if sums is None or before is None:
        return None
    alpha, ratio = _pooled(sums)
    interval = evidence.interval(sums, _slope)
    row = {
        "site": site,
        "slope": interval[0],
        "slope_low": interval[1],
        "slope_high": interval[2],
        "slope_before": float(_slope(before.sum(0)[None])[0]),
        "alpha_small": float(alpha[-1]),
        "alpha_large": float(alpha[0]),
        "ratio_small": float(ratio[-1]),
        "ratio_large": float(ratio[0]),
        "plane_small": _along_ones(evidence, site, cloud),
        **_own_balls(evidence, cloud),
        "tokens": len(cloud),
    }
    return _Found(interval, sums, before, row)


def _along_ones(evidence: Evidence, site: str, cloud: Sampled) -> float:
    """Variance along 1 against the tangential mean, in the neighbourhood of the first token, drawn in."""
    norm = evidence.anatomy.norms[site]
    near = (cloud.z @ cloud.z[0]).topk(NEIGHBOURS).indices
    ball = norm.direction(cloud.x[0] + SCALES[-1] * (cloud.x[near] - cloud.x[0]))
    along = ball.sum(-1).var() / norm.d
    return float(along / (ball.var(0).sum() / norm.d))


def _own_balls(evidence: Evidence, cloud: Sampled) -> dict[str, float | None]:
    """The claim to the letter: balls of the tokens themselves."""
    import torch

    from armillary.geometry.local import radial_to_tangential

    document = torch.from_numpy(cloud.document)
    counts = [k for k in OWN_BALLS if k + 1 < len(document) - int(torch.bincount(document).max())]
    if len(counts) < 3:
        return {"own_slope": None, "own_alpha_small": None, "own_alpha_large": None}
    balls = radial_to_tangential(cloud.z, counts, OWN_CENTRES, evidence.seed, document)
    alpha, _ = _pooled(balls.sums())
    slope = float(_slope(balls.sums().sum(0)[None])[0])
    return {"own_slope": slope, "own_alpha_small": float(alpha[0]), "own_alpha_large": float(alpha[-1])}


def _median(evidence: Evidence, sums: list[Floats]) -> tuple[float, float, float]:
    if not sums:
        return float("nan"), float("nan"), float("nan")
    return evidence.across_sites(np.stack(sums), _slope, np.nanmedian)


def _own(found: list[_Found]) -> float:
    """The median site's slope in the tokens' own balls; NaN where there are none."""
    slopes = [one.row["own_slope"] for one in found if one.row["own_slope"] is not None]
    return float(np.nanmedian(slopes)) if slopes and not np.isnan(slopes).all() else float("nan")


def _verdict(value: float, low: float, high: float, own: float) -> Verdict:
    if np.isnan([value, low, high]).any():
        return "undecided"
    if high < T.local_slope_none:
        return "refuted"
    falls = T.local_slope - T.local_slope_within <= low <= high <= T.local_slope + T.local_slope_within
    return "supported" if falls and own >= T.local_slope - T.local_slope_within else "qualified"


def _controls(evidence: Evidence, found: list[_Found]) -> tuple[Control, ...]:
    made = [Control("before the norm", *_median(evidence, [one.before for one in found]))]
    # A median over a dozen sites spread over the depth says what a control must, at a fifth of the cost.
    sites = evidence.sites[:: max(1, len(evidence.sites) // 12)]
    for arm in evidence.controls():
        sums = over_sites(sites, partial(_arm_sums, evidence, arm)).values()
        made.append(Control(arm, *_median(evidence, [one for one in sums if one is not None])))
    return tuple(made)


def _arm_sums(evidence: Evidence, arm: str, site: str) -> Floats | None:
    record = evidence.records[arm][site]
    return _contracted(evidence, sampled(record).distinct(), record.norm.direction)


def _reading(evidence: Evidence, verdict: Verdict, value: float, found: list[_Found], left: list[str]) -> str:
    if verdict == "undecided":
        return "Too few tokens or documents for balls of neighbours; give more text (--tokens)."
    large, small = (np.median([one.row[end] for one in found]) for end in ("alpha_large", "alpha_small"))
    kinds = {norm.kind for norm in evidence.anatomy.norms.values()}
    plane = "; the plane shows as no variance along 1" if kinds == {"layernorm"} else ""
    tail = f" Not measured at {name_sites(left)}." if left else ""
    own = _own(found)
    spacing = ""
    if not np.isnan(own):
        ends = [np.nanmedian([one.row[f"own_alpha_{end}"] or np.nan for one in found]) for end in ("small", "large")]
        spacing = f" At the tokens' own spacing ({ends[0]:.0f}° to {ends[1]:.0f}°) it goes like α^{own:.2g}."
    return (
        f"Drawn in from {large:.0f}° to {small:.0f}°, the radial share falls like α^{value:.2g}{plane}: a property of "
        f"the norm by definition; what is measured is this model's deviation.{spacing}{tail}"
    )


def _headline(verdict: Verdict, value: float, own: float) -> str:
    if verdict == "undecided":
        return "Too few tokens for balls of neighbours: nothing can be concluded"
    if verdict == "refuted":
        return f"Radial variance does not fall: like α^{value:.2g} of the tangential in the median site"
    if verdict == "supported":
        return f"Radial variance falls as on a sphere: like α^{value:.2g} of the tangential in the median site"
    return f"Radial variance falls like α^{value:.2g} where balls are drawn in, like α^{own:.2g} where tokens are"


def _quantities(sites: list[str], slopes: Floats, found: list[_Found]) -> tuple[Quantity, ...]:
    middle = len(found) // 2
    alpha, ratio = _pooled(found[middle].sums)
    _, before = _pooled(found[middle].before)
    axis = "ball size α (degrees)"
    return (
        Quantity(
            "slope of the fall",
            "log(radial/tangential variance) on log α",
            "",
            ("site",),
            {"site": sites},
            slopes[:, 0],
            slopes[:, 1],
            slopes[:, 2],
            {"before the norm": np.array([one.row["slope_before"] for one in found])},
            {"sphere: 2": np.full(len(sites), T.local_slope)},
        ),
        Quantity(
            f"radial over tangential variance at {sites[middle]}",
            "pooled over balls of one size",
            "ratio",
            (axis,),
            {axis: alpha.tolist()},
            ratio,
            controls={"before the norm": before},
            theory={"∝ α²": ratio[-1] * (alpha / alpha[-1]) ** 2},
            logs=(axis, "value"),
        ),
    )
