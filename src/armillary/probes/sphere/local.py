"""Seen from close by, do both constraints of the sphere show?"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import NAN3, AnyInstrument, Evidence, Floats, Interval, T, median_defined, over_sites
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.machinery.verdicts import missing_interval, name_sites, undecided
from armillary.probes.sphere.across_sites import across_sites, by_site
from armillary.probes.sphere.balls import SiteBalls, arm_sums, pooled, site_balls, slope
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, Why, say

LEAST_OWN_SLOPE = T.local_slope - T.local_slope_within
MOST_CONTROL_SITES = 12


@dataclass(frozen=True)
class Local:
    """Radial and tangential variance in balls of shrinking angle: the two zeros of S3, corrected."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.local",
        chapter="A",
        statement="Locally both constraints show: in balls of angle α, radial over tangential variance falls like α².",
        source="S3, repaired",
        definition=(
            "A ball is one of 48 tokens with its 24 nearest tokens by angle: one token per word form, none from the "
            "centre's document. Tokens are tens of degrees apart, so no such ball is small. Each ball is therefore "
            "contracted towards its centre before the norm, to ¼, ⅛, 1/16 and 1/32, and then normalised. The statistic "
            "is the slope of log(variance along the ball's mean direction / mean tangential variance) on log α, pooled "
            "over balls, at the median site. On a sphere it is 2. The table also holds the slope in balls that are not "
            "contracted (own_slope). Under LayerNorm the plane shows as zero variance along 1."
        ),
        control="the same balls before the norm (slope 0); random initialisation; shuffled text",
        rule=(
            f"Supported if the slope's interval lies within {T.local_slope:.0f} ± {T.local_slope_within} and own_slope "
            f"is at least {LEAST_OWN_SLOPE} at the median site. Refuted if the interval lies below "
            f"{T.local_slope_none}. Qualified otherwise; any norm with a small ε gives the slope in contracted balls, "
            "so that slope alone is no support. Undecided without an interval (too few tokens or documents)."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)

    def conclude(self, evidence: Evidence) -> Finding:
        measured = over_sites(evidence.sites, partial(site_balls, evidence))
        balls = {site: site_ball for site, site_ball in measured.items() if site_ball is not None}
        if not balls:
            reading = "Too few tokens for balls of nearest tokens. Give more text (--tokens)."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, site_table([]))
        sums = np.stack([site_ball.after for site_ball in balls.values()])
        slopes = by_site(evidence, sums, slope)
        value, low, high = _median_site(evidence, list(sums))
        own = median_defined(site_ball.own_slope for site_ball in balls.values())
        verdict = _verdict(value, low, high, own)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("log–log slope of radial/tangential variance, median site", value, low, high),
            n=int(np.median([site_ball.tokens for site_ball in balls.values()])),
            controls=_controls(evidence, balls),
            reading=_reading(evidence, verdict, value, own, balls),
            headline=_headline(verdict, value, own),
            table=_table(balls, slopes),
            quantities=_quantities(balls, slopes),
            why=missing_interval(low, high) if verdict == "undecided" else None,
        )


def _median_site(evidence: Evidence, sums: list[Floats]) -> Interval:
    return across_sites(evidence, np.stack(sums), slope, np.nanmedian) if sums else NAN3


def _verdict(value: float, low: float, high: float, own: float) -> Verdict:
    if np.isnan([value, low, high]).any():
        return "undecided"
    if high < T.local_slope_none:
        return "refuted"
    falls = T.local_slope - T.local_slope_within <= low <= high <= T.local_slope + T.local_slope_within
    return "supported" if falls and own >= LEAST_OWN_SLOPE else "qualified"


def _table(balls: dict[str, SiteBalls], slopes: Floats) -> Table:
    every = list(balls.values())
    alpha, ratio = np.moveaxis(np.array([pooled(site_ball.after) for site_ball in every]), 1, 0)
    before = slope(np.stack([site_ball.before.sum(0) for site_ball in every]))
    own_slopes = [site_ball.own_slope for site_ball in every]
    own_alpha = np.array([site_ball.own_alpha for site_ball in every])
    along_ones = [site_ball.along_ones for site_ball in every]
    return site_table(
        list(balls),
        interval_cells("slope", "slope of log(radial/tangential variance) on log α, contracted balls", slopes),
        cells("slope_before", "the same slope for x, before the norm", before),
        cells("alpha_small", "angular size of the smallest balls, pooled", alpha[:, -1], "degrees"),
        cells("alpha_large", "angular size of the largest balls (contracted to ¼), pooled", alpha[:, 0], "degrees"),
        cells("ratio_small", "radial over mean tangential variance in the smallest balls", ratio[:, -1]),
        cells("ratio_large", "radial over mean tangential variance in the largest balls", ratio[:, 0]),
        cells("plane_small", "variance along 1 over mean tangential variance: 0 under LayerNorm", along_ones),
        cells(
            "own_slope", "the slope in balls of 8 to 128 nearest tokens, not contracted; empty if too few", own_slopes
        ),
        cells("own_alpha_small", "angular radius of those of 8 tokens", own_alpha[:, 0], "degrees"),
        cells("own_alpha_large", "angular radius of the largest of those", own_alpha[:, 1], "degrees"),
        cells("tokens", "sampled ordinary tokens, one per word form", [b.tokens for b in every], "tokens"),
    )


def _controls(evidence: Evidence, balls: dict[str, SiteBalls]) -> tuple[Control, ...]:
    before = _median_site(evidence, [site_ball.before for site_ball in balls.values()])
    controls = [Control("before the norm", *before)]
    # A median over a dozen sites spread over the depth is enough for a control, at a fifth of the cost.
    sites = evidence.sites[:: max(1, len(evidence.sites) // MOST_CONTROL_SITES)]
    for arm in evidence.controls(SAMPLES):
        by_arm = over_sites(sites, partial(arm_sums, evidence, arm)).values()
        controls.append(Control(arm, *_median_site(evidence, [sums for sums in by_arm if sums is not None])))
    return tuple(controls)


def _reading(evidence: Evidence, verdict: Verdict, value: float, own: float, balls: dict[str, SiteBalls]) -> str:
    if verdict == "undecided":
        return "Too few tokens or documents for an interval. Give more text (--tokens)."
    alpha = np.median([pooled(site_ball.after)[0] for site_ball in balls.values()], axis=0)
    contracted = f"The ratio of radial to tangential variance goes like α^{say(value, '.2g')} in balls contracted to "
    contracted += f"{say(alpha[0], '.0f')}° … {say(alpha[-1], '.0f')}°; on a sphere, like α²."
    spacing = ""
    if not np.isnan(own):
        ends = [median_defined(site_ball.own_alpha[end] for site_ball in balls.values()) for end in (0, 1)]
        angles = f"{say(ends[0], '.0f')}° to {say(ends[1], '.0f')}°"
        spacing = f" In balls of nearest tokens, not contracted ({angles}), it goes like α^{say(own, '.2g')}."
    kinds = {norm.kind for norm in evidence.anatomy.norms.values()}
    plane = " The plane shows as zero variance along 1." if kinds == {"layernorm"} else ""
    missing = [site for site in evidence.sites if site not in balls]
    rest = f" Not measured at {name_sites(missing)}." if missing else ""
    formula = " Any norm with a small ε gives the first, by its formula."
    return f"{contracted}{spacing}{formula}{plane}{rest}"


def _headline(verdict: Verdict, value: float, own: float) -> str:
    power = f"α^{say(value, '.2g')}"
    if verdict == "undecided":
        return "Nothing can be concluded: too few tokens for balls of nearest tokens"
    if verdict == "refuted":
        return f"Radial over tangential variance does not fall: it goes like {power} at the median site"
    if verdict == "supported":
        return f"Radial over tangential variance falls as on a sphere: like {power} at the median site"
    others = "" if np.isnan(own) else f", like α^{say(own, '.2g')} in others"
    return f"Radial over tangential variance goes like {power} in contracted balls{others}"


def _quantities(balls: dict[str, SiteBalls], slopes: Floats) -> tuple[Quantity, ...]:
    sites, every = list(balls), list(balls.values())
    middle, axis = len(sites) // 2, "ball size α (degrees)"
    before = {"before the norm": slope(np.stack([site_ball.before.sum(0) for site_ball in every]))}
    sphere = {"sphere: 2": np.full(len(sites), T.local_slope)}
    alpha, ratio = pooled(every[middle].after)
    name, meaning = "slope of the fall", "log(radial/tangential variance) on log α"
    return (
        line(name, meaning, "", "site", sites, slopes, before, sphere),
        line(
            f"radial over tangential variance at {sites[middle]}",
            "pooled over balls of one size",
            "ratio",
            axis,
            alpha.tolist(),
            ratio,
            {"before the norm": pooled(every[middle].before)[1]},
            {"∝ α²": ratio[-1] * (alpha / alpha[-1]) ** 2},
            (axis, "value"),
        ),
    )
