"""Seen from close by, do both constraints of the sphere show?"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    over_sites,
    weakest,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.machinery.verdicts import name_sites, undecided
from armillary.probes.sphere.across_sites import arm_controls, by_site
from armillary.probes.sphere.locality.balls import SiteBalls, arm_sums, pooled, site_balls, slope
from armillary.probes.sphere.locality.local_parts import SLOPE, length_part, median_site, own_part, plane_part
from armillary.results import (
    Claim,
    Control,
    Finding,
    Quantity,
    Rewording,
    RuleChange,
    Statistic,
    Table,
    Verdict,
    Why,
    say,
)

# A median over a few sites spread over the depth is enough for a control that holds by definition.
MOST_CONTROL_SITES = 5


@dataclass(frozen=True)
class Local:
    """Radial and tangential variance in balls of shrinking angle: the two zeros of S3, corrected."""

    claim: ClassVar[Claim] = Claim(
        id="spectrum.local",
        chapter="A",
        statement="Locally both constraints show: in balls of angle α, radial over tangential variance falls like α².",
        source="S3, repaired",
        question=(
            "A small patch of a sphere looks flat. In small patches of tokens, does the variation towards the "
            "centre of the sphere vanish as fast as on a true sphere?"
        ),
        definition=(
            "How fast the variation towards the centre of the sphere vanishes as a patch of tokens gets smaller. On a "
            "sphere it vanishes like the square of the patch's angular size α.\n"
            "A patch (ball) is one of 48 tokens with its 24 nearest tokens by angle: one token per word form, none "
            "from the same document as the centre. Tokens are tens of degrees apart, so no such ball is small. Each "
            "ball is therefore contracted towards its centre before the norm, to ¼, ⅛, 1/16 and 1/32 of its size, and "
            "then normalised.\n"
            "Radial variance is that along the ball's mean direction, towards the centre of the sphere; tangential "
            "variance is the mean over the directions across it. The statistic is the slope of log(radial/tangential "
            "variance) on log α, pooled over balls, at the median site: 2 on a sphere, 0 where length is free.\n"
            "Under LayerNorm the plane shows as zero variance along the all-ones vector 1. Any norm with a small ε has "
            "the constant length by its formula, and LayerNorm the plane as well, trained or not.\n"
            "A part of our own asks whether tokens' own neighbourhoods are small enough to show it: the slope in balls "
            "of 8 to 128 nearest tokens, not contracted."
        ),
        control="the same balls before the norm (slope 0); random initialisation, several times; shuffled text",
        rule=(
            "Two parts; the weaker decides. 'Above', 'below' and 'within' refer to the whole interval.\n"
            "Part 1, constant length.\n"
            f"Supported if the slope is within {T.local_slope:.0f} ± {T.local_slope_within} and the slope before the "
            f"norm is below {T.local_slope_none}.\n"
            f"Refuted if the slope is below {T.local_slope_none}.\n"
            f"Qualified if the slope is anywhere else, or if it is within {T.local_slope:.0f} ± {T.local_slope_within} "
            f"but the slope before the norm is above {T.local_slope_none}.\n"
            "Undecided if an interval spans a limit or is missing.\n"
            "Part 2, the plane (LayerNorm only).\n"
            f"Supported if the variance along 1 is at most {T.zero_eigenvalue:.0e} of the tangential variance at every "
            "norm.\n"
            "Refuted otherwise.\n"
            "RMSNorm has no plane: a model with RMSNorm is at most qualified.\n"
            "The part on balls that are not contracted is ours and decides nothing."
        ),
        kind="definition",
        changes=(
            RuleChange(
                "2026-11-16",
                "the slope in balls that are not contracted turned with the seed: it has an interval now, is a part of "
                "our own, and decides nothing; the slope before the norm and the plane are in the rule",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "f326fd7bfc9e", 1),
            Rewording("2026-11-18", "93c85a48c360", 1),
            Rewording("2026-11-19", "86cf60efe355", 1),
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
        measured_slope = median_site(evidence, list(sums))
        before = median_site(evidence, [site_ball.before for site_ball in balls.values()])
        parts = (length_part(measured_slope, before, balls), plane_part(evidence, balls), own_part(evidence, balls))
        verdict, why = weakest(parts)
        if verdict == "supported" and not parts[1].asserted:
            verdict = "qualified"
        missing = [site for site in evidence.sites if site not in balls]
        rest = f" Not measured at {name_sites(missing)}." if missing else ""
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(SLOPE, *measured_slope),
            n=int(np.median([site_ball.tokens for site_ball in balls.values()])),
            controls=(Control("before the norm", *before), *_controls(evidence)),
            reading=" ".join(part.reading for part in parts) + rest,
            headline=_headline(parts[0].verdict, measured_slope[0]),
            table=_table(balls, slopes),
            quantities=_quantities(balls, slopes),
            why=why,
            parts=parts,
        )


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


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    sites = evidence.sites[:: -(-len(evidence.sites) // MOST_CONTROL_SITES)]

    def in_arm(arm: str) -> Interval:
        by_arm = over_sites(sites, partial(arm_sums, evidence, arm)).values()
        return median_site(evidence, [sums for sums in by_arm if sums is not None])

    return arm_controls(evidence, SAMPLES, in_arm)


def _headline(verdict: Verdict, value: float) -> str:
    power = f"α^{say(value, '.2g')}"
    if verdict == "undecided":
        return "Nothing can be concluded: too few tokens for balls of nearest tokens"
    if verdict == "refuted":
        return f"Radial over tangential variance does not fall: it goes like {power} at the median site"
    if verdict == "supported":
        return f"Radial over tangential variance falls as on a sphere: like {power} at the median site"
    return f"Radial over tangential variance goes like {power} in contracted balls; on a sphere, like α²"


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
