"""Does the share of a query that a head cannot see predict how evenly it attends, token by token?"""

import numpy as np

from armillary.probes.attention.scores.sampled_queries import median_head
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, Evidence, Floats, T, above, beats
from armillary.probes.machinery.verdicts import missing_interval
from armillary.results import Part, Statistic, Verdict, Why, say

# Ranks are spread over (0, 1]: a variance of a millionth means that hardly two values differ.
FLAT = 1e-6
# Shares of |z|² that differ by less are equal up to the rounding of float32, which inverting W_Q amplifies.
ALIKE = 1e-4


def moments(evidence: Evidence, arm: str, first: str = "null_query", second: str = "entropy") -> Floats:
    """[group, layer, head, 10]: sums of 1, x, y, p and their products, for ranks x, y and the position's rank p."""
    from scipy.stats import rankdata

    rows = evidence[HEADS][arm]
    x, y = (rankdata(rows.sampled(name), axis=-1) / max(1, rows.queries) for name in (first, second))
    p = np.broadcast_to(rankdata(rows.positions()) / max(1, rows.queries), x.shape)
    return rows.sums(np.ones_like(x), x, y, p, x * x, y * y, p * p, x * y, x * p, y * p)


def partial(stats: Floats) -> Floats:
    """Correlation of x and y at equal p, from the sums of `_moments`."""
    n, x, y, p, xx, yy, pp, xy, xp, yp = np.moveaxis(stats, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        sx, sy, sp = (np.maximum(square / n - (side / n) ** 2, 0) for square, side in ((xx, x), (yy, y), (pp, p)))
        cxy, cxp, cyp = (both / n - a * b / n**2 for both, a, b in ((xy, x, y), (xp, x, p), (yp, y, p)))
        # Queries that all stand at one position (documents just long enough) need no partial correlation.
        varies = sp > FLAT
        left_x, left_y = (np.where(varies, s - c**2 / np.where(varies, sp, 1), s) for s, c in ((sx, cxp), (sy, cyp)))
        covariance = np.where(varies, cxy - cxp * cyp / np.where(varies, sp, 1), cxy)
        rho = covariance / np.sqrt(left_x * left_y)
    # Where a head sees the same share of every query, the variance that is left is rounding.
    return np.where((left_x > FLAT) & (left_y > FLAT), np.clip(np.nan_to_num(rho), -1, 1), 0.0)


def correlation_part(evidence: Evidence) -> Part:
    """The median head's correlation of null share and entropy, beside the twins', where algebra alone makes one."""
    median = median_head(evidence, moments(evidence, MODEL), partial)
    twins = evidence.over_twins(lambda arm: median_head(evidence, moments(evidence, arm), partial))
    verdict: Verdict = "refuted"
    why: Why | None = None
    large, beyond = above(median, T.null_predicts), beats(median, twins, len(evidence.twins), T.null_nothing)
    if np.mean(evidence[HEADS][MODEL].sampled("null_query").std(-1) < ALIKE) >= T.heads_many:
        verdict, why = "undecided", Why.UNDEFINED
    elif large and beyond:
        verdict = "supported"
    elif large is not False and beyond is not False:
        verdict, why = "undecided", missing_interval(*median, *twins)
    reading = (
        f"A query's null share has a rank correlation of {say(median[0], '.2f')} with the entropy of its pattern in "
        f"the median head (untrained: {say(twins[0], '.2f')})"
    )
    statistic = Statistic("rank correlation of null share and entropy, median head", *median)
    return Part("null share predicts entropy beyond an untrained model", verdict, reading, statistic, False, why)
