"""Do early layers look words up: does a noun's query find the noun, its forms or related nouns among the keys?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import token_cells, unreadable, vocabulary, whole, word_notes
from armillary.probes.attention.lexicon.top_keys import KINDS, TOP, TopKeys, top_keys
from armillary.probes.attention.lexicon.word_statistics import (
    TWIN_LAYERS,
    depth_line,
    shown_layers,
    thirds,
    word_interval,
)
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T, name_heads
from armillary.probes.machinery.intervals import Statistic as StatisticOf
from armillary.probes.machinery.intervals import discoveries, p_values
from armillary.probes.machinery.tables import cells, head_map, head_table, table
from armillary.results import Claim, Control, Finding, Statistic, Table, Verdict, say


@dataclass(frozen=True)
class KeyLookup:
    """Top keys of frequent nouns under every head's W_QK, and how many of them belong to the noun."""

    spaced: bool = True
    """Nouns as tokens with a leading space where the vocabulary has them; False prefers bare tokens."""

    claim: ClassVar[Claim] = Claim(
        id="qk.lookup",
        chapter="B",
        statement="Early layers show clear query–key patterns.",
        source="S0 S1",
        definition=(
            f"For each of the hundred most frequent nouns of COCA, the top {TOP} keys among all printable tokens by z "
            "W_QK zᵀ. z is the token's embedding on the sphere, the layer's norm is folded in, Δ = 0 under RoPE; "
            "biases are included only in a column of their own. Clarity is the share of nouns that find among these "
            "keys themselves, a form of themselves by spelling (plural, -ed, -ing, other case or space) or a noun "
            "that the list of relations pairs with them. Excess is clarity less that of the same keys assigned to "
            "other, unrelated nouns. The statistic is the mean excess of the first third of layers less that of the "
            "last third. Only weights are read; the interval is a bootstrap over nouns."
        ),
        control="permuted queries (keys assigned to other nouns); random initialisation",
        rule=(
            f"Early layers are clear if the excess over the first third is at least {T.lookup_clear} and its interval "
            "lies above 0. Supported if they are clear and clearer than the last third (the whole interval of the "
            f"difference above 0). Refuted if there is no early excess (its interval begins below {T.lookup_nothing} "
            f"and ends below {T.lookup_clear}) or the last third is clearer (the whole interval of the difference "
            "below 0). Qualified otherwise: both ends equally clear, or an excess too small to be clear; the reading "
            f"names the early heads that are clear. Undecided with fewer than {T.words_least} nouns that are single "
            "tokens, with one layer, or without a tokenizer."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence, NOUNS, layers=2)
        if missing is not None:
            return missing
        layers, nouns = evidence.anatomy.layers, whole(evidence, NOUNS, self.spaced)
        keys = top_keys(evidence, MODEL, nouns, range(layers))
        difference = word_interval(evidence, keys.excess, _difference(*thirds(layers)))
        early, late = (word_interval(evidence, keys.excess, _mean_of(third)) for third in thirds(layers))
        permuted = keys.permuted(evidence.seed)
        p = p_values(keys.clarity, permuted)
        clear = discoveries(p) & (keys.excess.mean(0) >= T.lookup_clear)
        meaning = "clarity less that of permuted queries, mean over a layer's heads"
        return Finding(
            claim=self.claim,
            verdict=_verdict(early, difference),
            statistic=Statistic("excess clarity, first third less last third of layers", *difference),
            n=len(nouns),
            controls=_controls(evidence, keys, permuted, nouns),
            reading=_reading(early, late, difference, keys, clear),
            headline=(
                f"In early heads {say(early[0], '.0%')} more nouns than by chance find themselves or a relative, in "
                f"late heads {say(late[0], '.0%')}"
            ),
            table=_table(evidence, keys, p, clear),
            quantities=(
                head_map(
                    "clarity",
                    "share of nouns that find themselves, a form or a relative among the top keys",
                    "share",
                    keys.clarity,
                    {"permuted queries": keys.chance},
                ),
                depth_line(evidence, "excess clarity by depth", meaning, "share", keys.excess.mean(2), T.lookup_clear),
            ),
            notes=_notes(evidence, nouns),
            more_tables={f"top keys L{i}": _key_table(evidence, keys, nouns, i) for i in shown_layers(layers)},
        )


def _mean_of(layers: Sequence[int]) -> StatisticOf:
    return lambda means: means[:, list(layers)].mean((1, 2))


def _difference(early: Sequence[int], late: Sequence[int]) -> StatisticOf:
    """Early less late, of means [draw, layer, head]."""
    return lambda means: _mean_of(early)(means) - _mean_of(late)(means)


def _verdict(early: Interval, difference: Interval) -> Verdict:
    if difference[2] < 0 or (early[1] < T.lookup_nothing and early[2] < T.lookup_clear):
        return "refuted"
    clear = early[0] >= T.lookup_clear and early[1] > 0
    return "supported" if clear and difference[1] > 0 else "qualified"


def _controls(evidence: Evidence, keys: TopKeys, permuted: Floats, nouns: dict[str, int]) -> tuple[Control, ...]:
    differences = _difference(*thirds(len(keys.clarity)))(permuted - keys.chance)
    low, high = np.quantile(differences, [0.025, 0.975]).tolist()
    controls = [Control("permuted queries", float(differences.mean()), low, high)]
    if evidence.twin is not None:
        early, late = (third[:TWIN_LAYERS] for third in thirds(evidence.twin.layers))
        twin = top_keys(evidence, RANDOM, nouns, [*early, *late])
        ends = _difference(range(len(early)), range(len(early), len(early) + len(late)))
        controls.append(Control(RANDOM, *word_interval(evidence, twin.excess, ends)))
    return tuple(controls)


def _reading(early: Interval, late: Interval, difference: Interval, keys: TopKeys, clear: Flags) -> str:
    than = "clearer than" if difference[1] > 0 else "less clear than" if difference[2] < 0 else "no clearer than"
    first, last = (clear[third.start : third.stop] for third in thirds(len(clear)))
    names = f" ({name_heads(first)})" if first.any() else ""
    value, low, high = (say(end, ".1%") for end in early)
    return (
        f"In the first third of layers {value} ({low} to {high}) more nouns than by chance find themselves, a form or "
        f"a relative among their top keys; clear heads: {first.sum()} of {first.size}{names}. In the last third it is "
        f"{say(late[0], '.1%')}; clear heads: {last.sum()} of {last.size}. Early layers are {than} late ones. In layer "
        f"0, which the source calls both clear and without pattern, the excess is "
        f"{say(keys.excess[:, 0].mean(), '.1%')}; clear heads: {clear[0].sum()} of {clear.shape[1]}."
    )


def _table(evidence: Evidence, keys: TopKeys, p: Floats, clear: Flags) -> Table:
    itself, form, relative = np.moveaxis(keys.kinds.mean(2), -1, 0)
    return head_table(
        evidence.anatomy,
        cells(
            "clarity", f"share of nouns with itself, a form or a related noun among the top {TOP} keys", keys.clarity
        ),
        cells("chance", "the same with every noun's keys assigned to other, unrelated nouns", keys.chance),
        cells("excess", "clarity less chance", keys.excess.mean(0)),
        cells("itself", "share of nouns with the same token among the top keys", itself),
        cells("form", "share with another form: plural, -ed, -ing, other case or space", form),
        cells("relative", "share with a related noun of the list, or a form of it", relative),
        cells(
            "clarity_biased", "clarity with the query's bias included, as in the running model", keys.biased.mean(-1)
        ),
        cells("p_value", "share of permuted queries that reach this clarity", p),
        cells("clear", "is it significant after correcting for all heads, and excess large enough?", clear),
    )


def _key_table(evidence: Evidence, keys: TopKeys, nouns: dict[str, int], layer: int) -> Table:
    heads = [f"L{layer}H{head}" for head in range(keys.keys.shape[1])]
    texts = [vocabulary(evidence).texts[token] for token in nouns.values()]
    # Nouns first, then heads.
    best, kinds = (array[layer].swapaxes(0, 1).reshape(-1, array.shape[-1]) for array in (keys.keys, keys.kinds))
    return table(
        cells("noun", "the query", np.repeat(texts, len(heads))),
        cells("head", "attention head", heads * len(texts)),
        token_cells(evidence, "key", "token whose key scores highest by z W_QK zᵀ without biases", best),
        cells(
            "found",
            "what is among them: itself, form, relative, or none",
            [", ".join(np.array(KINDS)[flags]) or "none" for flags in kinds],
        ),
    )


def _notes(evidence: Evidence, nouns: dict[str, int]) -> tuple[str, ...]:
    notes = word_notes(evidence, nouns, f"{len(nouns)} of {len(NOUNS)} nouns", offsets=True)
    notes.append("Low clarity in late layers may only mean that the stream has moved away from the embeddings.")
    if evidence.twin is not None and thirds(evidence.twin.layers)[0].stop > TWIN_LAYERS:
        notes.append(f"Of the random initialisation only the first {TWIN_LAYERS} layers of either third were measured.")
    return tuple(notes)
