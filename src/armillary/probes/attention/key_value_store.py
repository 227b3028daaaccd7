"""Is W_VO a store: left singular vectors as keys, right ones as updates? And does a word match few keys?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.keys.key_matches import BATCH, ROTATIONS, KeyMatches, key_matches, ratios
from armillary.probes.attention.lexicon.keys.rebuilt_updates import rebuilding_errors
from armillary.probes.attention.lexicon.keys.store_parts import (
    RULE,
    definition_part,
    few_keys_reading,
    few_keys_rule,
    few_keys_verdict,
    rebuilding_controls,
    worst_error,
)
from armillary.probes.attention.lexicon.known_words import sampled_words, unreadable, whole, word_notes
from armillary.probes.attention.lexicon.themes.written_words import (
    ReadableTokens,
    direction_table,
    first_directions,
    update_table,
)
from armillary.probes.attention.lexicon.word_statistics import (
    TWIN_LAYERS,
    median_over_heads,
    shown_layers,
    twin_note,
    word_interval,
)
from armillary.probes.attention.spaces.decomposed_heads import tie_note
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, Floats, Interval, Ints, T
from armillary.probes.machinery.intervals import discoveries
from armillary.probes.machinery.tables import cells, head_map, head_table
from armillary.probes.machinery.verdicts import name_heads, weighed
from armillary.results import Claim, Finding, Part, Quantity, Rewording, RuleChange, Statistic, Table, say


@dataclass(frozen=True)
class Store:
    """What attention writes rebuilt from singular vectors; and how few of them a word matches, compared with chance."""

    claim: ClassVar[Claim] = Claim(
        id="vo.store",
        chapter="B",
        kind="definition",
        statement="W_VO is a key–value store: its left singular vectors are keys, its right ones are updates.",
        source="S0",
        question=(
            "Can what a head writes be read like a dictionary: each key that a word matches adds its entry? And does "
            "a word match only a few keys?"
        ),
        definition=(
            "What a head writes for a word can be read as a sum over keys and updates. Part 1, by definition: the "
            "update for a word z is Σ σ_i (z·u_i) v_i, with the left singular vectors u_i of W_VO as keys and the "
            "right ones v_i as updates. That is algebra, true of every matrix. What is measured is this model's "
            "deviation: the running model reads each word alone, and what attention writes is compared with this sum "
            "over all heads, biases included. The statistic is the largest error over the largest write; it is not an "
            "average and has no interval.\n"
            "Part 2, ours: the name 'store' fits well only if a word matches few keys. Words are the COCA nouns and "
            "random printable tokens, as embeddings z on the sphere. The energy of a word's update in direction i is "
            "σ_i²(z·u_i)², p_i is its share, and Σp² is the concentration: 1 if one key takes all.\n"
            "Chance is computed in two ways: (a) the left vectors are rotated at random inside their span, with the "
            "singular values kept; (b) the words are whitened, rotated at random and given their covariance back. "
            "This keeps their mean and covariance along the keys, and only the match of word and key is lost (an axis "
            "that all words share is not a key).\n"
            "The ratio is the concentration divided by the larger of the two. Its interval is a bootstrap over words. "
            f"Up to {ROTATIONS} rotations are drawn."
        ),
        control=(
            "keys and updates exchanged, and random initialisation, for part 1; rotated keys, rotated words and "
            "random initialisation for part 2"
        ),
        rule=(
            "Part 1 decides: the largest error is compared with what rounding explains.\n"
            f"{RULE}\n"
            f"Part 2 is ours and decides nothing. {few_keys_rule('heads')}, or without untrained models.\n"
            f"The claim is undecided with fewer than {T.words_least} nouns that are single tokens, or without a "
            "tokenizer."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "The source says which vectors are keys and which are updates, which is true by definition. That a "
                "word matches few keys is our addition, and had decided the claim. The two are now apart, and "
                "untrained models are part of the rule.",
            ),
            RuleChange(
                "2026-11-18",
                "Few keys (our part, which decides nothing) is undecided wherever the ratio spans the end of untrained "
                "models; where few heads store it had been qualified.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "ffd9a1382a2a", 2),
            Rewording("2026-11-18", "b8c5d2245b05", 2),
            Rewording("2026-11-18", "5dfd8ead1e6f", 2),
            Rewording("2026-11-19", "e5ba80437fcf", 2),
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
        errors = rebuilding_errors(evidence, MODEL, ids, range(layers))
        by_definition = definition_part(
            evidence,
            errors,
            [f"L{layer}" for layer in range(layers)],
            "left vectors are keys, right ones updates",
            "Left singular vectors as keys and right ones as updates",
            "attention",
        )
        parts = (by_definition, _few_keys(evidence, matches, stores, ids))
        readable = ReadableTokens.of(evidence)
        more = {}
        for layer in shown_layers(layers):
            more[f"directions L{layer}"] = direction_table(evidence, layer, ids, readable)
            more[f"updates L{layer}"] = update_table(evidence, layer, nouns, readable)
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=worst_error(errors),
            n=len(ids),
            controls=rebuilding_controls(
                evidence, errors, lambda arm, some: rebuilding_errors(evidence, arm, ids, some)
            ),
            headline=(
                f"Updates are sums over keys and values to {say(errors[:, 0].max(), '.1g')}, by definition; a word "
                f"matches {np.median(matches.keys[..., 0]):.1f} of {evidence.anatomy.k} keys in the median head, by "
                f"chance {np.median(matches.keys[..., 1:].min(-1)):.1f}"
            ),
            table=_table(evidence, matches, stores, nouns, ids, readable),
            quantities=_quantities(matches),
            notes=_notes(evidence, nouns, ids),
            more_tables=more,
        )


def _few_keys(evidence: Evidence, matches: KeyMatches, stores: Flags, ids: Ints) -> Part:
    ratio = word_interval(evidence, matches.values, _median_ratio)
    untrained = evidence.over_twins(lambda arm: _untrained(evidence, arm, ids))
    verdict, why = few_keys_verdict(stores, ratio, untrained, len(evidence.twins))
    names = f" ({name_heads(stores)})" if 0 < stores.sum() < stores.size else ""
    against = [word_interval(evidence, matches.values[..., [0, chance, chance]], _median_ratio)[0] for chance in (1, 2)]
    reading = few_keys_reading(matches, evidence.anatomy.k, "head", "word", ratio, against, untrained)
    reading += f" Heads that store: {stores.sum()} of {stores.size}{names}."
    statistic = Statistic("concentration of a word's update over chance, median head", *ratio)
    return Part("a word matches few keys", verdict, reading, statistic, asserted=False, why=why)


def _untrained(evidence: Evidence, arm: str, ids: Ints) -> Interval:
    # No p-value is asked of an untrained model: one batch of rotations tells its chance level.
    twin = key_matches(evidence, arm, ids, range(min(TWIN_LAYERS, evidence.anatomy.layers)), BATCH)
    return word_interval(evidence, twin.values, _median_ratio)


def _median_ratio(means: Floats) -> Floats:
    return median_over_heads(ratios(means))


def _quantities(matches: KeyMatches) -> tuple[Quantity, ...]:
    return (
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
        "The larger of two chance levels is slightly above each of them: a head without keys has a ratio just below 1.",
        tie_note(evidence),
    ]
    if any(block.ln1_post is not None for block in evidence.anatomy.blocks):
        notes.append("A norm stands between heads and stream: lengths of updates are measured before that norm.")
    notes.append(twin_note(evidence, min(TWIN_LAYERS, evidence.anatomy.layers)))
    return tuple(notes)
