"""Is the attention score mostly the cosine of query and key?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.scores.sampled_queries import (
    LATER,
    WITHOUT_FIRST,
    by_sure_share,
    changed_heads,
    control_maps,
    median_controls,
    median_head,
    sampling_note,
)
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, Floats, Interval, T, above, mean, spread
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells
from armillary.probes.machinery.verdicts import largest_head, missing_interval, more_text, name_heads
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Table, Verdict, say


@dataclass(frozen=True)
class Cosine:
    """R² of score on cosine, and how much attention moves when all keys get the same length."""

    claim: ClassVar[Claim] = Claim(
        id="attention.cosine",
        chapter="B",
        statement="Because norms are constrained, the attention score is mostly the cosine of query and key.",
        source="S3",
        question=(
            "A score is the dot product of a query and a key, so it depends on their angle and on their lengths. Is "
            "it mostly the angle that decides?"
        ),
        definition=(
            "How much of a head's scores does the angle between query and key explain? Per head it is R², the share of "
            "the variance of the score that cos(q, k) explains, with one slope for the head. Score and cosine are "
            "centred over the keys of a query, because softmax ignores what all keys share. q and k are taken as the "
            "model multiplies them, after rotation and q/k-norm.\n"
            "Also measured: the share of attention that moves (total variation) when every |k| is set to the mean over "
            "the keys that the query sees.\n"
            "R² and the share that moves are measured at sampled queries that see at least eight other keys; lengths "
            "of q and k at all tokens. Both numbers are taken again without the key at position 0, where many heads "
            "put attention that they do not need."
        ),
        control="the first key left out; random initialisation; shuffled text",
        rule=(
            f"A head is mostly cosine if the whole interval of R² is above {T.cosine_share}, both with the first key "
            "and without it.\n"
            f"Supported if at least {T.sites_most:.0%} of heads are mostly cosine.\n"
            f"Refuted if at most {T.sites_few:.0%} are.\n"
            "Qualified in between; the reading names the other heads.\n"
            f"Undecided if heads whose interval spans {T.cosine_share} could change the verdict, if intervals are "
            "missing, or if the scores of half of the heads or more do not vary. If fewer do not vary, they are left "
            "out.\n"
            "An untrained model may be mostly cosine too: the claim is about norms, not about training.\n"
            "A part of our own decides nothing: the lengths of keys matter little if making them equal moves at most "
            f"{T.cosine_variation:.0%} of the attention in the median head."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "Heads are counted by their intervals, and must be mostly cosine without the first key as well: a "
                "planted model was mostly cosine for the sake of one key alone. The attention that equal lengths move "
                "no longer qualifies the claim: the source speaks of the score, not of the pattern.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "0ae3408da3e1", 1),
            Rewording("2026-11-18", "d5f73df84c6c", 1),
            Rewording("2026-11-19", "43548e3735eb", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)

    def conclude(self, evidence: Evidence) -> Finding:
        rows, stats, later_stats = evidence[HEADS][MODEL], _moments(evidence, MODEL), _moments(evidence, MODEL, LATER)
        r2, later = (evidence.intervals(sums, _r2) for sums in (stats, later_stats))
        median, moves = median_head(evidence, stats, _r2), rows.means("variation")
        moved, moved_later = (mean(rows.means(f"variation{which}").sum(0)) for which in ("", LATER))
        moved_median = median_head(evidence, moves)
        verdict, why = by_sure_share(r2, T.cosine_share, later)
        holds = (r2[..., 1] > T.cosine_share) & (later[..., 1] > T.cosine_share)
        statistic = Statistic("R² of score on cosine, median head", *median)
        reading = _reading(verdict, holds, median[0])
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=statistic,
            n=rows.queries,
            controls=(
                Control(WITHOUT_FIRST, *median_head(evidence, later_stats, _r2)),
                *median_controls(evidence, lambda arm: _moments(evidence, arm), _r2),
            ),
            reading=f"{reading}. {_lengths(moved_median, moved).reading}. "
            + _without_first(r2[..., 0], later[..., 0], moved_later)
            + more_text(why),
            headline=f"Cosine explains {median[0]:.0%} of the variance of scores in the median head",
            table=_table(evidence, r2, later[..., 0], moved, moved_later),
            quantities=(
                head_map(
                    "R² of score on cosine",
                    "share of the variance of a query's scores that cos(q, k) explains",
                    "R²",
                    r2[..., 0],
                    {WITHOUT_FIRST: later[..., 0], **control_maps(evidence, lambda arm: _moments(evidence, arm), _r2)},
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
            parts=(
                Part("the score is mostly the cosine", verdict, reading, statistic, why=why),
                _lengths(moved_median, moved),
            ),
            why=why,
        )


def _moments(evidence: Evidence, arm: str, which: str = "") -> Floats:
    rows = evidence[HEADS][arm]
    return rows.sums(*(rows.sampled(name + which) for name in ("score_power", "cosine_power", "score_cosine")))


def _r2(stats: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = stats[..., 2] ** 2 / (stats[..., 0] * stats[..., 1])
    # Scores without variance, as from a matrix of zeros, leave nothing for a cosine to explain.
    return np.where(np.isfinite(r2), r2, np.nan)


def _lengths(typical: Interval, moved: Floats) -> Part:
    much = above(typical, T.cosine_variation)
    verdict: Verdict = "undecided" if much is None else "refuted" if much else "supported"
    reading = (
        f"Giving all keys the same length moves {typical[0]:.0%} of the attention in the median head, and at most "
        f"{moved.max():.0%} ({largest_head(moved)})"
    )
    statistic = Statistic("share of attention moved by equal key lengths, median head", *typical)
    why = missing_interval(*typical) if much is None else None
    return Part("lengths of keys matter little", verdict, reading, statistic, asserted=False, why=why)


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


def _reading(verdict: Verdict, holds: Flags, median: float) -> str:
    exceptions = f" (not in {name_heads(~holds)})" if verdict == "qualified" else ""
    return (
        f"Cosine explains {say(100 * median, '.2g')}% of the variance of a query's scores in the median head. It "
        f"explains more than half (whole interval, with the first key and without it) in {holds.sum()} of "
        f"{holds.size} heads{exceptions}"
    )


def _without_first(r2: Floats, later: Floats, moved: Floats) -> str:
    changes = changed_heads(r2 > T.cosine_share, later > T.cosine_share, "mostly cosine")
    explained = f"{np.nanmedian(later):.0%}" if np.isfinite(later).any() else "nothing"
    return (
        f"Without the first key, cosine explains {explained} and equal lengths move {np.median(moved):.0%} in the "
        f"median head; {changes}."
    )
