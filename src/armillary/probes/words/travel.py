"""Do tokens move along the sphere from their own word towards the next word?"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS, WordSums
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    all_of,
    beats,
    by_side,
)
from armillary.probes.machinery.tables import cells, line, table
from armillary.probes.machinery.verdicts import missing_interval, more_text, weakest
from armillary.probes.words.lens import reads
from armillary.results import (
    Claim,
    Control,
    Finding,
    Part,
    Quantity,
    Rewording,
    RuleChange,
    Statistic,
    Table,
    Verdict,
    Why,
)

MARGIN = 0.5 + T.travel_margin
APPROACH = "share of tokens that approach the next word by more than a random word"
LEAVE = "share of tokens that leave their own word by more than a random word"


@dataclass(frozen=True)
class Travel:
    """Angles of every token's states to its own word and to the next word."""

    claim: ClassVar[Claim] = Claim(
        id="words.travel",
        chapter="C",
        statement="Layer by layer, a token moves along the sphere away from its own word and towards the next word.",
        source="S0 S1",
        question=(
            "Does a token's vector move towards the next word as it passes through the layers, and away from its "
            "own word?"
        ),
        definition=(
            "Does a token's state come closer to the next word, and move away from its own word, on its way through "
            "the layers? Every state of a token, before and after each sublayer, is sent through the final norm. Its "
            "angles to three rows of the unembedding are measured: the token's own word, the true next word, and a "
            "random word (the next word of another token, so that both are equally frequent). The first token of a "
            "window is left out.\n"
            "(1) The share of tokens that leave their own word, from the first state to the last: they move away from "
            "it by more than from the random word. This holds almost by construction where the first state is the "
            "word's own vector.\n"
            "(2) The share of tokens that approach the next word by more than the random word. This is the statistic. "
            "By chance both shares are 50%.\n"
            "Also measured: the angle from each state to the one after it."
        ),
        control="the random word, within the statistic; random initialisation; shuffled text",
        rule=(
            "Two parts, each about one of the two shares of tokens (50% by chance); the weaker decides. 'Above' and "
            "'below' refer to the whole interval.\n"
            "Part 1, away from its own word.\n"
            f"Supported if the share that leaves it is above {MARGIN:.0%}.\n"
            "Refuted if it is below.\n"
            "Part 2, towards the next word.\n"
            f"Supported if the share that approaches it is above {MARGIN:.0%}, above that at random initialisation and "
            "above that on shuffled text.\n"
            f"Qualified if it is above {MARGIN:.0%}, but not above both of these controls.\n"
            f"Refuted if it is below {MARGIN:.0%}.\n"
            "Each part is undecided if an interval spans a limit or is missing. The claim is undecided if the model "
            "predicts no next token."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule also compares by how much tokens approach the next word and a random word, after a planted "
                "model had approached all words by a tiny amount.",
            ),
            RuleChange(
                "2026-11-16",
                "The statistic is the contrast with a random word, against several untrained twins and shuffled text. "
                "The old one asked whether nine in ten tokens leave their own word and approach the next: all tokens "
                "of SmolLM2 leave, so it said nothing, and on builtin:gpt its interval spanned the limit.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "411e1a6c6825", 2),
            Rewording("2026-11-18", "2db22d2f4c4c", 2),
            Rewording("2026-11-19", "b7020a1a39f3", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (WORDS,)

    def conclude(self, evidence: Evidence) -> Finding:
        words = evidence[WORDS][MODEL]
        more = _share(evidence, MODEL, "more")
        twins = evidence.over_twins(lambda arm: _share(evidence, arm, "more"))
        shuffled = _share(evidence, SHUFFLED, "more")
        predicts = reads(evidence.anatomy)
        parts = (
            _leaving(_share(evidence, MODEL, "left_more")),
            _approaching(more, twins, len(evidence.twins), shuffled),
        )
        verdict, why = weakest(parts) if predicts else ("undecided", Why.NOT_APPLICABLE)
        headline = f"{more[0]:.0%} of tokens approach the next word by more than a random word (chance: 50%)"
        first = words.names[0]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic(APPROACH, *more),
            n=words.tokens,
            controls=(Control(RANDOM, *twins), Control(SHUFFLED, *shuffled)),
            reading=_reading(words, parts, predicts),
            headline=headline if predicts else f"{headline}, in a model that predicts none",
            table=_table(words),
            quantities=_quantities(evidence),
            notes=() if first.endswith("pre") else (f"No norm stands before {first}: tokens are followed from there.",),
            parts=parts if predicts else (),
        )


def _share(evidence: Evidence, arm: str, name: str) -> Interval:
    return evidence.interval(evidence[WORDS][arm].sums("path", name))


def _leaving(share: Interval) -> Part:
    clear = above(share, MARGIN)
    verdict = by_side(clear)
    why = missing_interval(*share) if clear is None else None
    reading = f"{share[0]:.0%} of tokens leave their own word by more than a random word"
    return Part("away from its own word", verdict, reading, Statistic(LEAVE, *share), why=why)


def _approaching(more: Interval, twins: Interval, number: int, shuffled: Interval) -> Part:
    clear, beyond = above(more, MARGIN), all_of(beats(more, twins, number), above(more, shuffled[2]))
    verdict: Verdict = "supported" if beyond else "qualified"
    why: Why | None = None
    if clear is False:
        verdict = "refuted"
    elif clear is None or beyond is None:
        verdict, why = "undecided", missing_interval(*more, *twins, *shuffled)
    reading = (
        f"{more[0]:.0%} of tokens approach the next word by more than a random word (chance: 50%, untrained: "
        f"{twins[0]:.0%}, shuffled text: {shuffled[0]:.0%})"
    )
    if verdict == "qualified":
        reading += ", but an untrained model or shuffled text reaches as much"
    return Part("towards the next word", verdict, reading, Statistic(APPROACH, *more), why=why)


def _reading(words: WordSums, parts: tuple[Part, ...], predicts: bool) -> str:
    both, path, geodesic = (float(words.means("path", name)) for name in ("both", "path", "geodesic"))
    start, *_, end = np.degrees(words.means("state", "next"))
    shares = (
        f"{parts[1].reading}. {parts[0].reading}. {both:.0%} end farther from their own word and closer to the next "
        "than they began."
        if predicts
        else "This model predicts no next token, so nothing is decided."
    )
    more = more_text(next((part.why for part in parts if part.why), None)) if predicts else ""
    ratio = f"{path / geodesic:.1f} times as long as the great circle" if geodesic > 1e-9 else "a point"
    return (
        f"{shares} A token's moves add up to {np.degrees(path):.0f}°, and it ends {np.degrees(geodesic):.0f}° from its "
        f"start: the path is {ratio}. The mean angle to the next word goes from {start:.0f}° to {end:.0f}°.{more}"
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
    words = evidence[WORDS][MODEL]

    def angles(part: str, name: str, title: str, meaning: str, axis: str, labels: list[str]) -> Quantity:
        twins = [evidence[WORDS][arm].means(part, name) for arm in evidence.twins]
        controls = {RANDOM: np.mean(twins, axis=0), SHUFFLED: evidence[WORDS][SHUFFLED].means(part, name)}
        controls = {arm: np.degrees(values) for arm, values in controls.items()}
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
