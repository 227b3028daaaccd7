"""Which words of our lists are single tokens of a model, and which tokens are forms of a word?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import MODEL, TWINS, Cells, Evidence, Flags, Ints, T, cells, head_table, once_if_small
from armillary.probes.machinery.verdicts import undecided
from armillary.results import Claim, Finding, Why

if TYPE_CHECKING:
    from armillary.anatomy.vocabulary import Vocabulary

_PLURALS = {"man": "men", "woman": "women", "child": "children", "foot": "feet", "tooth": "teeth", "mouse": "mice"}


def forms(noun: str) -> frozenset[str]:
    """A noun and its inflections by spelling, in lower case: plural or singular, and -ed, -ing as of a verb.

    These are spelling rules, not a dictionary: 'houseed' is listed too, which is harmless because no token has it.

    >>> sorted(forms("story"))[:3], "places" in forms("place"), "placing" in forms("place"), "men" in forms("man")
    (['storied', 'stories', 'story'], True, True, True)
    """
    base = noun.casefold()
    spellings = {base + ending for ending in ("", "s", "es", "ed", "ing", base[-1] + "ed", base[-1] + "ing")}
    if base.endswith("y"):
        spellings |= {base[:-1] + "ies", base[:-1] + "ied"}
    if base.endswith("e"):
        spellings |= {base + "d", base[:-1] + "ing"}
    if base.endswith(("f", "fe")):
        spellings.add(base.removesuffix("e").removesuffix("f") + "ves")
    if base.endswith("s"):
        spellings.add(base[:-1])
    return frozenset(spellings | {_PLURALS.get(base, base)})


def _size(tokens: "Vocabulary") -> int:
    """An untrained twin is held by nothing else; the model itself is there anyway."""
    return 0 if tokens.anatomy.tokenizer is not None else tokens.anatomy.weight_bytes


@once_if_small(_size)
def vocabulary(evidence: Evidence, arm: str = MODEL) -> "Vocabulary":
    """The model's tokens; twins, which have no tokenizer of their own, are read with the same ones."""
    from armillary.anatomy.vocabulary import Vocabulary

    if arm in TWINS:
        return replace(vocabulary(evidence), anatomy=evidence.model(arm))
    return Vocabulary.of(evidence.anatomy)


def whole(evidence: Evidence, words: Sequence[str], spaced: bool = True) -> dict[str, int]:
    """The words that are one token here, with its id: after a space if the vocabulary has that token, else bare
    (`spaced=False`: the other way round), else in lower case where a vocabulary has no capitals."""
    tokens = vocabulary(evidence)
    index: dict[str, int] = {}
    for i in np.flatnonzero(tokens.shown):
        index.setdefault(tokens.texts[i], int(i))
    ids = {}
    for word in dict.fromkeys(words):
        order = (f" {word}", word) if spaced else (word, f" {word}")
        spelling = next((text for text in (*order, word.lower()) if text in index), None)
        if spelling is not None:
            ids[word] = index[spelling]
    return ids


def marks(evidence: Evidence, nouns: Sequence[Sequence[str]]) -> Flags:
    """[noun, token]: which tokens are spelt as a form of any of each entry's words, ignoring case and space."""
    texts = [text.strip().casefold() for text in vocabulary(evidence).texts]
    spelt: dict[str, list[int]] = {}
    for i in np.flatnonzero(vocabulary(evidence).shown):
        spelt.setdefault(texts[i], []).append(int(i))
    flags = np.zeros((len(nouns), len(texts)), dtype=bool)
    for row, words in enumerate(nouns):
        for form in {form for word in words for form in forms(word)}:
            flags[row, spelt.get(form, [])] = True
    return flags


def sampled_words(evidence: Evidence, nouns: Mapping[str, int]) -> Ints:
    """Token ids: the nouns, and random printable tokens up to four words per dimension of a head (at least 256), so
    that a covariance in the head's space can be estimated."""
    shown = np.setdiff1d(np.flatnonzero(vocabulary(evidence).shown), list(nouns.values()))
    more = max(256, 4 * evidence.anatomy.k) - len(nouns)
    drawn = np.random.default_rng(evidence.seed).permutation(shown)[: max(more, 0)]
    return np.concatenate([np.array(list(nouns.values()), dtype=np.int64), np.sort(drawn)])


def token_cells(evidence: Evidence, name: str, meaning: str, ids: Ints) -> tuple[Cells, ...]:
    """Columns 'name 1', 'name 2' … with the text of tokens [row, rank]."""
    texts = vocabulary(evidence).texts
    return tuple(
        cells(f"{name} {rank}", f"{meaning}, rank {rank}", [texts[token] for token in column])
        for rank, column in enumerate(ids.T, 1)
    )


def unreadable(claim: Claim, evidence: Evidence, words: Sequence[str] = (), layers: int = 1) -> Finding | None:
    """An undecided finding where words decide nothing: no tokenizer, too few known words or too few layers."""
    table = head_table(evidence.anatomy)
    if evidence.anatomy.tokenizer is None:
        reading = "The model came without a tokenizer, so its weights cannot be read in words. Pass a tokenizer."
        return undecided(claim, Why.UNDEFINED, reading, table)
    if evidence.anatomy.layers < layers:
        reading = "The model has one layer, so nothing can change with depth. A deeper model is needed."
        return undecided(claim, Why.NOT_APPLICABLE, reading, table)
    known = len(whole(evidence, words))
    return too_few(claim, evidence, known, len(set(words)), "words") if words and known < T.words_least else None


def too_few(claim: Claim, evidence: Evidence, known: int, listed: int, what: str) -> Finding:
    reading = (
        f"Only {known} of {listed} listed {what} are single tokens here; a verdict needs {T.words_least}. A vocabulary "
        "of whole English words is needed."
    )
    return undecided(claim, Why.UNDEFINED, reading, head_table(evidence.anatomy), known)


def word_notes(evidence: Evidence, ids: Mapping[str, int], measured: str, offsets: bool = False) -> list[str]:
    """Notes of a claim that reads words: which were measured, how they are spelt and what stands for them."""
    spaced = sum(vocabulary(evidence).texts[i].startswith(" ") for i in ids.values())
    spelling = f"{spaced} words as tokens with a leading space, {len(ids) - spaced} as bare tokens"
    notes = [
        f"{measured} are measured: {spelling}.",
        "Words enter every layer as bare embeddings, as in the source. The stream's actual state there is not used.",
    ]
    if offsets and evidence.anatomy.positions.kind == "rotary":
        notes.append("Under RoPE scores depend on the offset; these are at Δ = 0.")
    return notes
