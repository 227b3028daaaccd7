"""Is the attention score a measure of distance on the sphere?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.cosine import sampled_note
from armillary.probes.attention.per_head import (
    by_share,
    grid,
    head_map,
    head_table,
    mean,
    means,
    median_head,
    name_heads,
)
from armillary.probes.evidence import MODEL, Evidence, Floats
from armillary.probes.probe import Instrument
from armillary.probes.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Statistic, Verdict

COLUMNS = (
    Column("head", "head"),
    Column("rho", "Spearman's ρ of score and −angle(z_i, z_j), per query, mean over queries"),
    Column("rho_low", "its 95 % interval over documents, low end"),
    Column("rho_high", "its 95 % interval over documents, high end"),
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
            "queries of each head. That the score is a function of the angle between q and k themselves is true by "
            "definition, and is not the claim."
        ),
        control="random initialisation; shuffled text; keys in another order have ρ = 0",
        rule=(
            f"Supported: the median head's ρ lies above {T.geodesic_rho} with its whole interval. Refuted: at most "
            f"{T.sites_few:.0%} of heads reach {T.geodesic_rho}. Qualified otherwise, naming the heads that do."
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
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("Spearman ρ of score and −angle, median head", *median),
            n=evidence.attention[MODEL].queries,
            controls=tuple(Control(arm, *median_head(evidence, found, mean)) for arm, found in controls.items()),
            reading=_reading(verdict, rho, median[0]),
            headline=f"Score follows the angle on the sphere with ρ = {median[0]:.2f} in the median head",
            table=head_table(evidence, COLUMNS, (rho, low, high, negative)),
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
        return f"Near directions get the higher score: ρ = {median:.2f} in the median head."
    told = f"ρ is {median:.2f} in the median head and {rho.max():.2f} at most (L{best[0]}H{best[1]})"
    if verdict == "qualified":
        return f"{told}; it is a measure of distance in {int(reaching.sum())} of {rho.size} heads ({name_heads(reaching)})."
    far = f", and {int(against.sum())} of {rho.size} heads prefer what is farther away" if against.any() else ""
    return f"{told}{far}: W_Q and W_K choose which differences count, so the sphere's own distance tells little."
