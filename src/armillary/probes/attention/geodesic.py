"""Is the attention score a measure of distance on the sphere?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.cosine import LATER, WITHOUT_FIRST, sampled_note
from armillary.probes.machinery.evidence import MODEL, Evidence, Flags, Floats
from armillary.probes.machinery.per_head import (
    by_share,
    change_sides,
    grid,
    head_map,
    head_table,
    mean,
    means,
    median_head,
    name_heads,
)
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Statistic, Verdict

COLUMNS = (
    Column("head", "head"),
    Column("rho", "Spearman's ρ of score and −angle(z_i, z_j), per query, mean over queries"),
    Column("rho_low", "its 95 % interval over documents, low end"),
    Column("rho_high", "its 95 % interval over documents, high end"),
    Column("rho_later", "rho without the first key"),
    Column("negative", "share of queries that prefer keys farther away (ρ < 0)"),
)


@dataclass(frozen=True)
class Geodesic:
    """Rank correlation of score and nearness on the sphere before W_Q and W_K."""

    claim: ClassVar[Claim] = Claim(
        id="attention.geodesic",
        chapter="B",
        statement="The score is a direct measure of geodesic distance on the post-norm sphere.",
        source="S3",
        definition=(
            "Per query, Spearman's ρ over the keys it sees, itself left out (its angle is 0 by definition), of the score and "
            "−angle(z_i, z_j), where z is what the norm before attention gives, before gain and shift; mean over sampled "
            "queries of each head; once more without the key at position 0. That the score is a function of the angle between q and k themselves is true by "
            "definition, and is not the claim."
        ),
        control="the first key left out; random initialisation; shuffled text; keys in another order have ρ = 0",
        rule=(
            f"Supported: the median head's ρ lies above {T.geodesic_rho} with its whole interval. Refuted: at most "
            f"{T.sites_few:.0%} of heads reach {T.geodesic_rho}. Qualified otherwise, naming the heads that do. The first key is "
            "left out for comparison alone."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("attention",)

    def conclude(self, evidence: Evidence) -> Finding:
        stats = means(evidence.attention[MODEL], "rho")
        rho, low, high = grid(evidence, stats, mean)
        median = median_head(evidence, stats, mean)
        negative = (evidence.attention[MODEL].sampled("rho") < 0).mean(-1)
        reaching = rho >= T.geodesic_rho
        verdict: Verdict = by_share(reaching)
        if verdict != "refuted":
            verdict = "supported" if median[1] > T.geodesic_rho else "qualified"
        controls = {arm: means(evidence.attention[arm], "rho") for arm in evidence.controls()}
        controls[WITHOUT_FIRST] = means(evidence.attention[MODEL], "rho" + LATER)
        later = mean(controls[WITHOUT_FIRST].sum(0))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("Spearman ρ of score and −angle, median head", *median),
            n=evidence.attention[MODEL].queries,
            controls=tuple(Control(arm, *median_head(evidence, found, mean)) for arm, found in controls.items()),
            reading=_reading(verdict, rho, median[0]) + _without_first(reaching, later),
            headline=f"Score follows the angle on the sphere with ρ = {median[0]:.2f} in the median head",
            table=head_table(evidence, COLUMNS, (rho, low, high, later, negative)),
            quantities=(
                head_map(
                    "Spearman ρ of score and nearness",
                    "rank correlation, per query, of score and −angle of the directions before W_Q and W_K",
                    "ρ",
                    rho,
                    {arm: mean(found.sum(0)) for arm, found in controls.items()},
                ),
            ),
            notes=(sampled_note(evidence),),
        )


def _reading(verdict: Verdict, rho: Floats, median: float) -> str:
    reaching, against = rho >= T.geodesic_rho, rho < 0
    best = np.unravel_index(int(np.argmax(rho)), rho.shape)
    if verdict == "supported":
        return f"Near directions get the higher score: ρ = {median:.2f} in the median head"
    told = f"ρ is {median:.2f} in the median head and {rho.max():.2f} at most (L{best[0]}H{best[1]})"
    if verdict == "qualified":
        return (
            f"{told}; it is a measure of distance in {int(reaching.sum())} of {rho.size} heads ({name_heads(reaching)})"
        )
    far = f", and {int(against.sum())} of {rho.size} heads prefer what is farther away" if against.any() else ""
    return f"{told}{far}: W_Q and W_K choose which differences count, so the sphere's own distance tells little"


def _without_first(reaching: Flags, later: Floats) -> str:
    sides = change_sides(reaching, later >= T.geodesic_rho, f"at {T.geodesic_rho} or above")
    return f"; without the first key ρ is {np.median(later):.2f} in the median head, and {sides}."
