"""Do directions that a head cannot see make queries attend to all keys equally?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.cosine import sampled_note
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats
from armillary.probes.machinery.per_head import grid, head_map, head_table, median_head, name_heads, sums
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Verdict

# Ranks are spread over (0, 1]: a variance of a millionth is that of hardly any two different values.
FLAT = 1e-6
# Shares of |z|² that differ by less are one share and the rounding of float32, which inverting W_Q magnifies.
ALIKE = 1e-4
COLUMNS = (
    Column("head", "head"),
    Column("rho", "rank correlation, at equal position, of the query's null share and its pattern's entropy"),
    Column("rho_low", "its 95 % interval over documents, low end"),
    Column("rho_high", "its 95 % interval over documents, high end"),
    Column("rho_update", "the same of the attended tokens' null share for W_VO and the length of the head's write"),
    Column("null_query", "share of |z|² that W_QK cannot see from the query side; 1 − k/d for a random z"),
    Column("null_key", "the same from the key side"),
    Column("null_value", "share of |z|² that W_VO cannot see, attended tokens"),
    Column("uniform", "share of queries with 95 % of the largest entropy or more"),
)


@dataclass(frozen=True)
class Nullspace:
    """Energy of z outside what W_QK and W_VO see, token by token, against entropy and update."""

    claim: ClassVar[Claim] = Claim(
        id="rank.nullspace",
        chapter="B",
        statement="k < d leaves null directions: queries that lie in them attend to all keys equally.",
        source="S0",
        definition=(
            "Per token and head, the share of |z|² in the null space of W_QK (query side, key side) and of W_VO. The "
            "statistic is the rank correlation, over sampled queries and at equal position (later queries see more keys), of "
            "the query's null share and the entropy of its pattern over ln(keys); likewise of the attended tokens' null share "
            "for W_VO and the length of what the head writes."
        ),
        control="null shares dealt to other tokens; random initialisation; shuffled text",
        rule=(
            f"Supported: the median head's correlation lies above {T.null_predicts} with its whole interval, and above that at "
            "random initialisation, where algebra alone makes one (a query seen less has smaller scores). Refuted: it lies "
            f"below {T.null_nothing} with its whole interval. Undecided: the interval spans both, or most heads see every query "
            "alike. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("attention",)

    def conclude(self, evidence: Evidence) -> Finding:
        stats = _products(evidence, MODEL, "null_query", "entropy")
        rho, low, high = grid(evidence, stats, _partial)
        median = median_head(evidence, stats, _partial)
        update = _partial(_products(evidence, MODEL, "null_value", "update").sum(0))
        twin = median_head(evidence, _products(evidence, RANDOM, "null_query", "entropy"), _partial)
        alike = float(np.mean(evidence.attention[MODEL].sampled("null_query").std(-1) < ALIKE))
        verdict = _verdict(median, twin) if alike < T.heads_many else "undecided"
        shares = [_average(evidence, name) for name in ("null_query", "null_key", "null_value")]
        uniform = (evidence.attention[MODEL].sampled("entropy") >= T.uniform_entropy).mean(-1)
        shuffled = _products(evidence, MODEL, "null_query", "entropy", permuted=True)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("rank correlation of null share and entropy, median head", *median),
            n=evidence.attention[MODEL].queries,
            controls=(
                Control("null shares dealt to other tokens", *median_head(evidence, shuffled, _partial)),
                *(
                    Control(arm, *median_head(evidence, _products(evidence, arm, "null_query", "entropy"), _partial))
                    for arm in evidence.controls()
                ),
            ),
            reading=_reading(evidence, verdict, median[0], low, update),
            headline=f"What a head cannot see of a query tells its entropy with ρ = {median[0]:.2f} in the median head",
            table=head_table(evidence, COLUMNS, (rho, low, high, update, *shares, uniform)),
            quantities=_quantities(evidence, rho),
            notes=(sampled_note(evidence),),
        )


def _products(evidence: Evidence, arm: str, first: str, second: str, permuted: bool = False) -> Floats:
    """[group, layer, head, 10]: sums of 1, x, y, p and their products, for ranks x, y and the position's rank p."""
    from scipy.stats import rankdata

    record = evidence.attention[arm]
    x, y = (rankdata(record.sampled(name), axis=-1) / max(1, record.queries) for name in (first, second))
    if permuted:
        x = x[..., np.random.default_rng(evidence.seed).permutation(record.queries)]
    p = np.broadcast_to(rankdata(record.positions()) / max(1, record.queries), x.shape)
    return sums(record, [np.ones_like(x), x, y, p, x * x, y * y, p * p, x * y, x * p, y * p])


def _partial(stats: Floats) -> Floats:
    """Correlation of x and y at equal p, from the sums of `_products`."""
    n, x, y, p, xx, yy, pp, xy, xp, yp = np.moveaxis(stats, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        sx, sy, sp = (np.maximum(square / n - (side / n) ** 2, 0) for square, side in ((xx, x), (yy, y), (pp, p)))
        cxy, cxp, cyp = (both / n - a * b / n**2 for both, a, b in ((xy, x, y), (xp, x, p), (yp, y, p)))
        # Queries that all stand at one place (documents just long enough) need no partial.
        placed = sp > FLAT
        left_x, left_y = (np.where(placed, s - c**2 / np.where(placed, sp, 1), s) for s, c in ((sx, cxp), (sy, cyp)))
        part = np.where(placed, cxy - cxp * cyp / np.where(placed, sp, 1), cxy)
        rho = part / np.sqrt(left_x * left_y)
    # A head that sees every query alike has nothing to tell, and its variance is rounding.
    return np.where((left_x > FLAT) & (left_y > FLAT), np.clip(np.nan_to_num(rho), -1, 1), 0.0)


def _verdict(median: tuple[float, float, float], twin: tuple[float, float, float]) -> Verdict:
    value, low, high = median
    if np.isnan(low):
        return "undecided"
    if low > T.null_predicts:
        return "supported" if value > twin[2] else "qualified"
    if high < T.null_nothing:
        return "refuted"
    return "undecided" if low < T.null_nothing and high > T.null_predicts else "qualified"


def _average(evidence: Evidence, name: str) -> Floats:
    return np.asarray(evidence.attention[MODEL].sampled(name).mean(-1))


def _quantities(evidence: Evidence, rho: Floats) -> tuple[Quantity, ...]:
    a = evidence.anatomy
    return (
        head_map(
            "correlation of null share and entropy",
            "rank correlation over queries at equal position",
            "ρ",
            rho,
            {arm: _partial(_products(evidence, arm, "null_query", "entropy").sum(0)) for arm in evidence.controls()},
        ),
        head_map(
            "share of the query that W_QK cannot see",
            f"of |z|²; 1 − k/d = {max(0.0, 1 - a.k / a.d):.2f} for a random direction",
            "share of |z|²",
            _average(evidence, "null_query"),
        ),
    )


def _reading(evidence: Evidence, verdict: Verdict, median: float, low: Floats, update: Floats) -> str:
    a = evidence.anatomy
    share = float(np.median(_average(evidence, "null_query")))
    told = (
        f"The median head cannot see {share:.0%} of a query (a random direction: {max(0.0, 1 - a.k / a.d):.0%}), and that "
        f"share tells the pattern's entropy with ρ = {median:.2f}"
    )
    strong: Flags = low > T.null_predicts
    if verdict == "qualified" and strong.any():
        told += f"; clearly in {int(strong.sum())} of {strong.size} heads ({name_heads(strong)})"
    if verdict == "undecided":
        told += "; the interval allows for both answers, or heads see all queries alike: more text, or another model, would decide"
    twin = float(np.median(_partial(_products(evidence, RANDOM, "null_query", "entropy").sum(0))))
    if twin > median:
        told += f"; at random initialisation it tells more ({twin:.2f}), since a query seen less has smaller scores"
    even = (evidence.attention[MODEL].sampled("entropy") >= T.uniform_entropy).mean(-1)
    told += f"; {float(np.median(even)):.0%} of its queries attend to nearly all keys alike"
    return f"{told}; for W_VO it tells the length of the write with ρ = {np.median(update):.2f}."
