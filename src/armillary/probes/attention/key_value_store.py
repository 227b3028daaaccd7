"""Is W_VO a store, in which a word matches few keys and retrieves their values?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.decomposed_heads import tie_note
from armillary.probes.attention.lexicon.key_matches import ROTATIONS, KeyMatches, key_matches, ratios
from armillary.probes.attention.lexicon.known_words import sampled_words, unreadable, whole, word_notes
from armillary.probes.attention.lexicon.word_statistics import (
    TWIN_LAYERS,
    median_over_heads,
    shown_layers,
    word_interval,
)
from armillary.probes.attention.lexicon.written_words import (
    ReadableTokens,
    direction_table,
    first_directions,
    update_table,
)
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, Ints, T
from armillary.probes.machinery.intervals import discoveries
from armillary.probes.machinery.tables import cells, head_map, head_table
from armillary.probes.machinery.verdicts import by_share, name_heads
from armillary.results import Claim, Control, Finding, Statistic, Table


@dataclass(frozen=True)
class Store:
    """How few of a head's left singular vectors a word matches, compared with two kinds of chance."""

    claim: ClassVar[Claim] = Claim(
        id="vo.store",
        chapter="B",
        statement="W_VO is a key–value store: its left singular vectors are keys, its right ones are updates.",
        source="S0",
        definition=(
            "Every matrix has singular vectors; a store predicts that an input matches few keys. Words are the COCA "
            "nouns and random printable tokens, as embeddings z on the sphere. The energy of a word's update in "
            "direction i is σ_i²(z·u_i)², p_i is its share, and Σp² is the concentration. Chance is computed in two "
            "ways: (a) the left vectors are rotated at random inside their span, with the singular values kept; (b) "
            "the words are whitened, rotated at random and shaped back, so that their mean and covariance along the "
            "keys stay and only the match of word and key is lost (an axis that all words share is not a key). The "
            "statistic is the concentration divided by the larger of the two, in the median head. Only weights are "
            f"read; the interval is a bootstrap over words. Up to {ROTATIONS} rotations are drawn."
        ),
        control="rotated keys and rotated words, of which the stricter decides; random initialisation",
        rule=(
            f"A head stores if its ratio is at least {T.store_ratio} and significant against both kinds of chance "
            f"(Benjamini–Hochberg over heads, {T.false_discovery:.0%}). Supported if at least {T.heads_many:.0%} of "
            f"heads store. Refuted if at most {T.sites_few:.0%} do. Qualified otherwise. Undecided with fewer than "
            f"{T.words_least} nouns that are single tokens, or without a tokenizer."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence, NOUNS)
        if missing is not None:
            return missing
        layers, nouns = evidence.anatomy.layers, whole(evidence, NOUNS)
        ids = sampled_words(evidence, nouns)
        matches = key_matches(evidence, MODEL, ids, range(layers))
        stores = discoveries(matches.p) & (matches.ratio >= T.store_ratio)
        median = word_interval(evidence, matches.values, _median_ratio)
        readable = ReadableTokens.of(evidence)
        more = {}
        for layer in shown_layers(layers):
            more[f"directions L{layer}"] = direction_table(evidence, layer, ids, readable)
            more[f"updates L{layer}"] = update_table(evidence, layer, nouns, readable)
        return Finding(
            claim=self.claim,
            verdict=by_share(stores, most=T.heads_many),
            statistic=Statistic("concentration of an update over chance, median head", *median),
            n=len(ids),
            controls=_controls(evidence, matches, ids),
            reading=_reading(evidence, matches, stores),
            headline=(
                f"Heads that are stores: {stores.sum()} of {stores.size}; in the median head a word's update is "
                f"{median[0]:.2f} times as concentrated as by chance"
            ),
            table=_table(evidence, matches, stores, nouns, ids, readable),
            quantities=(
                head_map(
                    "concentration over chance",
                    "concentration of a word's update over a head's directions, relative to chance",
                    "ratio",
                    matches.ratio,
                ),
                head_map(
                    "keys matched",
                    "effective number of left singular vectors that a word matches",
                    "keys",
                    matches.keys[..., 0],
                    {"by chance": matches.keys[..., 1:].min(-1)},
                ),
            ),
            notes=_notes(evidence, nouns, ids),
            more_tables=more,
        )


def _median_ratio(means: Floats) -> Floats:
    return median_over_heads(ratios(means))


def _controls(evidence: Evidence, matches: KeyMatches, ids: Ints) -> tuple[Control, ...]:
    def against(chance: int) -> Interval:
        return word_interval(evidence, matches.values[..., [0, chance, chance]], _median_ratio)

    controls = [Control("over rotated keys alone", *against(1)), Control("over rotated words alone", *against(2))]
    if evidence.twin is not None:
        twin = key_matches(evidence, RANDOM, ids, range(min(TWIN_LAYERS, evidence.twin.layers)))
        controls.append(Control(RANDOM, *word_interval(evidence, twin.values, _median_ratio)))
    return tuple(controls)


def _reading(evidence: Evidence, matches: KeyMatches, stores: Flags) -> str:
    names = f" ({name_heads(stores)})" if 0 < stores.sum() < stores.size else ""
    keys, chance = matches.keys[..., 0], matches.keys[..., 1:].min(-1)
    return (
        f"In the median head a word matches {np.median(keys):.1f} of {evidence.anatomy.k} keys; by chance it would "
        f"match {np.median(chance):.1f} (the stricter of rotated keys and rotated words). Heads that are "
        f"stores: {stores.sum()} of {stores.size}{names}."
    )


def _table(
    evidence: Evidence, matches: KeyMatches, stores: Flags, nouns: dict[str, int], ids: Ints, readable: ReadableTokens
) -> Table:
    spectrum, first = first_directions(evidence, nouns, ids, readable)
    keys, rotated, shaped = np.moveaxis(matches.keys, -1, 0)
    return head_table(
        evidence.anatomy,
        spectrum,
        cells("keys_met", "effective number of keys that a word matches, 1 / mean Σp²", keys),
        cells("keys_turned", "the same with the left vectors rotated at random inside their span", rotated),
        cells("keys_shaped", "the same for words rotated at random with their mean and covariance kept", shaped),
        cells(
            "ratio",
            "concentration over the larger of these two by chance: above 1 a word matches fewer keys",
            matches.ratio,
        ),
        cells("p_value", "share of rotations that are as concentrated, the larger of both kinds", matches.p),
        cells("stores", "is it significant after correcting for all heads, and ratio large enough?", stores),
        first,
    )


def _notes(evidence: Evidence, nouns: dict[str, int], ids: Ints) -> tuple[str, ...]:
    notes = word_notes(
        evidence, nouns, f"{len(nouns)} of {len(NOUNS)} nouns and {len(ids) - len(nouns)} random printable tokens"
    )
    notes += [
        "The larger of two chance levels lies slightly above either, so a head without keys comes out just below 1.",
        tie_note(evidence),
    ]
    if any(block.ln1_post is not None for block in evidence.anatomy.blocks):
        notes.append("A norm stands between heads and stream: lengths of updates are taken before it divides.")
    if evidence.twin is not None and evidence.twin.layers > TWIN_LAYERS:
        notes.append(f"Of the random initialisation only {TWIN_LAYERS} layers were measured.")
    return tuple(notes)
