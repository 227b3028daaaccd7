"""What do balls around tokens say of either constraint, and of tokens' own neighbourhoods?"""

import numpy as np

from armillary.probes.machinery import NAN3, Evidence, Floats, Interval, T, above, median_defined
from armillary.probes.machinery.verdicts import missing_interval
from armillary.probes.sphere.across_sites import across_sites, defined_median
from armillary.probes.sphere.locality.balls import SiteBalls, pooled, slope
from armillary.results import Part, Statistic, Verdict, Why, say

SLOPE = "log–log slope of radial/tangential variance, median site"


def median_site(evidence: Evidence, sums: list[Floats]) -> Interval:
    return across_sites(evidence, np.stack(sums), slope, defined_median) if sums else NAN3


def _verdict(interval: Interval) -> Verdict:
    """Where an interval lies: around 2, where there is no fall, or elsewhere."""
    none, least, most = (
        above(interval, limit)
        for limit in (
            T.local_slope_none,
            T.local_slope - T.local_slope_within,
            T.local_slope + T.local_slope_within,
        )
    )
    if none is False:
        return "refuted"
    if None in (none, least, most):
        return "undecided"
    return "supported" if least and not most else "qualified"


def length_part(interval: Interval, before: Interval, balls: dict[str, SiteBalls]) -> Part:
    alpha = np.median([pooled(site_ball.after)[0] for site_ball in balls.values()], axis=0)
    reading = (
        f"In patches of {say(alpha[-1], '.0f')}° to {say(alpha[0], '.0f')}°, variation towards the centre shrinks like "
        f"α^{say(interval[0], '.2g')} with the patch's size α; on a sphere it would be α². Before the norm it is "
        f"α^{say(before[0], '.2g')}. For any norm with a small ε, α² follows from the formula."
    )
    verdict, why = _verdict(interval), None
    free = above(before, T.local_slope_none)
    if verdict == "supported" and free is not False:
        verdict = "undecided" if free is None else "qualified"
    if verdict == "undecided":
        why = missing_interval(*interval, *before)
        reading += " The interval is missing or spans a limit. Give more text (--tokens)."
    return Part("constant length shows", verdict, reading, Statistic(SLOPE, *interval), why=why)


def plane_part(evidence: Evidence, balls: dict[str, SiteBalls]) -> Part:
    name, kinds = "the plane shows", {norm.kind for norm in evidence.anatomy.norms.values()}
    if kinds != {"layernorm"}:
        reading = "RMSNorm subtracts no mean, so it has no plane to show."
        return Part(name, "undecided", reading, asserted=False, why=Why.NOT_APPLICABLE)
    largest = max(site_ball.along_ones for site_ball in balls.values())
    statistic = Statistic("variance along 1 / tangential variance, worst site", largest, largest, largest)
    if largest <= T.zero_eigenvalue:
        return Part(name, "supported", "The plane shows as zero variance along 1.", statistic)
    reading = f"The variance along 1 is {say(largest, '.2g')} of the tangential one; in the plane it would be 0."
    return Part(name, "refuted", reading, statistic)


def own_part(evidence: Evidence, balls: dict[str, SiteBalls]) -> Part:
    name = "tokens' own neighbourhoods show it"
    measured = [site_ball.own for site_ball in balls.values() if site_ball.own is not None]
    sizes = max((len(sums[0]) for sums in measured), default=0)
    interval = median_site(evidence, [sums for sums in measured if len(sums[0]) == sizes])
    ends = [median_defined(site_ball.own_alpha[end] for site_ball in balls.values()) for end in (0, 1)]
    angles = f"{say(ends[0], '.0f')}° to {say(ends[1], '.0f')}°"
    slopes = [site_ball.own_slope for site_ball in balls.values() if not np.isnan(site_ball.own_slope)]
    reading = f"Among tokens' own neighbours, {angles} apart, this variation goes like α^{say(interval[0], '.2g')} at "
    reading += f"the median site (exponents {say(min(slopes, default=np.nan), '.2g')} to "
    reading += f"{say(max(slopes, default=np.nan), '.2g')} over sites)."
    if not measured:
        return Part(name, "undecided", "", asserted=False, why=Why.TOO_LITTLE_TEXT)
    verdict = _verdict(interval)
    why = missing_interval(*interval) if verdict == "undecided" else None
    return Part(name, verdict, reading, Statistic(SLOPE, *interval), asserted=False, why=why)
