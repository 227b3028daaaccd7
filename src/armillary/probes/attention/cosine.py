"""Is the attention score mostly the cosine of query and key?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.sampled_queries import LATER, WITHOUT_FIRST, changed_heads, median_head, sampling_note
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, Floats, Interval, T, mean, spread
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells
from armillary.probes.machinery.verdicts import by_share, largest_head, name_heads
from armillary.results import Claim, Control, Finding, Statistic, Table, Verdict, Why


@dataclass(frozen=True)
class Cosine:
    """R² of score on cosine, and how much attention moves when all keys get the same length."""

    claim: ClassVar[Claim] = Claim(
        id="attention.cosine",
        chapter="B",
        statement="Because norms are constrained, the attention score is mostly the cosine of query and key.",
        source="S3",
        definition=(
            "Per head, R² of the score on cos(q, k) with one slope for the head. Both are centred over the keys of a "
            "query, because softmax ignores what all keys share. q and k are taken as the model multiplies them, "
            "after rotation and q/k-norm. Also, the share of attention that moves (total variation) when every |k| is "
            "set to the mean over the keys that the query sees. Both are measured at sampled queries that see at least "
            "eight other keys; lengths of q and k at all tokens. Both are repeated without the key at position 0, "
            "where many heads put attention that they do not need."
        ),
        control="the first key left out; random initialisation; shuffled text",
        rule=(
            f"A head counts as mostly cosine if R² > {T.cosine_share}. Supported if at least {T.sites_most:.0%} of "
            f"heads do, and equal key lengths move at most {T.cosine_variation} of the attention in the median head. "
            f"Refuted if at most {T.sites_few:.0%} of heads do. Qualified otherwise. Undecided if the median head's R² "
            "has no interval. The numbers without the first key are for comparison only."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)

    def conclude(self, evidence: Evidence) -> Finding:
        rows, stats = evidence[HEADS][MODEL], _moments(evidence, MODEL)
        r2, median = evidence.intervals(stats, _r2), median_head(evidence, stats, _r2)
        later_stats = _moments(evidence, MODEL, LATER)
        later = _r2(later_stats.sum(0))
        moved, moved_later = (mean(rows.means(f"variation{which}").sum(0)) for which in ("", LATER))
        holds = r2[..., 0] > T.cosine_share
        verdict, why = _verdict(holds, moved, stats, median)
        arms = {arm: _moments(evidence, arm) for arm in evidence.controls(HEADS)}
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("R² of score on cosine, median head", *median),
            n=rows.queries,
            controls=tuple(
                Control(name, *median_head(evidence, sums, _r2))
                for name, sums in {**arms, WITHOUT_FIRST: later_stats}.items()
            ),
            reading=_reading(verdict, holds, median[0], moved) + _without_first(holds, later, moved_later),
            headline=f"Cosine explains {median[0]:.0%} of the variance of scores in the median head",
            table=_table(evidence, r2, later, moved, moved_later),
            quantities=(
                head_map(
                    "R² of score on cosine",
                    "share of the variance of a query's scores that cos(q, k) explains",
                    "R²",
                    r2[..., 0],
                    {WITHOUT_FIRST: later, **{arm: _r2(sums.sum(0)) for arm, sums in arms.items()}},
                ),
                head_map(
                    "attention moved by equal key lengths",
                    "total variation between the pattern and the pattern with every |k| at its mean",
                    "share of attention",
                    moved,
                    {WITHOUT_FIRST: moved_later},
                ),
            ),
            notes=(sampling_note(evidence),),
            why=why,
        )


def _moments(evidence: Evidence, arm: str, which: str = "") -> Floats:
    rows = evidence[HEADS][arm]
    return rows.sums(*(rows.sampled(name + which) for name in ("score_power", "cosine_power", "score_cosine")))


def _r2(stats: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = stats[..., 2] ** 2 / (stats[..., 0] * stats[..., 1])
    # Scores without variance, as from a matrix of zeros, leave nothing for a cosine to explain.
    return np.where(np.isfinite(r2), r2, 0.0)


def _verdict(holds: Flags, moved: Floats, stats: Floats, median: Interval) -> tuple[Verdict, Why | None]:
    if np.isnan(median[1]):
        return "undecided", Why.NO_INTERVAL if stats.any() else Why.UNDEFINED
    verdict = by_share(holds)
    if verdict == "supported" and np.median(moved) > T.cosine_variation:
        return "qualified", None
    return verdict, None


def _table(evidence: Evidence, r2: Floats, later: Floats, moved: Floats, moved_later: Floats) -> Table:
    lengths = (
        cells(
            f"{side}_spread",
            f"coefficient of variation of |{side}| over all tokens except first ones",
            spread(evidence[HEADS][MODEL].exact(f"{side}_length").sum(2)),
        )
        for side in "qk"
    )
    return head_table(
        evidence.anatomy,
        interval_cells("r2", "share of the variance of a query's scores that cos(q, k) explains", r2),
        cells("variation", "share of attention that moves when every key has the mean length", moved),
        cells("r2_later", "r2 without the first key", later),
        cells("variation_later", "variation without the first key", moved_later),
        lengths,
    )


def _reading(verdict: Verdict, holds: Flags, median: float, moved: Floats) -> str:
    exceptions = f" (not in {name_heads(~holds)})" if verdict == "qualified" and holds.mean() < T.sites_most else ""
    return (
        f"Cosine explains {median:.0%} of the variance of a query's scores in the median head, and more than half in "
        f"{holds.sum()} of {holds.size} heads{exceptions}. Giving all keys the same length moves "
        f"{np.median(moved):.0%} of the attention in the median head, at most {moved.max():.0%} "
        f"({largest_head(moved)}). "
    )


def _without_first(holds: Flags, later: Floats, moved: Floats) -> str:
    changes = changed_heads(holds, later > T.cosine_share, "mostly cosine")
    return (
        f"Without the first key cosine explains {np.median(later):.0%} and equal lengths move {np.median(moved):.0%} "
        f"in the median head; {changes}."
    )
