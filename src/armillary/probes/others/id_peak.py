"""Does the intrinsic dimension of representations peak in the middle of the depth?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    beats,
    by_side,
    missing_interval,
    once,
    over_sites,
    undecided,
)
from armillary.probes.machinery.layers import stream_states
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.machinery.verdicts import no_middle, weighed
from armillary.probes.others.streams.sampled_stream import sampled_streams
from armillary.probes.sphere.across_sites import arm_controls, arm_lines
from armillary.probes.sphere.spectra.dimension_estimates import NEIGHBOURS, POINTS, inverse, neighbour_sums
from armillary.results import Claim, Finding, Part, Rewording, RuleChange, Statistic, Why, say

TWO_NN, MLE = 0, 1
FEW_WORDS = (
    f"A dimension needs {4 * NEIGHBOURS} different words or more, and the text has fewer. Give more text, or a "
    "tokenizer with more words."
)


@dataclass(frozen=True)
class IdPeak:
    """TwoNN's dimension of the stream before the first block and after each."""

    claim: ClassVar[Claim] = Claim(
        id="others.idpeak",
        chapter="H",
        statement="The intrinsic dimension of representations peaks in the middle of the depth, by training.",
        source="Cheng et al. 2024 (arXiv:2405.15471)",
        question=(
            "How many numbers does it take to say where a token lies? Is this number largest in the middle of the "
            "network, and because of training?"
        ),
        definition=(
            "How many numbers does it take to say where a token lies (the intrinsic dimension)? It is estimated from "
            "ordinary tokens, one of each word form, at the stream before the first block and after each block, by "
            "TwoNN: from the ratio of the distances to the second and the first neighbour.\n"
            f"The statistic is the largest dimension of a state in the middle of the depth (after {T.peak_from:.0%} "
            f"to {T.peak_to:.0%} of the blocks), over the largest dimension of a state outside.\n"
            "Which states these are is determined on one half of the documents and their dimension is measured on "
            "the other, both ways, because the largest of many noisy numbers is too large.\n"
            "The source takes the last tokens of ten thousand sequences, and GRIDE, which looks at farther "
            f"neighbours. In its place the table has the dimension by maximum likelihood over {NEIGHBOURS} neighbours."
        ),
        control="random initialisation (all twins); the same words shuffled within their documents",
        rule=(
            "Two parts; the weaker decides. A number lies above or below a limit only if its whole interval does.\n"
            "Part 1, peaks.\n"
            f"Supported if the ratio lies above {T.peak_ratio}.\n"
            "Refuted if it lies below.\n"
            "Part 2, by training.\n"
            "Supported if the ratio lies above the upper end of what untrained models have.\n"
            "Refuted if it lies below what untrained models reach.\n"
            "Undecided without untrained models.\n"
            "Part 3 is ours and decides nothing: from the text.\n"
            "Supported if the ratio is larger than on shuffled text, document by document.\n"
            "Refuted if it is smaller.\n"
            "Every part is undecided where an interval spans its limit. The claim is undecided with too few "
            f"different words. It does not apply to models of fewer than {T.middle_blocks} blocks, whose only state "
            "between the ends is the one after the first block."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-18",
                "The peak must be in the middle of the depth, higher than all states outside. Any state between the "
                "two ends had counted, so that a model whose dimension is highest after its first block of seven could "
                "be supported; and so could one of two blocks.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "5351f12b89b4", 1),
            Rewording("2026-11-18", "2d1ec521c204", 1),
            Rewording("2026-11-19", "b9b8822a0b0c", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)

    def conclude(self, evidence: Evidence) -> Finding:
        names = [state.name for state in stream_states(evidence.anatomy)]
        if len(names) <= T.middle_blocks:
            return undecided(self.claim, Why.NOT_APPLICABLE, no_middle(len(names) - 1))

        sums = neighbours(evidence, MODEL)
        by_state = evidence.intervals(sums[:, :, TWO_NN], inverse, every=True)
        if np.isnan(by_state[:, 0]).all():
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, FEW_WORDS)

        def height(arm: str) -> Interval:
            return evidence.interval(by_half(neighbours(evidence, arm)), peak, every=True)

        value, untrained = height(MODEL), evidence.over_twins(height)
        parts = (_peaks(value, by_state, names), _learned(value, untrained, len(evidence.twins)), _from_text(evidence))
        curves = arm_lines(evidence, SAMPLES, lambda arm: inverse(neighbours(evidence, arm).sum(0)[:, TWO_NN]))
        meaning = "intrinsic dimension by TwoNN, one token of each word form"
        likely = inverse(sums.sum(0)[:, MLE])
        return Finding(
            claim=self.claim,
            **weighed(parts, more=True),
            statistic=Statistic(
                "intrinsic dimension of the highest state in the middle, over the highest outside", *value
            ),
            n=int(sums[..., TWO_NN, 0].sum(0).min()),
            controls=arm_controls(evidence, SAMPLES, height),
            headline=f"The intrinsic dimension in the middle of the depth is {say(value[0], '.2f')} times the highest "
            "outside",
            table=table(
                cells("stream", "state of the stream", names),
                interval_cells("two_nn", meaning, by_state),
                cells("mle", f"the same by maximum likelihood over {NEIGHBOURS} neighbours", likely),
                *(cells(f"two_nn, {arm}", f"TwoNN, {arm}", curve) for arm, curve in curves.items()),
            ),
            quantities=(
                line("intrinsic dimension", meaning, "dimensions", "stream", names, by_state, curves),
                line("at a larger scale", f"by {NEIGHBOURS} neighbours", "dimensions", "stream", names, likely),
            ),
        )


@once
def neighbours(evidence: Evidence, arm: str) -> Floats:
    """[document group, state, (TwoNN, maximum likelihood), (points, log distance ratios)]."""
    import torch

    assert evidence.corpus is not None
    streams, groups = sampled_streams(evidence, arm), evidence.corpus.groups
    _, first = np.unique(streams.token, return_index=True)
    chosen = np.sort(first)[:POINTS]

    def of(state: str) -> Floats:
        return neighbour_sums(torch.from_numpy(streams.x[state][chosen]).double(), streams.document[chosen], groups)

    return np.stack(list(over_sites(list(streams.x), of).values()), 1)


def by_half(sums: Floats) -> Floats:
    """[document group, half, state, 2] of TwoNN: a group counts in its own half only."""
    halves = np.zeros((len(sums), 2, *sums.shape[1:2], 2))
    for group, row in enumerate(sums[:, :, TWO_NN]):
        halves[group, group % 2] = row
    return halves


def middle(states: int) -> Flags:
    """Which states, before the first block and after each, are in the middle of the depth?

    >>> middle(8).tolist()
    [False, False, True, True, True, True, False, False]
    """
    depth = np.arange(states) / (states - 1)
    # A fifth of five blocks is one block, whatever the last digit of 0.2.
    return np.asarray((depth > T.peak_from - 1e-9) & (depth < T.peak_to + 1e-9))


def peak(sums: Floats) -> Floats:
    """[draw]: the highest state in the middle over the highest outside; which ones is found on one half and measured on
    the other."""
    dimension = inverse(sums)
    inside = middle(dimension.shape[-1])

    def highest(which: Flags) -> Floats:
        place = np.where(which, np.nan_to_num(dimension[:, ::-1], nan=0.0), -1.0).argmax(-1)
        return np.asarray(np.take_along_axis(dimension, place[..., None], -1)[..., 0])

    return np.asarray((highest(inside) / highest(~inside)).mean(-1))


def _peaks(value: Interval, by_state: Floats, names: list[str]) -> Part:
    dimensions = np.nan_to_num(by_state[:, 0], nan=-1.0)
    top = int(dimensions.argmax())
    side = above(value, T.peak_ratio)
    return Part(
        "peaks",
        by_side(side),
        f"Tokens use {say(by_state[0, 0], '.1f')} dimensions before the first block and {say(by_state[-1, 0], '.1f')} "
        f"at the end; most at {names[top]}, with {say(by_state[top, 0], '.1f')}.",
        Statistic("height of the middle over the highest outside", *value),
        why=missing_interval(*value) if side is None else None,
    )


def _learned(value: Interval, untrained: Interval, twins: int) -> Part:
    side = beats(value, untrained, twins) if twins else None
    return Part(
        "by training",
        by_side(side),
        f"The highest state in the middle is {say(value[0], '.2f')} times the highest outside; in an untrained model "
        f"{say(untrained[0], '.2f')} times.",
        Statistic("height of the middle over the highest outside", *value),
        why=(missing_interval(*value, *untrained) if twins else Why.NO_CONTROL) if side is None else None,
    )


def _from_text(evidence: Evidence) -> Part:
    """Ours: a peak on shuffled words would still be one."""
    name = "from the text"
    if SHUFFLED not in evidence[SAMPLES]:
        return Part(name, "undecided", "There is no shuffled text.", asserted=False, why=Why.NO_CONTROL)
    both = np.stack([by_half(neighbours(evidence, arm)) for arm in (MODEL, SHUFFLED)], 1)
    more = evidence.interval(both, lambda sums: peak(sums[:, 0]) - peak(sums[:, 1]), every=True)
    side = above(more, 0.0)
    return Part(
        name,
        by_side(side),
        f"On the same words shuffled that number differs by {say(-more[0], '+.2f')}.",
        Statistic("height on text less that on shuffled text", *more),
        asserted=False,
        why=missing_interval(*more) if side is None else None,
    )
