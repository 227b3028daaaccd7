"""Do early layers look words up: does a noun's query find the noun, its forms or related nouns among the keys?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.keys.key_tables import clarity_table, key_table
from armillary.probes.attention.lexicon.keys.top_keys import TOP, TopKeys, top_keys
from armillary.probes.attention.lexicon.known_words import unreadable, whole, word_notes
from armillary.probes.attention.lexicon.word_statistics import (
    TWIN_LAYERS,
    depth_line,
    shown_layers,
    thirds,
    twin_note,
    word_interval,
    word_intervals,
)
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T, name_heads
from armillary.probes.machinery.intervals import Statistic as StatisticOf
from armillary.probes.machinery.intervals import discoveries, null_interval, p_values
from armillary.probes.machinery.tables import head_map
from armillary.probes.machinery.verdicts import above, beats, missing_interval, weighed
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Verdict, Why, say

EXCESS = "excess share of nouns that find themselves, a form or a relative"


@dataclass(frozen=True)
class KeyLookup:
    """Top keys of frequent nouns under every head's W_QK, and how many of them belong to the noun."""

    spaced: bool = True
    """Nouns as tokens with a leading space where the vocabulary has them; False prefers bare tokens."""

    claim: ClassVar[Claim] = Claim(
        id="qk.lookup",
        chapter="B",
        kind="learned",
        statement="Early layers show clear query–key patterns.",
        source="S0 S1",
        question=(
            "When a word looks for keys in an early layer, does it find itself, another form of itself or a related "
            "word more often than by chance?"
        ),
        definition=(
            "Does a noun find itself or a related noun among the keys that its query scores highest? Clarity is the "
            f"share of nouns whose {TOP} top keys contain the noun itself, another form of it by spelling (plural, "
            "-ed, -ing, other case or space), or a noun that the list of relations pairs with it.\n"
            "Excess is clarity minus that of the same keys assigned to other, unrelated nouns. The statistic is the "
            "mean excess over the heads of the first third of layers.\n"
            "Nouns are the hundred most frequent ones of COCA. A noun's top keys are the printable tokens with the "
            "highest score z W_QK z′ᵀ. z is the noun's embedding on the sphere and z′ that of the other token. The "
            "layer's norm is folded in, Δ = 0 under RoPE; biases are included only in a column of their own.\n"
            "Only weights are read. Intervals are a bootstrap over nouns."
        ),
        control="permuted queries (keys assigned to other nouns); random initialisation",
        rule=(
            f"A head is clear if its excess is at least {T.lookup_clear} and significant against permuted queries (at "
            f"most {T.false_discovery:.0%} false discoveries over heads, Benjamini–Hochberg). Part 1, which the source "
            "asserts, decides. 'Above' and 'below' refer to the whole interval.\n"
            "Part 1, early layers are clear.\n"
            f"Supported if the early excess is above {T.lookup_clear} and above that of untrained models.\n"
            f"Qualified if the early excess is below {T.lookup_clear}, but more than {T.sites_few:.0%} of the early "
            "heads are clear; the reading names them.\n"
            f"Refuted if the early excess is below {T.lookup_clear} and at most {T.sites_few:.0%} of the early heads "
            f"are clear. Also refuted if it is not below {T.lookup_clear}, but no larger than that of untrained "
            "models.\n"
            "Part 2, ours: early layers are clearer than the last third.\n"
            f"Supported if the difference is above {T.lookup_clear}.\n"
            f"Qualified if the difference is between 0 and {T.lookup_clear}.\n"
            f"Refuted if it is below {T.lookup_clear} and its interval is not wholly above 0.\n"
            "Part 3, ours: layer 0 has no clear pattern. (The source calls it clear in one place and without pattern "
            "in another.)\n"
            f"Supported if its excess is below {T.lookup_clear}.\n"
            "Refuted if it is above.\n"
            "Each part is undecided if an interval spans its limit. Without untrained models part 1 is undecided, "
            f"unless the early excess is below {T.lookup_clear}. The claim is undecided with fewer than "
            f"{T.words_least} nouns that are single tokens, with one layer, or without a tokenizer."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "Two questions shared one verdict: a model whose early heads find half of the nouns was refuted, "
                "because its deep heads find more. The source says only that early layers are clear; whether they "
                "are clearer than deep ones is now a part of its own. An interval across the limit decides nothing, "
                "and untrained models are part of the rule.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "d77ef70d38de", 1),
            Rewording("2026-11-18", "5f98034bc7cf", 1),
            Rewording("2026-11-18", "3341563ef3a9", 1),
            Rewording("2026-11-19", "20ab0b6b20f0", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence, NOUNS, layers=2)
        if missing is not None:
            return missing
        layers, nouns = evidence.anatomy.layers, whole(evidence, NOUNS, self.spaced)
        keys = top_keys(evidence, MODEL, nouns, range(layers))
        permuted = keys.permuted(evidence.seed)
        p = p_values(keys.clarity, permuted)
        clear = discoveries(p) & (keys.excess.mean(0) >= T.lookup_clear)
        excess = _Excess.of(evidence, keys, nouns)
        parts = (_early(excess, clear), _clearer(excess, clear), _first(excess, clear))
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic(f"{EXCESS}, mean head of the first third of layers", *excess.early),
            n=len(nouns),
            controls=_controls(evidence, keys, permuted, excess),
            headline=(
                f"In early heads {say(excess.early[0], '.0%')} more nouns than by chance find themselves or a "
                f"related noun among their top keys; in late heads, {say(excess.late[0], '.0%')}"
            ),
            table=clarity_table(evidence, keys, p, clear),
            quantities=(
                head_map(
                    "clarity",
                    "share of nouns that find themselves, a form or a relative among the top keys",
                    "share",
                    keys.clarity,
                    {"permuted queries": keys.chance},
                ),
                depth_line(
                    "excess clarity by depth",
                    "clarity minus that of permuted queries, mean over a layer's heads",
                    "share",
                    word_intervals(evidence, keys.excess.mean(2)),
                    T.lookup_clear,
                ),
            ),
            notes=_notes(evidence, nouns),
            more_tables={f"top keys L{i}": key_table(evidence, keys, nouns, i) for i in shown_layers(layers)},
        )


@dataclass(frozen=True)
class _Excess:
    """The excess over the first third, the last third and layer 0, with intervals over nouns, and in twins."""

    early: Interval
    late: Interval
    difference: Interval
    layer_0: Interval
    untrained: Interval
    """The early excess of another untrained model."""
    twins: int

    @classmethod
    def of(cls, evidence: Evidence, keys: TopKeys, nouns: dict[str, int]) -> "_Excess":
        first, last = thirds(evidence.anatomy.layers)
        some = first[:TWIN_LAYERS]

        def untrained(arm: str) -> Interval:
            return word_interval(evidence, top_keys(evidence, arm, nouns, some).excess, _mean_of(some))

        return cls(
            early=word_interval(evidence, keys.excess, _mean_of(first)),
            late=word_interval(evidence, keys.excess, _mean_of(last)),
            difference=word_interval(evidence, keys.excess, _difference(first, last)),
            layer_0=word_interval(evidence, keys.excess, _mean_of([0])),
            untrained=evidence.over_twins(untrained),
            twins=len(evidence.twins),
        )


def _mean_of(layers: Sequence[int]) -> StatisticOf:
    return lambda means: means[:, list(layers)].mean((1, 2))


def _difference(early: Sequence[int], late: Sequence[int]) -> StatisticOf:
    """Early less late, of means [draw, layer, head]."""
    return lambda means: _mean_of(early)(means) - _mean_of(late)(means)


def _early(excess: _Excess, clear: Flags) -> Part:
    verdict, why = _early_verdict(excess, clear)
    reading = (
        f"In the first third of layers, {_share(excess.early)} more nouns than by chance find themselves, another form "
        f"or a related noun among their top keys; in an untrained model, {_share(excess.untrained)}. "
        f"{_clear_heads(clear, thirds(len(clear))[0])}"
    )
    return Part("early layers are clear", verdict, reading, Statistic(EXCESS, *excess.early), why=why)


def _early_verdict(excess: _Excess, clear: Flags) -> tuple[Verdict, Why | None]:
    enough, learned = above(excess.early, T.lookup_clear), beats(excess.early, excess.untrained, excess.twins)
    few = clear[: thirds(len(clear))[0].stop].mean() <= T.sites_few
    if enough is False:
        return ("refuted" if few else "qualified"), None
    if np.isnan(excess.untrained[2]):
        return "undecided", Why.NO_CONTROL
    if learned is False:
        return "refuted", None
    return ("supported", None) if enough and learned else ("undecided", missing_interval(*excess.early))


def _clearer(excess: _Excess, clear: Flags) -> Part:
    enough, any_at_all = above(excess.difference, T.lookup_clear), above(excess.difference, 0)
    verdict: Verdict = (
        "supported" if enough else "undecided" if enough is None else "qualified" if any_at_all else "refuted"
    )
    than = "clearer than" if any_at_all else "less clear than" if any_at_all is False else "not clearly different from"
    reading = (
        f"In the last third the excess is {_share(excess.late)}. {_clear_heads(clear, thirds(len(clear))[1])} Early "
        f"layers are {than} late ones; the difference is {_share(excess.difference)}."
    )
    statistic = Statistic(f"{EXCESS}, first third less last third", *excess.difference)
    why = missing_interval(*excess.difference) if verdict == "undecided" else None
    return Part("they are clearer than deep layers", verdict, reading, statistic, asserted=False, why=why)


def _first(excess: _Excess, clear: Flags) -> Part:
    enough = above(excess.layer_0, T.lookup_clear)
    verdict: Verdict = "undecided" if enough is None else "refuted" if enough else "supported"
    reading = (
        "In layer 0, which the source calls clear in one place and without pattern in another, the excess is "
        f"{_share(excess.layer_0)}. {_clear_heads(clear, range(1))}"
    )
    why = missing_interval(*excess.layer_0) if verdict == "undecided" else None
    return Part(
        "layer 0 has no clear pattern", verdict, reading, Statistic(EXCESS, *excess.layer_0), asserted=False, why=why
    )


def _clear_heads(clear: Flags, layers: range) -> str:
    """How many heads of these layers are clear, and which."""
    among = clear & np.isin(np.arange(len(clear)), layers)[:, None]
    total = len(layers) * clear.shape[1]
    names = f" ({name_heads(among)})" if 0 < among.sum() < total else ""
    return f"Clear heads there: {among.sum()} of {total}{names}."


def _share(interval: Interval) -> str:
    value, low, high = (say(end, ".1%") for end in interval)
    return f"{value} ({low} to {high})"


def _controls(evidence: Evidence, keys: TopKeys, permuted: Floats, excess: _Excess) -> tuple[Control, ...]:
    by_chance = _mean_of(thirds(len(keys.clarity))[0])(permuted - keys.chance)
    controls = (Control("permuted queries", *null_interval(by_chance)), Control(RANDOM, *excess.untrained))
    return controls if evidence.twins else controls[:1]


def _notes(evidence: Evidence, nouns: dict[str, int]) -> tuple[str, ...]:
    notes = word_notes(evidence, nouns, f"{len(nouns)} of {len(NOUNS)} nouns", offsets=True)
    notes += [
        "Low clarity in late layers may only mean that the stream has moved away from the embeddings.",
        twin_note(evidence, len(thirds(evidence.anatomy.layers)[0][:TWIN_LAYERS])),
    ]
    return tuple(notes)
