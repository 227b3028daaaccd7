"""Do queries attend to all keys equally where a head cannot see them?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.sampled_queries import median_head, sampling_note
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, Interval, T, name_heads
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Table, Verdict, Why, say

# Ranks are spread over (0, 1]: a variance of a millionth means that hardly two values differ.
FLAT = 1e-6
# Shares of |z|² that differ by less are equal up to the rounding of float32, which inverting W_Q amplifies.
ALIKE = 1e-4
PERMUTED = "null shares shuffled between tokens"


@dataclass(frozen=True)
class Nullspace:
    """The share of z that W_QK and W_VO cannot see, compared with entropy and with the length of the update."""

    claim: ClassVar[Claim] = Claim(
        id="rank.nullspace",
        chapter="B",
        statement="If k < d, a head has null directions; queries in them attend to all keys equally.",
        source="S0",
        definition=(
            "Per token and head, the null share is the share of |z|² in the null space of W_QK (on the query side and "
            "on the key side) or of W_VO. The statistic is the rank correlation, over sampled queries, of the query's "
            "null share and the entropy of its attention pattern divided by ln(keys). It is a partial correlation at "
            "equal position, because later queries see more keys. The same is computed for W_VO: the null share of "
            "the attended tokens and the length of what the head writes."
        ),
        control=f"{PERMUTED}; random initialisation; shuffled text",
        rule=(
            f"Supported if the whole interval of the median head's correlation lies above {T.null_predicts}, and the "
            "correlation exceeds the upper end at random initialisation, where algebra alone makes one (a query seen "
            f"less has smaller scores). Refuted if the whole interval lies below {T.null_nothing}. Undecided if the "
            f"interval contains both {T.null_nothing} and {T.null_predicts} or is missing, or if at least half of "
            "the heads see the same share of every query. Qualified otherwise."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "At first only the size of the correlation counted, and untrained models passed. The correlation "
                "must now also exceed random initialisation.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)

    def conclude(self, evidence: Evidence) -> Finding:
        rows, stats = evidence[HEADS][MODEL], _moments(evidence, MODEL)
        rho, median = evidence.intervals(stats, _partial), median_head(evidence, stats, _partial)
        arms = {arm: _moments(evidence, arm) for arm in evidence.controls(HEADS)}
        twin = median_head(evidence, arms[RANDOM], _partial)
        verdict, why = _verdict(median, twin)
        if np.mean(rows.sampled("null_query").std(-1) < ALIKE) >= T.heads_many:
            verdict, why = "undecided", Why.UNDEFINED
        permuted = _moments(evidence, MODEL, permuted=True)
        share = rows.sampled("null_query").mean(-1)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("rank correlation of null share and entropy, median head", *median),
            n=rows.queries,
            controls=tuple(
                Control(name, *median_head(evidence, sums, _partial))
                for name, sums in {PERMUTED: permuted, **arms}.items()
            ),
            reading=_reading(evidence, why, rho, median[0], twin[0]),
            headline=f"A query's null share correlates with entropy: ρ = {say(median[0], '.2f')} in the median head",
            table=_table(evidence, rho),
            quantities=(
                head_map(
                    "correlation of null share and entropy",
                    "rank correlation over queries at equal position",
                    "ρ",
                    rho[..., 0],
                    {arm: _partial(sums.sum(0)) for arm, sums in arms.items()},
                ),
                head_map(
                    "share of the query that W_QK cannot see",
                    f"share of |z|²; a random direction has 1 − k/d = {_random_share(evidence):.2f}",
                    "share of |z|²",
                    share,
                ),
            ),
            notes=(sampling_note(evidence),),
            why=why,
        )


def _moments(
    evidence: Evidence, arm: str, first: str = "null_query", second: str = "entropy", permuted: bool = False
) -> Floats:
    """[group, layer, head, 10]: sums of 1, x, y, p and their products, for ranks x, y and the position's rank p."""
    from scipy.stats import rankdata

    rows = evidence[HEADS][arm]
    x, y = (rankdata(rows.sampled(name), axis=-1) / max(1, rows.queries) for name in (first, second))
    if permuted:
        x = x[..., np.random.default_rng(evidence.seed).permutation(rows.queries)]
    p = np.broadcast_to(rankdata(rows.positions()) / max(1, rows.queries), x.shape)
    return rows.sums(np.ones_like(x), x, y, p, x * x, y * y, p * p, x * y, x * p, y * p)


def _partial(stats: Floats) -> Floats:
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


def _verdict(median: Interval, twin: Interval) -> tuple[Verdict, Why | None]:
    value, low, high = median
    if np.isnan(low):
        return "undecided", Why.NO_INTERVAL
    if low > T.null_predicts:
        return "supported" if value > twin[2] else "qualified", None
    if high < T.null_nothing:
        return "refuted", None
    if low < T.null_nothing and high > T.null_predicts:
        return "undecided", Why.SPANS_LIMIT
    return "qualified", None


def _table(evidence: Evidence, rho: Floats) -> Table:
    rows = evidence[HEADS][MODEL]
    update = _partial(_moments(evidence, MODEL, "null_value", "update").sum(0))
    uniform = (rows.sampled("entropy") >= T.uniform_entropy).mean(-1)
    query, key, value = (rows.sampled(f"null_{side}").mean(-1) for side in ("query", "key", "value"))
    return head_table(
        evidence.anatomy,
        interval_cells("rho", "rank correlation at equal position of the query's null share and entropy", rho),
        cells("rho_update", "the same of the attended tokens' null share for W_VO and the length of the write", update),
        cells("null_query", "share of |z|² that W_QK cannot see on the query side; 1 − k/d for a random z", query),
        cells("null_key", "the same on the key side", key),
        cells("null_value", "share of |z|² of the attended tokens that W_VO cannot see", value),
        cells("uniform", "share of queries with at least 95 % of the largest entropy", uniform),
    )


def _random_share(evidence: Evidence) -> float:
    """The null share of a random direction."""
    return max(0.0, 1 - evidence.anatomy.k / evidence.anatomy.d)


def _reading(evidence: Evidence, why: Why | None, rho: Floats, median: float, twin: float) -> str:
    rows = evidence[HEADS][MODEL]
    share = float(np.median(rows.sampled("null_query").mean(-1)))
    uniform = float(np.median((rows.sampled("entropy") >= T.uniform_entropy).mean(-1)))
    update = np.median(_partial(_moments(evidence, MODEL, "null_value", "update").sum(0)))
    parts = [
        f"The median head cannot see {share:.0%} of a query (of a random direction: {_random_share(evidence):.0%}). "
        f"This share correlates with the entropy of the pattern with ρ = {say(median, '.2f')}.",
        f"{uniform:.0%} of the median head's queries attend to nearly all keys equally.",
        f"For W_VO the null share correlates with the length of the write with ρ = {say(float(update), '.2f')}.",
    ]
    clear = rho[..., 1] > T.null_predicts
    if why is None and 0 < clear.sum() < clear.size:
        parts.insert(1, f"The correlation is clear in {clear.sum()} of {clear.size} heads ({name_heads(clear)}).")
    if twin > median:
        larger = f"At random initialisation ρ is larger, {say(twin, '.2f')}"
        parts.insert(1, f"{larger}: a query seen less has smaller scores.")
    if why is Why.UNDEFINED:
        parts.append("Most heads see the same share of every query, so this model cannot decide the claim.")
    elif why is not None:
        parts.append("The interval is missing or allows both answers; more text would decide.")
    return " ".join(parts)
