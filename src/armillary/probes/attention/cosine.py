"""Is the attention score mostly the cosine of query and key?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
    sums,
)
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Verdict

WITHOUT_FIRST, LATER = "without the first key", "_later"
COLUMNS = (
    Column("head", "head"),
    Column("r2", "share of the variance of a query's scores that cos(q, k) explains, one slope a head"),
    Column("r2_low", "its 95 % interval over documents, low end"),
    Column("r2_high", "its 95 % interval over documents, high end"),
    Column("variation", "total variation of the pattern when every key has the mean length"),
    Column("r2_later", "r2 without the first key"),
    Column("variation_later", "variation without the first key"),
    Column("q_spread", "coefficient of variation of |q|, all tokens but first ones"),
    Column("k_spread", "coefficient of variation of |k|, all tokens but first ones"),
)


@dataclass(frozen=True)
class Cosine:
    """R² of score on cosine, and what levelling the keys' lengths does to the pattern."""

    claim: ClassVar[Claim] = Claim(
        id="attention.cosine",
        chapter="B",
        statement="Norms being constrained, the score is mostly the cosine of query and key.",
        source="S3",
        definition=(
            "Per head, R² of the score on cos(q, k), both less their mean over the keys of the query (softmax ignores what is "
            "the same for all keys), one slope for the head; q and k as they meet, rotated and normed. And the total "
            "variation between the pattern and the one in which every |k| is the mean of those the query sees. On a seeded "
            "sample of queries that see eight other keys at least; lengths of q and k on all tokens. Both once more without "
            "the key at position 0, where many heads leave the attention that they have no use for."
        ),
        control="the first key left out; random initialisation; shuffled text",
        rule=(
            f"A head's score is mostly cosine when R² > {T.cosine_share}. Supported: at ≥ {T.sites_most:.0%} of heads, and "
            f"levelling the keys moves ≤ {T.cosine_variation} of the attention in the median head. Refuted: at "
            f"≤ {T.sites_few:.0%} of heads. Qualified otherwise. The first key is left out for comparison alone."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("attention",)

    def conclude(self, evidence: Evidence) -> Finding:
        value, low, high = grid(evidence, _moments(evidence, MODEL), _r2)
        later = _r2(_moments(evidence, MODEL, LATER).sum(0))
        moved, moved_later = (
            mean(means(evidence.attention[MODEL], "variation" + which).sum(0)) for which in ("", LATER)
        )
        holds = value > T.cosine_share
        statistic = median_head(evidence, _moments(evidence, MODEL), _r2)
        verdict = by_share(holds)
        if np.isnan(statistic[1]):
            verdict = "undecided"
        elif verdict == "supported" and np.median(moved) > T.cosine_variation:
            verdict = "qualified"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("R² of score on cosine, median head", *statistic),
            n=evidence.attention[MODEL].queries,
            controls=(
                *(Control(arm, *median_head(evidence, _moments(evidence, arm), _r2)) for arm in evidence.controls()),
                Control(WITHOUT_FIRST, *median_head(evidence, _moments(evidence, MODEL, LATER), _r2)),
            ),
            reading=_reading(verdict, holds, statistic[0], moved) + _without_first(holds, later, moved_later),
            headline=f"Score is {'mostly' if statistic[0] > T.cosine_share else 'not mostly'} cosine: R² "
            f"{statistic[0]:.2f} in the median head",
            table=head_table(evidence, COLUMNS, (value, low, high, moved, later, moved_later, *_spreads(evidence))),
            quantities=_maps(evidence, value, later, moved, moved_later),
            notes=(sampled_note(evidence),),
        )


def _maps(evidence: Evidence, value: Floats, later: Floats, moved: Floats, moved_later: Floats) -> tuple[Quantity, ...]:
    return (
        head_map(
            "R² of score on cosine",
            "share of the variance of a query's scores that cos(q, k) explains",
            "R²",
            value,
            {WITHOUT_FIRST: later, **{arm: _r2(_moments(evidence, arm).sum(0)) for arm in evidence.controls()}},
        ),
        head_map(
            "attention moved by levelling keys",
            "total variation between the pattern and the one with every |k| at its mean",
            "share of attention",
            moved,
            {WITHOUT_FIRST: moved_later},
        ),
    )


def sampled_note(evidence: Evidence) -> str:
    record = evidence.attention[MODEL]
    return f"scores were looked at for {record.queries} sampled queries ({record.rate:.1%} of all tokens)"


def _moments(evidence: Evidence, arm: str, which: str = "") -> Floats:
    record = evidence.attention[arm]
    return sums(record, [record.sampled(name + which) for name in ("score_power", "cosine_power", "score_cosine")])


def _r2(stats: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = stats[..., 2] ** 2 / (stats[..., 0] * stats[..., 1])
    # Scores that are all alike, as with a matrix of zeros, leave nothing for a cosine to explain.
    return np.where(np.isfinite(r2), r2, 0.0)


def _spreads(evidence: Evidence) -> list[Floats]:
    """[layer, head] coefficients of variation of the exact lengths of q and k."""
    return [_spread(evidence, name) for name in ("q_length", "k_length")]


def _spread(evidence: Evidence, name: str) -> Floats:
    count, total, square = np.moveaxis(evidence.attention[MODEL].exact(name).sum(2), -1, 0)
    average = total / np.maximum(count, 1)
    deviation = np.sqrt(np.maximum(square / np.maximum(count, 1) - average**2, 0))
    return np.asarray(deviation / np.maximum(average, 1e-300))


def _reading(verdict: Verdict, holds: Flags, median: float, variation: Floats) -> str:
    moved = float(np.median(variation))
    told = f"Cosine explains {median:.0%} of a query's scores in the median head, more than half in {holds.sum()} of {holds.size}"
    if verdict == "qualified" and holds.mean() < T.sites_most:
        told += f" (not in {name_heads(~holds)})"
    most = np.unravel_index(int(np.argmax(variation)), variation.shape)
    return (
        f"{told}; with all keys at one length {moved:.0%} of the attention moves "
        f"(at most {variation.max():.0%}, L{most[0]}H{most[1]})"
    )


def _without_first(holds: Flags, later: Floats, moved: Floats) -> str:
    sides = change_sides(holds, later > T.cosine_share, "mostly cosine")
    return (
        f"; without the first key it explains {np.median(later):.0%} in the median head, levelling moves {np.median(moved):.0%}, "
        f"and {sides}."
    )
