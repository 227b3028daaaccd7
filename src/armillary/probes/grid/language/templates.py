"""How are the sentences made? From word lists, by a seeded generator: every item in both orders and both roles.

An item asks one thing: from the query word, does attention go to the target rather than to the distractor? Both are
words of one kind. The two orders exchange their places, and the query keeps its own, so that a head which goes by place
gives both the same. In lists, with determiners and with pronouns all other words stay as well. With agreement and
subject they cannot: the phrase that holds the distractor moves to the front of its noun, with a comma behind it instead
of 'then' before it. A head that goes by the comma favours the nearer word in that order alone; the weaker order
counts, so it gains nothing. Items come in pairs: in the second the two words exchange their roles, so that a head which
likes one of the words gains nothing from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from armillary.probes.grid.language.word_lists import (
    ANTECEDENTS,
    ANTONYMS,
    CHOOSING,
    MEETING,
    PERSONS,
    PLACES,
    PLURAL,
    SINGULAR,
    SYNONYMS,
    VERBS,
)

SEED = 20261116
PAIRS = 20
GROUPS = {
    "syntax": ("agreement", "subject", "determiner"),
    "similarity and opposition": ("synonym", "antonym"),
    "anaphora": ("pronoun",),
}
"""What the source names, and the phenomena that stand for it."""
PHENOMENA = tuple(name for names in GROUPS.values() for name in names)
MEANINGS = {
    "agreement": "was or were and its subject, not a nearer noun of the other number",
    "subject": "a verb and its subject, not another person",
    "determiner": "this or these and the noun that it stands for, by number",
    "synonym": "a word and its synonym in a list, not another word",
    "antonym": "a word and its opposite in a list, not another word",
    "pronoun": "a pronoun and its antecedent, by gender or number",
}


@dataclass(frozen=True)
class Item:
    """One question in both orders."""

    phenomenon: str
    pair: int
    """Items of one pair share their words; the roles are exchanged."""
    target: str
    distractor: str
    query: str
    orders: tuple[str, str]
    """The target before the distractor, then after it."""


Frame = Callable[[str, str], tuple[str, str]]
"""From target and distractor to the two orders, up to the query."""


@cache
def items() -> tuple[Item, ...]:
    """Forty items of every phenomenon.

    >>> items()[0].orders
    ('And then the lake beside the tables was very old.', 'And beside the tables, the lake was very old.')
    """
    draw = np.random.default_rng(SEED)
    makers = (_agreement, _subject, _determiner, _synonym, _antonym, _pronoun)
    return tuple(item for make in makers for item in make(draw))


def _agreement(draw: np.random.Generator) -> list[Item]:
    words = zip(*(_drawn(draw, words) for words in (SINGULAR, PLURAL, PLACES)), strict=True)
    queries = ("was", "were")
    return _numbered([_both("agreement", (u, v), queries, _beside(place), " very old.") for u, v, place in words])


def _subject(draw: np.random.Generator) -> list[Item]:
    persons, verbs, places = _drawn(draw, PERSONS, 2 * PAIRS), _drawn(draw, VERBS), _drawn(draw, PLACES)
    words = zip(persons[::2], persons[1::2], verbs, places, strict=True)
    return _numbered([_both("subject", (u, v), (q, q), _beside(place), " at last.") for u, v, q, place in words])


def _determiner(draw: np.random.Generator) -> list[Item]:
    words = zip(*(_drawn(draw, words) for words in (SINGULAR, PLURAL, CHOOSING)), strict=True)
    queries = ("this", "these")
    return _numbered([_both("determiner", (u, v), queries, _either(verb), " at once.") for u, v, verb in words])


def _synonym(draw: np.random.Generator) -> list[Item]:
    return _listed("synonym", SYNONYMS, draw)


def _antonym(draw: np.random.Generator) -> list[Item]:
    return _listed("antonym", ANTONYMS, draw)


def _listed(phenomenon: str, words: Sequence[tuple[str, str]], draw: np.random.Generator) -> list[Item]:
    """Two pairs of words make a pair of items: the query belongs to the one or to the other."""
    order = draw.permutation(len(words))[: 2 * PAIRS]
    pairs = []
    for i, j in zip(order[::2], order[1::2], strict=True):
        (first, query), (second, other) = words[i], words[j]
        pairs.append(_both(phenomenon, (first, second), (query, other), _in_a_list, " in this list."))
    return _numbered(pairs)


def _pronoun(draw: np.random.Generator) -> list[Item]:
    pairs = []
    for number, verb in zip(draw.permutation(len(ANTECEDENTS)), _drawn(draw, MEETING), strict=True):
        first, query, second, other = ANTECEDENTS[number]
        pairs.append(_both("pronoun", (first, second), (query, other), _meeting(verb), " fell down."))
    return _numbered(pairs)


def _beside(place: str) -> Frame:
    return lambda target, distractor: (
        f"And then the {target} {place} the {distractor}",
        f"And {place} the {distractor}, the {target}",
    )


def _either(verb: str) -> Frame:
    return lambda target, distractor: (
        f"Of the {target} and the {distractor}, she {verb}",
        f"Of the {distractor} and the {target}, she {verb}",
    )


def _in_a_list(target: str, distractor: str) -> tuple[str, str]:
    return f"The words were {target}, {distractor} and", f"The words were {distractor}, {target} and"


def _meeting(verb: str) -> Frame:
    return lambda target, distractor: (
        f"The {target} {verb} the {distractor} when",
        f"The {distractor} {verb} the {target} when",
    )


def _both(
    phenomenon: str, words: tuple[str, str], queries: tuple[str, str], frame: Frame, rest: str
) -> tuple[Item, Item]:
    """Either word as the target."""
    first, second = words
    roles = ((first, second, queries[0]), (second, first, queries[1]))
    items = []
    for target, distractor, query in roles:
        before, after = (f"{text} {query}{rest}" for text in frame(target, distractor))
        items.append(Item(phenomenon, 0, target, distractor, query, (before, after)))
    return items[0], items[1]


def _numbered(pairs: Sequence[tuple[Item, Item]]) -> list[Item]:
    return [replace(item, pair=number) for number, pair in enumerate(pairs) for item in pair]


def _drawn(draw: np.random.Generator, words: Sequence[str], count: int = PAIRS) -> list[str]:
    """So many words in random order; a short list is gone through again."""
    rounds = -(-count // len(words))
    return [words[i] for _ in range(rounds) for i in draw.permutation(len(words))][:count]
