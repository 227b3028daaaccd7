"""Do tokens move along the sphere from their own word towards the next word?"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS, WordSums
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Floats, Interval, T, cells, line, table
from armillary.probes.words.lens import reads
from armillary.results import Claim, Control, Finding, Quantity, RuleChange, Statistic, Table, Verdict, Why

MARGIN = 0.5 + T.travel_margin


@dataclass(frozen=True)
class Travel:
    """Angles of every token's states to its own word and to the next word."""

    claim: ClassVar[Claim] = Claim(
        id="words.travel",
        chapter="C",
        statement="Layer by layer, a token moves along the sphere away from its own word and towards the next word.",
        source="S0 S1",
        definition=(
            "Every state of a token, before and after each sublayer, is sent through the final norm. Measured are its "
            "angles to two rows of the unembedding: the token's own word and the true next word. The first token of a "
            "window is left out. The statistic is the share of tokens whose last state is farther from their own word "
            "and closer to the next word than their first state. Also measured: the share of tokens that approach the "
            "next word by more than a random word, and the angle from each state to the one after it."
        ),
        control=(
            "a random word in place of the next one, equally frequent; random initialisation; shuffled text. A token "
            "approaches the next word by more than a random word in 50 % of cases by chance."
        ),
        rule=(
            f"Supported if the share is at least {T.travel_most:.0%} with its whole interval and at least {MARGIN:.0%} "
            "of tokens approach the next word by more than a random word, with the whole interval. Refuted if the "
            f"share lies below {T.travel_half:.0%}, or the tokens that approach the next word by more lie below "
            f"{MARGIN:.0%}, with the whole interval. Qualified otherwise. Undecided if the first interval spans "
            f"{T.travel_half:.0%} or the second {MARGIN:.0%}, if one is missing, or if the model predicts no next "
            "token."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule also compares by how much tokens approach the next word and a random word, after a planted "
                "model had approached all words by a tiny amount.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (WORDS,)

    def conclude(self, evidence: Evidence) -> Finding:
        words = evidence[WORDS][MODEL]
        share, more, other = (evidence.interval(words.sums("path", name)) for name in ("both", "more", "both_other"))
        arms = {arm: evidence[WORDS][arm].sums("path", "both") for arm in evidence.controls(WORDS)}
        predicts = reads(evidence.anatomy)
        verdict, why = _decide(predicts, share, more)
        headline = f"{share[0]:.0%} of tokens move away from their own word and towards the next word"
        first = words.names[0]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("share of tokens that leave their own word and approach the next word", *share),
            n=words.tokens,
            controls=(
                Control("a random other word", *other),
                *(Control(arm, *evidence.interval(sums)) for arm, sums in arms.items()),
            ),
            reading=_reading(words, predicts) + (" More text would decide." if predicts and why else ""),
            headline=headline if predicts else f"{headline}, in a model that predicts none",
            table=_table(words),
            quantities=_quantities(evidence),
            notes=() if first.endswith("pre") else (f"No norm stands before {first}: tokens are followed from there.",),
        )


def _decide(predicts: bool, share: Interval, more: Interval) -> tuple[Verdict, Why | None]:
    if not predicts:
        return "undecided", Why.NOT_APPLICABLE
    if np.isnan([*share, *more]).any():
        return "undecided", Why.NO_INTERVAL
    if share[2] < T.travel_half or more[2] < MARGIN:
        return "refuted", None
    if share[1] < T.travel_half or more[1] < MARGIN:
        return "undecided", Why.SPANS_LIMIT
    return "supported" if share[1] >= T.travel_most else "qualified", None


def _reading(words: WordSums, predicts: bool) -> str:
    both, other, more, path, geodesic = (
        float(words.means("path", name)) for name in ("both", "both_other", "more", "path", "geodesic")
    )
    start, *_, end = np.degrees(words.means("state", "next"))
    shares = (
        f"{both:.0%} of tokens end farther from their own word and closer to the next word than they began; with a "
        f"random word in place of the next one: {other:.0%}. {more:.0%} approach the next word by more than a random "
        "word (chance: 50%)."
        if predicts
        else "This model predicts no next token, so nothing is decided."
    )
    return (
        f"{shares} A token's moves add up to {np.degrees(path):.0f}°, and it ends {np.degrees(geodesic):.0f}° from its "
        f"start: the path is {path / max(geodesic, 1e-9):.1f} times as long as the great circle. The mean angle "
        f"to the next word goes from {start:.0f}° to {end:.0f}°."
    )


def _table(words: WordSums) -> Table:
    own, following, other = (np.degrees(words.means("state", name)) for name in ("own", "next", "other"))
    moved, turning = (np.degrees(words.means("move", name)) for name in ("moved", "turning"))
    return table(
        cells("state", "state of the stream", words.names),
        cells("own", "mean angle to the token's own word", own, "°"),
        cells("next", "mean angle to the true next word", following, "°"),
        cells("other", "mean angle to a random word, as frequent as next words are", other, "°"),
        cells("length", "mean length ‖x‖ of the stream", words.means("state", "length")),
        cells("moved", "mean angle from the state before", _from_state(1, moved), "°"),
        cells(
            "turning", "mean angle between this move and the one before; 90° by chance", _from_state(2, turning), "°"
        ),
        cells(
            "radial",
            "share of the write's square along the stream, which changes the length and not the direction",
            _from_state(1, words.means("move", "radial")),
        ),
    )


def _from_state(first: int, values: Floats) -> Floats:
    """Values of moves as a column of states, empty before state `first`."""
    return np.concatenate([np.full(first, np.nan), values[first - 1 :]])[: len(values) + 1]


def _quantities(evidence: Evidence) -> tuple[Quantity, ...]:
    words, arms = evidence[WORDS][MODEL], evidence.controls(WORDS)

    def angles(part: str, name: str, title: str, meaning: str, axis: str, labels: list[str]) -> Quantity:
        controls = {arm: np.degrees(evidence[WORDS][arm].means(part, name)) for arm in arms}
        if name == "next":
            controls = {"a random other word": np.degrees(words.means("state", "other")), **controls}
        values = np.degrees(evidence.intervals(words.sums(part, name)))
        return line(title, meaning, "°", axis, labels, values, controls)

    states, after = list(words.names), "after the final norm, mean over tokens"
    return (
        angles("state", "own", "angle to the token's own word", after, "state", states),
        angles("state", "next", "angle to the next word", after, "state", states),
        angles(
            "move",
            "moved",
            "angle moved by each sublayer",
            "between the states before and after it, mean over tokens",
            "sublayer",
            move_names(words.names),
        ),
    )


def move_names(states: tuple[str, ...]) -> list[str]:
    """The sublayer between two states.

    >>> move_names(("L0.resid_pre", "L0.resid_mid", "L1.resid_pre", "L1.resid_post"))
    ['L0.attn', 'L0.mlp', 'L1']
    """
    names = []
    for before, after in pairwise(states):
        layer, place = before.split(".")
        if place == "resid_mid":
            names.append(f"{layer}.mlp")
        elif place == "resid_post":
            names.append(f"{after.split('.')[0]}.attn")
        else:
            names.append(f"{layer}.attn" if after.endswith("mid") else layer)
    return names
