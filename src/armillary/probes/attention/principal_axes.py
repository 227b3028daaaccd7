"""Do the singular vectors of W_QK lie along the main axes of the data?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.axis_overlaps import RANK, AxisOverlaps, axis_overlaps, jackknife_error
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, T, cells, head_map, head_table, name_heads
from armillary.probes.machinery.intervals import discoveries
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Verdict


@dataclass(frozen=True)
class PrincipalAxes:
    """Principal angles between leading singular subspaces and principal axes."""

    claim: ClassVar[Claim] = Claim(
        id="qk.axes",
        chapter="B",
        statement="The leading singular vectors of W_QK lie along the principal axes of the data.",
        source="S0 R",
        definition=(
            "The overlap of two subspaces is the mean cos² of their principal angles. Per head and side (query, key), "
            f"the overlap of the {RANK} leading singular vectors of W_QK (Δ = 0) with the {RANK} principal axes of the "
            "directions at the norm that the head reads; also with those of the token embeddings passed through the "
            "same norm. The statistic is the larger side's overlap divided by that of random heads, in the median "
            "head. Its interval is a jackknife over eight groups of documents."
        ),
        control="Gaussian W_Q and W_K behind the same gain and centring; random initialisation",
        rule=(
            "A head leans to the data's axes if its overlap is significant (Benjamini–Hochberg, "
            f"{T.false_discovery:.0%}) and at least {T.axes_factor:.0f} times that of random heads. Supported if at "
            f"least {T.heads_many:.0%} of heads lean to them and the median head shares at least {T.axes_share:.0%} of "
            f"its subspace on its larger side. Refuted if at most {T.sites_few:.0%} of heads lean to them. Qualified "
            "otherwise."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "At first the ratio to random heads alone counted, and every head of the first model passed although "
                "it shared little of its subspace. Half of the subspace must now be shared as well.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        overlaps = axis_overlaps(evidence, MODEL)
        ratio, p = overlaps.ratio, overlaps.p
        leaning = discoveries(p) & (ratio >= T.axes_factor)
        value, error = float(np.median(ratio)), jackknife_error(evidence, overlaps)
        twins = {arm: axis_overlaps(evidence, arm).ratio for arm in evidence.controls(COVARIANCES)}
        return Finding(
            claim=self.claim,
            verdict=_verdict(leaning, float(np.median(overlaps.larger))),
            statistic=Statistic(
                "overlap with the data's axes over a random head's, median head", value, value - error, value + error
            ),
            n=leaning.size,
            controls=(
                Control("Gaussian heads", 1.0, 1.0, 1.0),
                *(Control(arm, *[float(np.median(each))] * 3) for arm, each in twins.items()),
            ),
            reading=_reading(overlaps, leaning),
            headline=f"W_QK's leading vectors overlap the data's axes {value:.2g} times as much as a random head's",
            table=head_table(
                evidence.anatomy,
                cells("query", "overlap of the query side with the axes of the activations", overlaps.data[0]),
                cells("key", "overlap of the key side with the axes of the activations", overlaps.data[1]),
                cells(
                    "null",
                    "mean overlap of Gaussian heads behind the same norm",
                    np.broadcast_to(overlaps.null, p.shape),
                ),
                cells(
                    "p", "probability that a Gaussian head overlaps as much as the larger side, normal approximation", p
                ),
                cells(
                    "leans", f"is it significant over all heads and at least {T.axes_factor:.0f} times null?", leaning
                ),
                cells(
                    "query_words", "overlap of the query side with the axes of the token embeddings", overlaps.words[0]
                ),
                cells("key_words", "overlap of the key side with the axes of the token embeddings", overlaps.words[1]),
            ),
            quantities=(
                head_map(
                    "overlap with the data's axes over a random head's",
                    f"{RANK} leading singular vectors of W_QK, larger side, compared with {RANK} principal axes",
                    "times a random head's",
                    ratio,
                    twins,
                    log=True,
                ),
            ),
        )


def _verdict(leaning: Flags, shared: float) -> Verdict:
    if leaning.mean() <= T.sites_few:
        return "refuted"
    return "supported" if leaning.mean() >= T.heads_many and shared >= T.axes_share else "qualified"


def _reading(overlaps: AxisOverlaps, leaning: Flags) -> str:
    words = np.median(overlaps.words.max(0) / overlaps.null)
    query, key = np.median(overlaps.data, axis=(1, 2))
    names = f" ({name_heads(leaning)})" if leaning.any() and leaning.mean() < T.heads_many else ""
    return (
        f"W_QK leans to the data's main axes in {leaning.sum()} of {leaning.size} heads{names}. The median head shares "
        f"{query:.2f} of its subspace with them on the query side and {key:.2f} on the key side (1 is all of it), "
        f"{np.median(overlaps.ratio):.2g} times as much as a random head. With the axes of the bare embeddings it is "
        f"{words:.2g} times."
    )
