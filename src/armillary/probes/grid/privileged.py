"""Is meaning encoded in axes: does a single axis say more than a random direction?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.grid.axes.axis_blocks import Likeness, grouped_ratio, median_ratio
from armillary.probes.grid.axes.axis_evidence import (
    NAMES,
    Blocks,
    Meanings,
    Untrained,
    at_median,
    auc_difference,
    head_blocks,
    head_meanings,
    stream_meanings,
    tail_ratio,
)
from armillary.probes.grid.axes.axis_views import axis_quantities, block_table, head_table, stream_table
from armillary.probes.instruments.head_samples import HEAD_SAMPLES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    NAN3,
    RANDOM,
    AnyInstrument,
    Evidence,
    Interval,
    T,
    above,
    all_of,
    beats,
    by_side,
    by_sides,
    median_defined,
    missing_interval,
    weakest,
)
from armillary.probes.machinery.verdicts import more_text
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Why, say

ADAM = (
    "Adam takes its steps axis by axis, which can favour axes without any heads. So this does not show that heads are "
    "the reason."
)


@dataclass(frozen=True)
class Privileged:
    """Best single axes against rotated ones, and correlations of axes within heads against across."""

    claim: ClassVar[Claim] = Claim(
        id="axes.privileged",
        chapter="F",
        statement="Meaning is encoded in axes: single axes tell what a token is, and related ones share a head.",
        source="S3",
        question=(
            "Does a single coordinate tell what kind of token it is, better than the coordinates of a randomly "
            "rotated space do? And do coordinates of one head belong together?"
        ),
        definition=(
            "How well does one axis tell a class of tokens from all others, compared with the best axis of a "
            "randomly rotated space?\n"
            "Classes: being one of the eight most frequent tokens; having a part of speech (by lists and endings) or "
            "a spelling (case, begins a word, letters alone); standing before such a token. Parts of speech and "
            "spelling need a tokenizer.\n"
            "For each class the best axis is chosen on one half of the documents, and its AUC (how often it ranks a "
            "token of the class above another: 0.5 by chance, 1 always) is taken on the other half; then the halves "
            "change roles. The difference is the mean over classes, minus the same in rotated axes.\n"
            "It is measured on z (tokens after a norm, before gain and shift) at up to six norms (under LayerNorm, "
            "rotations leave (1, …, 1) in place), and on the queries, keys, values and results of all heads together "
            "in up to three layers (before any rotary turn), rotated within each head.\n"
            "Related axes: the mean |correlation| over tokens of two axes of one head, over that of axes of "
            "different heads, in the median layer.\n"
            "Tails (ours): the mean kurtosis of axes of z over that of rotated axes.\n"
            "Adam takes its steps axis by axis, which can favour axes without any heads. So even a supported claim "
            "would not show that heads are the reason."
        ),
        control=(
            "random rotations of the same tokens; random initialisation (all twins, fewer sites), whose weights "
            "prefer no axes; for heads, the same axes grouped at random"
        ),
        rule=(
            "Three parts; the weakest decides. A number lies above or below a limit only if its whole interval "
            "does.\n"
            "Parts 1 and 2, axes of the stream tell classes, and axes of heads tell classes:\n"
            f"Supported if the difference of AUCs at the median site lies above {T.axis_auc} and above that of an "
            "untrained model.\n"
            f"Refuted if it lies below {T.axis_auc}, or below what untrained models reach.\n"
            "Part 3, related axes share a head. For queries, keys, values and results each, the ratio is compared "
            f"with {T.axis_block}, with that of an untrained model and with that of axes grouped at random; it must "
            "lie above all three.\n"
            "Supported if all four ratios do.\n"
            "Refuted if none does.\n"
            "Qualified if some do and some do not.\n"
            "Part 4 is ours and decides nothing: axes have heavier tails.\n"
            f"Supported if the ratio lies above {T.axis_tails} and above that of an untrained model.\n"
            f"Refuted if it lies below {T.axis_tails}, or below what untrained models reach.\n"
            "Every part is undecided where an interval spans its limit, and part 3 also with one head per layer. "
            "Without untrained models no part is supported. The claim is undecided if no token is frequent enough to "
            "make a class."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "Classes were frequent tokens alone, with about a dozen members in each half. Parts of speech and "
                "spelling, with five times as many, were added; no verdict changed, and the intervals are narrower.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "44dce91513ae", 1),
            Rewording("2026-11-18", "ba2466fe51ec", 1),
            Rewording("2026-11-19", "0b5e68f930a5", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES, HEAD_SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        stream, heads, blocks = stream_meanings(evidence), head_meanings(evidence), head_blocks(evidence)
        untrained, twins = Untrained.of(evidence), len(evidence.twins)
        excess, in_heads = (at_median(evidence, part, auc_difference) for part in (stream, heads))
        parts = (
            _tell_part("axes of the stream tell classes", "of the stream", stream, excess, untrained.stream, twins),
            _tell_part("axes of heads tell classes", "of heads", heads, in_heads, untrained.heads, twins),
            _block_part(blocks, untrained.blocks, twins),
            _tails_part(stream, at_median(evidence, stream, tail_ratio), untrained.tails, twins),
        )
        # Without a class of tokens nothing is said of meaning, whatever heads' axes do.
        verdict, why = (parts[0].verdict, parts[0].why) if np.isnan(excess[0]) else weakest(parts)
        reading = " ".join(part.reading for part in parts)
        if verdict in ("supported", "qualified"):
            reading += f" {ADAM}"
        own, rotated = _medians(stream, "auc"), _medians(stream, "rotated_auc")
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("AUC of the best axis less that of rotated axes, on z, median norm", *excess),
            n=min(rows.size for rows in evidence[HEAD_SAMPLES][MODEL].rows.values()),
            controls=(Control(RANDOM, *untrained.stream), Control("the same in heads", *in_heads)),
            reading=reading + more_text(why),
            headline=f"The best single axis tells a class of tokens with AUC {say(own, '.2f')}, the best randomly "
            f"rotated one with {say(rotated, '.2f')} (median norm)",
            table=stream_table(evidence, stream),
            quantities=axis_quantities(evidence, stream, heads, blocks, untrained.blocks),
            more_tables={
                "heads": head_table(evidence, heads),
                **({"correlations": block_table(blocks, untrained.blocks)} if blocks else {}),
            },
            why=why,
            parts=parts,
        )


def _medians(meanings: Meanings, key: str) -> float:
    return median_defined(float(getattr(meaning, key)[0]) for meaning in meanings.values())


def _tell_part(name: str, where: str, meanings: Meanings, excess: Interval, untrained: Interval, twins: int) -> Part:
    statistic = Statistic(f"AUC of the best axis less that of rotated axes, {where}", *excess)
    if np.isnan(excess[0]):
        reading = "No token is frequent enough in both halves of the documents to make a class."
        return Part(name, "undecided", reading, statistic, why=Why.TOO_LITTLE_TEXT)
    own, rotated = _medians(meanings, "auc"), _medians(meanings, "rotated_auc")
    value, low, high = (say(end, "+.2f") for end in excess)
    reading = (
        f"The best single axis {where} tells a class of tokens from all others in {say(own, '.0%')} of cases, the best "
        f"axis of a rotated space in {say(rotated, '.0%')} (chance: 50%). The AUCs differ by {value} at the median "
        f"site ({low} to {high}); in an untrained model by {say(untrained[0], '+.2f')}, at most "
        f"{say(untrained[2], '+.2f')}."
    )
    verdict = by_side(all_of(above(excess, T.axis_auc), beats(excess, untrained, twins)))
    why = missing_interval(*excess[1:], *untrained[1:]) if verdict == "undecided" else None
    return Part(name, verdict, reading, statistic, why=why)


def _block_part(blocks: Blocks, untrained: Mapping[str, Interval], twins: int) -> Part:
    name = "related axes share a head"
    if not blocks:
        return Part(
            name, "undecided", "With one head per layer there are no axes of different heads.", why=Why.NOT_APPLICABLE
        )
    ratios = {space: median_ratio(layers) for space, layers in blocks.items()}
    limits = {space: _limit(layers) for space, layers in blocks.items()}
    controls = {space: untrained.get(space, NAN3) for space in blocks}
    sides = [
        all_of(above(ratios[space], limits[space]), beats(ratios[space], controls[space], twins)) for space in blocks
    ]
    texts = [
        f"{say(ratios[s][0], '.2f')} for {NAMES[s]} (limit {say(np.fmax(limits[s], controls[s][2]), '.2f')})"
        for s in blocks
    ]
    reading = f"Correlation of two axes of one head, over that of axes of different heads: {', '.join(texts)}. "
    reading += "(All results of a head come from one pattern of attention.)"
    verdict = by_sides(sides)
    middle = sorted(ratios.values())[len(ratios) // 2]
    statistic = Statistic("|correlation| of axes within a head over across, median of q, k, v and z", *middle)
    ends = [end for ratio in ratios.values() for end in ratio[1:]]
    return Part(name, verdict, reading, statistic, why=missing_interval(*ends) if verdict == "undecided" else None)


def _limit(layers: Sequence[Likeness]) -> float:
    """What a ratio must exceed, besides untrained models: a quarter more, and that of axes grouped at random."""
    return float(np.nanmax([T.axis_block, grouped_ratio(layers)[2]]))


def _tails_part(stream: Meanings, tails: Interval, untrained: Interval, twins: int) -> Part:
    """Ours: the field's own measure of a privileged basis."""
    own, rotated = _medians(stream, "kurtosis"), _medians(stream, "rotated_kurtosis")
    reading = f"The mean kurtosis of axes of z is {say(own, '.2f')}, of rotated ones {say(rotated, '.2f')} (a Gaussian "
    reading += "has 3)."
    verdict = by_side(all_of(above(tails, T.axis_tails), beats(tails, untrained, twins)))
    statistic = Statistic("kurtosis of axes of z over that of rotated axes, median norm", *tails)
    why = missing_interval(*tails[1:], *untrained[1:]) if verdict == "undecided" else None
    return Part("axes have heavier tails", verdict, reading, statistic, asserted=False, why=why)
