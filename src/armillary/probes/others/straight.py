"""Do trajectories of text become straighter with depth?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.curvatures import CURVATURES
from armillary.probes.machinery import (
    MODEL,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    beats,
    by_side,
    mean,
    missing_interval,
    undecided,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.machinery.verdicts import no_middle, weighed
from armillary.probes.sphere.across_sites import arm_controls, arm_lines
from armillary.results import Claim, Finding, Part, Rewording, RuleChange, Statistic, Why, say

# Three independent points of one cloud make a turn of arccos(−½) between the steps from one to the next.
INDEPENDENT = 120.0


@dataclass(frozen=True)
class Straight:
    """The angle between successive steps from token to token, at every state of the stream."""

    claim: ClassVar[Claim] = Claim(
        id="others.straight",
        chapter="H",
        statement="Trajectories of text straighten from the first layers to the middle ones, by training.",
        source="Hosseini and Fedorenko 2023 (arXiv:2311.04930)",
        question=(
            "Follow the tokens of a text, one after the other: they walk through the space. Does the walk turn less "
            "sharply in the middle layers, and because of training?"
        ),
        definition=(
            "How sharply does a text turn from token to token (its curvature)? At one depth, the curvature is the "
            "mean angle between the steps x_t − x_(t−1) and x_(t+1) − x_t of the stream: 0° on a straight line. The "
            "authors' code takes the same angle. Words in random order have 120° (three independent points). Steps "
            "from or to a first token are left out.\n"
            "The statistic is the curvature before the first block minus its mean over the middle third of the "
            "depth, the layers that the source speaks of. The middle third are the states from after one third of "
            "the blocks to after two thirds of them. Both numbers are rounded to whole blocks, and both ends count: "
            "of seven blocks, the states after the second, third, fourth and fifth."
        ),
        control=(
            "random initialisation (all twins): averaging over neighbours alone makes a trajectory smoother; the "
            "same words shuffled within their documents"
        ),
        rule=(
            "Three parts, each about how far the curvature falls (the statistic); the weakest decides.\n"
            f"Part 1, straightens. The limit of the fall is {T.straight_degrees:g}°.\n"
            "Part 2, by training. The limit of the fall is the upper end of what untrained models have. With only "
            "two or three of them, the part is refuted only below what five would reach.\n"
            "Part 3, from the text. The fall on text minus that on shuffled text, document by document, has a limit "
            f"of {T.straight_text:g}°.\n"
            "Supported if the whole interval lies above the part's limit.\n"
            "Refuted if it lies below.\n"
            "Undecided if it spans the limit. Part 2 is also undecided without untrained models.\n"
            f"Does not apply to models of fewer than {T.middle_blocks} blocks, which have no middle third."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-18",
                f"Models of fewer than {T.middle_blocks} blocks are left out. A model of one block had been refuted: "
                "the end of its depth was taken for the middle.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "43f432c5a5fb", 1),
            Rewording("2026-11-18", "1680e13bbe76", 1),
            Rewording("2026-11-19", "275ce046d9fa", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (CURVATURES,)

    def conclude(self, evidence: Evidence) -> Finding:
        state = evidence[CURVATURES][MODEL]
        if len(state.states) <= T.middle_blocks:
            return undecided(self.claim, Why.NOT_APPLICABLE, no_middle(len(state.states) - 1))
        sums = state.sums()

        def fall(arm: str) -> Interval:
            return evidence.interval(evidence[CURVATURES][arm].sums(), fallen, every=True)

        by_state = evidence.intervals(sums, mean, every=True)
        value, untrained = fall(MODEL), evidence.over_twins(fall)
        parts = (
            _straightens(value, by_state, state.states),
            _learned(value, untrained, evidence),
            _from_text(evidence),
        )
        names = state.states
        curves = arm_lines(evidence, CURVATURES, lambda arm: mean(evidence[CURVATURES][arm].sums().sum(0)))
        meaning = "mean angle between the steps from token to token"
        return Finding(
            claim=self.claim,
            **weighed(parts, more=True),
            statistic=Statistic("fall of the curvature from the first state to the middle third", *value, unit="°"),
            n=CURVATURES.count(state)[0],
            controls=arm_controls(evidence, CURVATURES, fall),
            headline=f"Text turns by {say(by_state[0, 0], '.0f')}° per token before the first block and by "
            f"{say(by_state[0, 0] - value[0], '.0f')}° in the middle of the depth",
            table=table(
                cells("stream", "state of the stream", names),
                interval_cells("curvature", meaning, by_state, "°"),
                *(cells(f"curvature, {arm}", f"the same, {arm}", curve, "°") for arm, curve in curves.items()),
            ),
            quantities=(
                line(
                    "curvature of text",
                    meaning,
                    "degrees",
                    "stream",
                    names,
                    by_state,
                    curves,
                    {"independent points": np.full(len(names), INDEPENDENT)},
                ),
            ),
        )


def middle_third(states: int) -> slice:
    """The states after the middle third of the blocks, of three or more.

    >>> middle_third(8), middle_third(4)
    (slice(2, 6, None), slice(1, 3, None))
    """
    blocks = states - 1
    return slice(round(blocks / 3), round(2 * blocks / 3) + 1)


def fallen(sums: Floats) -> Floats:
    """[draw]: degrees, from [draw, state, (turns, degrees)]."""
    curvature = mean(sums)
    return np.asarray(curvature[:, 0] - curvature[:, middle_third(curvature.shape[1])].mean(1))


def _part(name: str, side: bool | None, reading: str, measured: Interval, why: Why | None = None) -> Part:
    verdict = by_side(side)
    reason = (why or missing_interval(*measured)) if side is None else None
    return Part(name, verdict, reading, Statistic(f"{name}: degrees", *measured, unit="°"), why=reason)


def _straightens(value: Interval, by_state: Floats, names: list[str]) -> Part:
    low = int(np.nanargmin(by_state[:, 0])) if np.isfinite(by_state[:, 0]).any() else 0
    reading = (
        f"A text turns by {say(by_state[0, 0], '.1f')}° per token before the first block and by "
        f"{say(by_state[0, 0] - value[0], '.1f')}° in the middle third; least at {names[low]}, by "
        f"{say(by_state[low, 0], '.1f')}° (words in no order: 120°)."
    )
    return _part("straightens", above(value, T.straight_degrees), reading, value)


def _learned(value: Interval, untrained: Interval, evidence: Evidence) -> Part:
    twins = len(evidence.twins)
    reading = f"That is a fall of {say(value[0], '.1f')}°; in an untrained model it is {say(untrained[0], '.1f')}°"
    reading += f", at most {say(untrained[2], '.1f')}°."
    side = beats(value, untrained, twins) if twins else None
    return _part("by training", side, reading, value, None if twins else Why.NO_CONTROL)


def _from_text(evidence: Evidence) -> Part:
    if SHUFFLED not in evidence[CURVATURES]:
        return Part("from the text", "undecided", "There is no shuffled text.", why=Why.NO_CONTROL)
    both = np.stack([evidence[CURVATURES][arm].sums() for arm in (MODEL, SHUFFLED)], 1)
    more = evidence.interval(both, lambda sums: fallen(sums[:, 0]) - fallen(sums[:, 1]), every=True)
    reading = f"On text it falls by {say(more[0], '.1f')}° more than on the same words shuffled."
    return _part("from the text", above(more, T.straight_text), reading, more)
