"""Seen from close by, do both constraints of the sphere show?"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.evidence import MODEL, Evidence, Floats, Ints, name_sites
from armillary.probes.parallel import over_sites
from armillary.probes.probe import Instrument
from armillary.probes.sampled import sampled
from armillary.probes.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor

NEIGHBOURS = (8, 16, 32, 64, 128)
CENTRES = 128
COLUMNS = (
    Column("site", "norm site"),
    Column("slope", "slope of log(radial/tangential variance) on log α for z; 2 on a sphere, small balls"),
    Column("slope_low", "its 95 % interval over documents, low end"),
    Column("slope_high", "its 95 % interval over documents, high end"),
    Column("cap_slope", "the slope of a uniform spherical cap at these angles and this local dimension"),
    Column("slope_before", "the same slope for x, before the norm"),
    Column("alpha_small", "angular radius of the smallest balls, pooled", "degrees"),
    Column("alpha_large", "angular radius of the largest balls, pooled", "degrees"),
    Column("ratio_small", "radial over mean tangential variance in the smallest balls"),
    Column("ratio_large", "radial over mean tangential variance in the largest balls"),
    Column("dimension", "local dimension (maximum likelihood) behind cap_slope"),
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
            "Balls of 8 to 128 nearest tokens by angle (one token of each word form, never of the centre's own document: "
            "copies of a point have no shape) around 128 centres. In "
            "each: variance along the ball's axis over the mean tangential variance, pooled over centres; the slope of "
            "its logarithm on log α. The axis is the centre token's direction: along the ball's own mean direction the "
            "law is the same, but a few dozen tokens fix that direction too poorly. On a sphere the slope is 2 for small "
            "balls; uniform caps of many dimensions are steeper at the angles that tokens have, so that law is computed "
            "too (cap_slope)."
        ),
        control="the same tokens before the norm; random initialisation; shuffled text",
        rule=(
            f"Supported: the median site's slope interval meets [{T.local_slope - T.local_slope_within}, "
            f"{T.local_slope + T.local_slope_within}], or reaches up to the cap law's slope + {T.local_slope_within}. "
            f"Refuted: it lies below {T.local_slope_none} (no fall). Qualified: it falls, but not like that. Undecided: "
            f"an interval wider than {T.local_slope_widest:.0f}, or too few tokens or documents for balls."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("sample",)
    scaling: ClassVar[bool] = False

    def conclude(self, evidence: Evidence) -> Finding:
        measured = over_sites(evidence.sites, lambda site: _measure(evidence, MODEL, site))
        sites = [site for site, found in measured.items() if found is not None]
        kept = [found for found in measured.values() if found is not None]
        slopes = np.array([found.interval for found in kept]).reshape(-1, 3)
        value, low, high = _median(evidence, [found.sums for found in kept])
        cap = float(np.median([found.cap for found in kept])) if kept else float("nan")
        verdict = _verdict(value, low, high, cap)
        rows = [{**found.row, "site": site} for site, found in zip(sites, kept, strict=True)]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("log–log slope of radial/tangential variance, median site", value, low, high),
            n=int(np.median([found.row["tokens"] for found in kept])) if kept else 0,
            controls=_controls(evidence, kept),
            reading=_reading(verdict, value, cap, kept, [s for s in evidence.sites if s not in sites]),
            headline=_headline(verdict, value),
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(sites, slopes, kept) if kept else (),
        )


@dataclass(frozen=True, eq=False)
class _Found:
    interval: tuple[float, float, float]
    sums: Floats
    before: Floats
    cap: float
    alpha: Floats
    ratio: Floats
    row: Mapping[str, Any]


def _ball_sums(evidence: Evidence, points: "Tensor", documents: Ints) -> Floats | None:
    """[group, ball size, 3] of what adds up over balls; None where there are too few tokens outside a document."""
    import torch

    from armillary.geometry.local import radial_to_tangential

    assert evidence.corpus is not None
    groups = evidence.corpus.groups
    document = torch.from_numpy(documents)
    fullest = int(torch.bincount(document).max()) if len(document) else 0
    counts = [k for k in NEIGHBOURS if k + 1 < len(document) - fullest]
    if len(counts) < 3:
        return None
    balls = radial_to_tangential(points, counts, CENTRES, evidence.seed, document, axis="centre")
    sums = np.zeros((groups, len(counts), 3))
    np.add.at(sums, documents[balls.centres] % groups, balls.sums())
    return sums


def _slope(drawn: Floats) -> Floats:
    from armillary.geometry.local import pooled_slope

    return np.asarray(pooled_slope(drawn))


def _pooled(sums: Floats) -> tuple[Floats, Floats]:
    """α and ratio per ball size, over all balls."""
    radial, tangential, weighted = np.moveaxis(sums.sum(0), -1, 0)
    return np.sqrt(weighted / tangential), radial / tangential


def _measure(evidence: Evidence, arm: str, site: str) -> _Found | None:
    from armillary.geometry.dimension import mle_dimension, pairwise_sq_distances

    cloud = sampled(evidence.records[arm][site]).distinct()
    sums = _ball_sums(evidence, cloud.z, cloud.document)
    if sums is None:
        return None
    before = _ball_sums(evidence, cloud.x, cloud.document)
    assert before is not None
    alpha, ratio = _pooled(sums)
    dimension = mle_dimension(pairwise_sq_distances(cloud.z), 16).value
    interval, cap = evidence.interval(sums, _slope), _cap_slope(alpha, dimension, evidence.anatomy.d)
    row = {
        "slope": interval[0],
        "slope_low": interval[1],
        "slope_high": interval[2],
        "cap_slope": cap,
        "slope_before": float(_slope(before.sum(0)[None])[0]),
        "alpha_small": float(np.degrees(alpha[0])),
        "alpha_large": float(np.degrees(alpha[-1])),
        "ratio_small": float(ratio[0]),
        "ratio_large": float(ratio[-1]),
        "dimension": dimension,
        "tokens": len(cloud),
    }
    return _Found(interval, sums, before, cap, alpha, ratio, row)


def _cap_slope(alpha: Floats, dimension: float, d: int) -> float:
    from armillary.geometry.sphere import cap_ratio

    m = min(max(1, round(dimension)), d - 1)
    law = np.array([cap_ratio(float(a), m, d) for a in alpha])
    return float(np.polyfit(np.log(alpha), np.log(law), 1)[0])


def _median(evidence: Evidence, sums: list[Floats]) -> tuple[float, float, float]:
    if not sums:
        return float("nan"), float("nan"), float("nan")
    sizes = min(one.shape[1] for one in sums)
    return evidence.across_sites(np.stack([one[:, :sizes] for one in sums]), _slope, np.nanmedian)


def _verdict(value: float, low: float, high: float, cap: float) -> Verdict:
    if np.isnan([value, low, high]).any() or high - low > T.local_slope_widest:
        return "undecided"
    top = max(T.local_slope, cap) + T.local_slope_within
    if high >= T.local_slope - T.local_slope_within and low <= top:
        return "supported"
    return "refuted" if high < T.local_slope_none else "qualified"


def _controls(evidence: Evidence, kept: list[_Found]) -> tuple[Control, ...]:
    made = [Control("before the norm", *_median(evidence, [found.before for found in kept]))]
    # A median over a dozen sites spread over the depth says what a control must, at a fifth of the cost.
    step = max(1, len(evidence.sites) // 12)
    sites = evidence.sites[::step]
    for arm in evidence.controls():
        found = over_sites(sites, partial(_arm_sums, evidence, arm))
        made.append(Control(arm, *_median(evidence, [one for one in found.values() if one is not None])))
    return tuple(made)


def _arm_sums(evidence: Evidence, arm: str, site: str) -> Floats | None:
    cloud = sampled(evidence.records[arm][site]).distinct()
    return _ball_sums(evidence, cloud.z, cloud.document)


def _reading(verdict: Verdict, value: float, cap: float, kept: list[_Found], left: list[str]) -> str:
    if verdict == "undecided":
        return "Too few tokens or documents to fix the slope; give more text (--tokens)."
    small, large = (np.degrees(np.median([found.alpha[end] for found in kept])) for end in (0, -1))
    tail = f" Not measured at {name_sites(left)}." if left else ""
    return (
        f"From balls of {large:.0f}° down to {small:.0f}° the ratio falls like α^{value:.2g} (a uniform cap of this "
        f"local dimension: α^{cap:.2g}); the length constraint shows locally, not as a zero eigenvalue.{tail}"
        if verdict == "supported"
        else f"From balls of {large:.0f}° down to {small:.0f}° the ratio goes like α^{value:.2g}, where the sphere's law "
        f"is α² and a uniform cap of this local dimension α^{cap:.2g}.{tail}"
    )


def _headline(verdict: Verdict, value: float) -> str:
    if verdict == "undecided":
        return "Too few tokens for balls of neighbours: nothing can be concluded"
    falls = {
        "supported": "falls as the sphere's law says",
        "refuted": "does not fall",
        "qualified": "falls, not like α²",
    }
    return f"Radial variance {falls[verdict]}: α^{value:.2g} in the median site"


def _quantities(sites: list[str], slopes: Floats, kept: list[_Found]) -> tuple[Quantity, ...]:
    middle = kept[len(kept) // 2]
    alpha, ratio = np.degrees(middle.alpha), middle.ratio
    _, before = _pooled(middle.before)
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
            {"before the norm": np.array([float(found.row["slope_before"]) for found in kept])},
            {"sphere, small balls: 2": np.full(len(sites), 2.0), "uniform cap": np.array([f.cap for f in kept])},
        ),
        Quantity(
            f"radial over tangential variance at {sites[len(kept) // 2]}",
            "pooled over balls of one size",
            "ratio",
            ("ball radius α (degrees)",),
            {"ball radius α (degrees)": alpha.tolist()},
            ratio,
            controls={"before the norm": before},
            theory={"∝ α²": ratio[-1] * (alpha / alpha[-1]) ** 2},
            logs=("ball radius α (degrees)", "value"),
        ),
    )
