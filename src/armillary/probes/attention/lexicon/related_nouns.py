"""Which nouns are related, and which pairs of the same nouns are not?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from armillary.probes.attention.lexicon.known_words import whole
from armillary.probes.machinery import Evidence, Flags, Floats, Ints, once

RELATIONS = ("synonym", "antonym", "part", "kind", "association")
REPAIRINGS = 999


class NounPair(NamedTuple):
    """Two nouns and how they are related."""

    kind: str
    first: str
    second: str


@cache
def related_pairs() -> tuple[NounPair, ...]:
    """The committed list (data/related_nouns.tsv says who judged it and how).

    >>> related_pairs()[0]
    NounPair(kind='synonym', first='road', second='street')
    """
    text = files("armillary.probes.attention.lexicon").joinpath("data", "related_nouns.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(NounPair(*row) for row in rows[1:])


@cache
def related() -> Mapping[str, frozenset[str]]:
    """Each listed noun and the nouns that it is paired with.

    >>> sorted(related()["sea"])
    ['fish', 'land', 'ocean']
    """
    partners: dict[str, set[str]] = {}
    for _, first, second in related_pairs():
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    return MappingProxyType({word: frozenset(others) for word, others in partners.items()})


@cache
def near(word: str) -> frozenset[str]:
    """The nouns at most two pairs of the list away, itself included: none of them may count as unrelated."""
    partners = related().get(word, frozenset())
    return frozenset({word, *partners, *(far for partner in partners for far in related()[partner])})


@dataclass(frozen=True, eq=False)
class Pairing:
    """One kind of relation: word rows of its pairs, and re-pairings [draw, pair] of the second words."""

    kind: str
    first: Ints
    second: Ints
    repaired: Ints
    counts: Floats
    """How often each first word [row] was paired with each second word [column] in them."""


def pairings_of(evidence: Evidence, pairs: Sequence[NounPair]) -> tuple[dict[str, int], tuple[Pairing, ...]]:
    """Token ids of the words of all pairs of single tokens, and these pairs with their re-pairings, by kind."""
    words, usable = _known(evidence, pairs)
    return words, _repaired(usable, evidence.seed)


@once
def known_pairs(evidence: Evidence) -> tuple[Ints, Ints]:
    """Token ids of the words of all listed pairs of single tokens; and these pairs [pair, 2], as places among them."""
    words, usable = _known(evidence, related_pairs())
    row = {word: i for i, word in enumerate(words)}
    places = [(row[pair.first], row[pair.second]) for pair in usable]
    return np.array(list(words.values()), dtype=np.int64), np.array(places, dtype=np.int64).reshape(-1, 2)


def _known(evidence: Evidence, pairs: Sequence[NounPair]) -> tuple[dict[str, int], tuple[NounPair, ...]]:
    known = whole(evidence, [word for pair in pairs for word in pair[1:]])
    usable = tuple(pair for pair in pairs if pair.first in known and pair.second in known)
    return {word: known[word] for word in _words(usable)}, usable


def _words(pairs: Sequence[NounPair]) -> list[str]:
    return list(dict.fromkeys(word for pair in pairs for word in pair[1:]))


@lru_cache(maxsize=4)
def _repaired(pairs: tuple[NounPair, ...], seed: int) -> tuple[Pairing, ...]:
    """By kind, with rows in the order of `_words`; a kind that cannot be re-paired is left out."""
    row = {word: i for i, word in enumerate(_words(pairs))}
    draw = np.random.default_rng(seed)
    pairings = []
    for kind in RELATIONS:
        members = [pair for pair in pairs if pair.kind == kind]
        allowed = np.array([[b.second not in near(a.first) for b in members] for a in members], dtype=bool)
        repaired = repair(allowed, REPAIRINGS, draw)
        if repaired is not None:
            first, second = (np.array([row[pair[side]] for pair in members]) for side in (1, 2))
            counts = np.zeros(allowed.shape)
            np.add.at(counts, (np.arange(len(members)), repaired), 1)
            pairings.append(Pairing(kind, first, second, repaired, counts))
    return tuple(pairings)


def repair(allowed: Flags, draws: int, draw: np.random.Generator, tries: int = 1000) -> Ints | None:
    """Random one-to-one re-pairings [draw, pair] that use allowed pairs only; None where the search fails.

    >>> repair(~np.eye(2, dtype=bool), 1, np.random.default_rng(0))
    array([[1, 0]])
    """
    n, orders = len(allowed), []
    for _ in range(draws if n > 1 else 0):
        order = draw.permutation(n)
        for _ in range(tries):
            bad = np.flatnonzero(~allowed[np.arange(n), order])
            if not len(bad):
                break
            i = bad[0]
            # An exchange that repairs i without breaking another pair; if there is none, any exchange.
            fits = np.flatnonzero(allowed[i, order] & allowed[np.arange(n), order[i]])
            j = draw.choice(fits) if len(fits) else draw.integers(n)
            order[[i, j]] = order[[j, i]]
        else:
            return None
        orders.append(order)
    return np.stack(orders) if orders else None
