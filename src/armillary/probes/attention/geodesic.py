"""Is the attention score a measure of distance on the sphere?"""

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
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, Floats, T, name_heads
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells
from armillary.probes.machinery.verdicts import largest_head, more_text
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Verdict, Why, say


@dataclass(frozen=True)
class Geodesic:
    """Rank correlation of the score and nearness on the sphere before W_Q and W_K."""

    claim: ClassVar[Claim] = Claim(
        id="attention.geodesic",
        chapter="B",
        statement="The attention score is a direct measure of geodesic distance on the sphere after the norm.",
        source="S3",
        question="Does a token simply attend most to the tokens that lie nearest to it on the sphere?",
        definition=(
            "Do scores follow the distance between tokens on the sphere? z is the output of the norm before "
            "attention, without gain and shift. Per query it is Spearman's rank correlation ρ of the score and "
            "−angle(z_i, z_j) over the keys that the query sees: 1 if nearer keys always score higher, 0 by chance. "
            "The query's own key is left out because its angle is 0.\n"
            "The mean over sampled queries is taken per head, and again without the key at position 0.\n"
            "That the score is a function of the angle between q and k is true by definition and is not the claim."
        ),
        control=("the first key left out; random initialisation; shuffled text; keys in random order would give ρ = 0"),
        rule=(
            f"A head measures distance if the whole interval of ρ is above {T.geodesic_rho}, both with the first key "
            "and without it.\n"
            f"Supported if at least {T.sites_most:.0%} of heads do.\n"
            f"Refuted if at most {T.sites_few:.0%} do.\n"
            "Qualified otherwise; the reading names the heads that do.\n"
            f"Undecided if heads whose interval spans {T.geodesic_rho} could change the verdict, or if intervals are "
            "missing."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "Heads are counted by their intervals, with the first key and without it; the median head alone had "
                "decided between supported and qualified.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "6107f5f90f75", 1),
            Rewording("2026-11-19", "3104286378f4", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)

    def conclude(self, evidence: Evidence) -> Finding:
        rows = evidence[HEADS][MODEL]
        stats, later_stats = rows.means("rho"), rows.means("rho" + LATER)
        intervals, without_first = (evidence.intervals(sums) for sums in (stats, later_stats))
        median, rho, later = median_head(evidence, stats), intervals[..., 0], without_first[..., 0]
        verdict, why = by_sure_share(intervals, T.geodesic_rho, without_first)
        reaching = (intervals[..., 1] > T.geodesic_rho) & (without_first[..., 1] > T.geodesic_rho)
        twins = control_maps(evidence, lambda arm: evidence[HEADS][arm].means("rho"))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("Spearman ρ of score and −angle, median head", *median),
            n=rows.queries,
            controls=(
                Control(WITHOUT_FIRST, *median_head(evidence, later_stats)),
                *median_controls(evidence, lambda arm: evidence[HEADS][arm].means("rho")),
            ),
            reading=_reading(verdict, why, rho, reaching, median[0]) + _without_first(rho, later),
            headline=f"The score follows the angle on the sphere with ρ = {say(median[0], '.2f')} in the median head",
            table=head_table(
                evidence.anatomy,
                interval_cells(
                    "rho", "Spearman's ρ of score and −angle(z_i, z_j) per query, mean over queries", intervals
                ),
                cells("rho_later", "rho without the first key", later),
                cells(
                    "negative", "share of queries that prefer distant keys (ρ < 0)", (rows.sampled("rho") < 0).mean(-1)
                ),
            ),
            quantities=(
                head_map(
                    "Spearman ρ of score and nearness",
                    "rank correlation per query of the score and −angle between directions before W_Q and W_K",
                    "ρ",
                    rho,
                    {WITHOUT_FIRST: later, **twins},
                ),
            ),
            notes=(sampling_note(evidence),),
            why=why,
        )


def _reading(verdict: Verdict, why: Why | None, rho: Floats, reaching: Flags, median: float) -> str:
    distant = rho < 0
    if verdict == "supported":
        return f"Keys that lie nearer get higher scores: ρ = {say(median, '.2f')} in the median head. "
    summary = (
        f"Score and nearness have a rank correlation of ρ = {say(median, '.2f')} in the median head and at most "
        f"{say(rho.max(), '.2f')} ({largest_head(rho)}). "
    )
    if verdict == "qualified":
        return (
            f"{summary}The score measures distance in {reaching.sum()} of {rho.size} heads ({name_heads(reaching)}). "
        )
    if why is not None:
        return f"{summary}{more_text(why).strip()} "
    if distant.any():
        summary += f"Distant keys score higher in {distant.sum()} of {rho.size} heads. "
    return (
        f"{summary}W_Q and W_K select which differences count, so distance on the sphere says little about the score. "
    )


def _without_first(rho: Floats, later: Floats) -> str:
    changes = changed_heads(rho > T.geodesic_rho, later > T.geodesic_rho, f"above {T.geodesic_rho}")
    return f"Without the first key, ρ is {say(float(np.median(later)), '.2f')} in the median head; {changes}."
