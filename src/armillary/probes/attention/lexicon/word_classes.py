"""Which part of speech and which spelling does a token have? By lists and endings: no tagger is asked."""

from functools import cache

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import forms, vocabulary
from armillary.probes.attention.lexicon.related_nouns import related
from armillary.probes.machinery import Evidence, Ints

# Compiled by hand from grammars' closed classes. A word stands in the class of its most common use.
FUNCTION_WORDS = {
    "determiner": "the a an this that these those every each some any no all both either neither another such my your "
    "his its our their whose much many few several",
    "pronoun": "i you he she it we they me him her us them myself yourself himself herself itself ourselves themselves "
    "mine yours hers ours theirs who whom which what someone somebody something anyone anybody anything everyone "
    "everybody everything none nobody nothing oneself",
    "preposition": "of in to for with on at from by about into through after over between against during without "
    "before under around among upon toward towards beneath beside beyond across along behind above below within near "
    "off per",
    "conjunction": "and or but nor because although though if unless while whereas whether until since as than",
    "auxiliary": "is are was were be been being am have has had having do does did done will would shall should can "
    "could may might must ought cannot",
    "adverb": "not never always often very too also then there here now so yet still just only even again almost "
    "perhaps soon once quite rather away ever already how when where why however thus",
    "number": "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred "
    "thousand million first second third",
}
# An ending makes a class where three letters or more are left.
ENDINGS = {
    "adverb": ("ly",),
    "noun": ("tion", "sion", "ness", "ment", "ity", "ance", "ence", "ship", "hood", "ism"),
    "adjective": ("ous", "ful", "ive", "able", "ible", "less", "ish"),
    "-ing": ("ing",),
    "-ed": ("ed",),
}
ALL_ENDINGS = tuple(ending for endings in ENDINGS.values() for ending in endings)
SPEECH = (*FUNCTION_WORDS, "noun", "adjective", "-ing", "-ed")
CASES = ("lower", "Capital", "UPPER", "mixed")


@cache
def _listed() -> dict[str, str]:
    nouns = {form: "noun" for noun in (*NOUNS, *related()) for form in forms(noun)}
    return nouns | {word: kind for kind, words in FUNCTION_WORDS.items() for word in words.split()}


def part_of_speech(word: str) -> str | None:
    """The class of a whole word; None where neither list nor ending tells.

    >>> [part_of_speech(word) for word in ("The", "houses", "slowly", "jumping", "ing", "tall")]
    ['determiner', 'noun', 'adverb', '-ing', None, None]
    """
    bare = word.casefold()
    if bare in _listed():
        return _listed()[bare]
    if not bare.endswith(ALL_ENDINGS):
        return None
    for kind, endings in ENDINGS.items():
        if any(bare.endswith(ending) and len(bare) - len(ending) >= 3 for ending in endings):
            return kind
    return None


def token_classes(evidence: Evidence, ids: Ints) -> tuple[Ints, Ints]:
    """Part of speech and spelling class of tokens, as numbers; −1 where the part of speech is not known.

    The spelling class is the case of the letters, and whether the token begins a word. Pieces of words have no part of
    speech. Where no token of a vocabulary begins with a space, a token begins a word unless it is marked as a piece.
    """
    every = vocabulary(evidence).texts
    texts = [every[i] for i in ids]
    spaced = any(text.startswith(" ") for text in texts)
    begins = [text.startswith(" ") if spaced else not text.startswith("##") for text in texts]
    words = [text.strip().removeprefix("##") for text in texts]
    speech = [part_of_speech(word) if first else None for word, first in zip(words, begins, strict=True)]
    cases = [CASES.index(_case(word)) for word in words]
    return (
        np.array([-1 if kind is None else SPEECH.index(kind) for kind in speech], dtype=np.int64),
        np.array(cases, dtype=np.int64) + len(CASES) * np.array(begins, dtype=np.int64),
    )


def _case(word: str) -> str:
    """
    >>> [_case(word) for word in ("the", "The", "THE", "I", "iPad")]
    ['lower', 'Capital', 'UPPER', 'Capital', 'mixed']
    """
    if word == word.lower():
        return "lower"
    if word == word[:1].upper() + word[1:].lower():
        return "Capital"
    return "UPPER" if word == word.upper() else "mixed"
