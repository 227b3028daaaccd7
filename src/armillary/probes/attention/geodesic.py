"""Is the attention score a measure of distance on the sphere?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.sampled_queries import LATER, WITHOUT_FIRST, changed_heads, median_head, sampling_note
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, Floats, T, by_share, mean, name_heads
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells
from armillary.probes.machinery.verdicts import largest_head
from armillary.results import Claim, Control, Finding, Statistic, Verdict, say


@dataclass(frozen=True)
class Geodesic:
    """Rank correlation of the score and nearness on the sphere before W_Q and W_K."""

    claim: ClassVar[Claim] = Claim(
        id="attention.geodesic",
        chapter="B",
        statement="The attention score is a direct measure of geodesic distance on the sphere after the norm.",
        source="S3",
        definition=(
            "z is the output of the norm before attention, without gain and shift. Per query, Spearman's ρ of the "
            "score and −angle(z_i, z_j) over the keys that the query sees. The query's own key is left out because "
            "its angle is 0. The mean over sampled queries is taken per head, and again without the key at position "
            "0. That the score is a function of the angle between q and k is true by definition and is not the claim."
        ),
        control="the first key left out; random initialisation; shuffled text; keys in random order would give ρ = 0",
        rule=(
            f"Supported if the whole interval of the median head's ρ lies above {T.geodesic_rho}. Refuted if at most "
            f"{T.sites_few:.0%} of heads reach {T.geodesic_rho}. Qualified otherwise; the reading names the heads that "
            "reach it. The numbers without the first key are for comparison only."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)

    def conclude(self, evidence: Evidence) -> Finding:
        rows = evidence[HEADS][MODEL]
        stats = rows.means("rho")
        intervals, median = evidence.intervals(stats), median_head(evidence, stats)
        rho = intervals[..., 0]
        reaching = rho >= T.geodesic_rho
        verdict: Verdict = by_share(reaching)
        if verdict != "refuted":
            verdict = "supported" if median[1] > T.geodesic_rho else "qualified"
        controls = {arm: evidence[HEADS][arm].means("rho") for arm in evidence.controls(HEADS)}
        controls[WITHOUT_FIRST] = rows.means("rho" + LATER)
        later = mean(controls[WITHOUT_FIRST].sum(0))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("Spearman ρ of score and −angle, median head", *median),
            n=rows.queries,
            controls=tuple(Control(name, *median_head(evidence, sums)) for name, sums in controls.items()),
            reading=_reading(verdict, rho, median[0]) + _without_first(reaching, later),
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
                    {name: mean(sums.sum(0)) for name, sums in controls.items()},
                ),
            ),
            notes=(sampling_note(evidence),),
        )


def _reading(verdict: Verdict, rho: Floats, median: float) -> str:
    reaching, distant = rho >= T.geodesic_rho, rho < 0
    if verdict == "supported":
        return f"Keys that lie nearer get higher scores: ρ = {say(median, '.2f')} in the median head. "
    summary = (
        f"Score and nearness correlate with ρ = {say(median, '.2f')} in the median head and {say(rho.max(), '.2f')} at "
        f"most ({largest_head(rho)}). "
    )
    if verdict == "qualified":
        return (
            f"{summary}The score measures distance in {reaching.sum()} of {rho.size} heads ({name_heads(reaching)}). "
        )
    if distant.any():
        summary += f"Distant keys score higher in {distant.sum()} of {rho.size} heads. "
    return (
        f"{summary}W_Q and W_K select which differences count, so distance on the sphere says little about the score. "
    )


def _without_first(reaching: Flags, later: Floats) -> str:
    changes = changed_heads(reaching, later >= T.geodesic_rho, f"at {T.geodesic_rho} or above")
    return f"Without the first key ρ is {say(float(np.median(later)), '.2f')} in the median head; {changes}."
