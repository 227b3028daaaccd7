"""Which nouns are related, which are not, and how far does a score set the two kinds of pairs apart?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from armillary.probes.attention.lexicon.known_words import whole
from armillary.probes.machinery.evidence import Evidence, Flags, Floats, Ints

RELATIONS = ("synonym", "antonym", "part", "kind", "association")
REPAIRINGS = 999


class Pair(NamedTuple):
    """Two nouns and how they are related."""

    kind: str
    first: str
    second: str


@cache
def related_pairs() -> tuple[Pair, ...]:
    """The committed list (data/related_nouns.tsv says who judged it and how).

    >>> related_pairs()[0]
    Pair(kind='synonym', first='road', second='street')
    """
    text = files("armillary.probes.attention.lexicon").joinpath("data", "related_nouns.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(Pair(*row) for row in rows[1:])


@cache
def related() -> Mapping[str, frozenset[str]]:
    """For every listed noun those it is paired with.

    >>> sorted(related()["sea"])
    ['fish', 'land', 'ocean']
    """
    found: dict[str, set[str]] = {}
    for _, first, second in related_pairs():
        found.setdefault(first, set()).add(second)
        found.setdefault(second, set()).add(first)
    return MappingProxyType({word: frozenset(others) for word, others in found.items()})


@cache
def near(word: str) -> frozenset[str]:
    """The nouns at most two steps of the list away, itself included: none of them may pass for unrelated."""
    one = related().get(word, frozenset())
    return frozenset({word, *one, *(far for between in one for far in related()[between])})


@dataclass(frozen=True, eq=False)
class Pairing:
    """One kind of relation: word rows of its pairs, and re-pairings [draw, pair] of the second words."""

    kind: str
    first: Ints
    second: Ints
    turned: Ints
    often: Floats
    """How often each first word [row] met each second word [column] in them."""


def pairings_of(evidence: Evidence, pairs: Sequence[Pair]) -> tuple[dict[str, int], tuple[Pairing, ...]]:
    """Token ids of the words of all pairs that are whole here, and the pairs with their re-pairings, by kind."""
    known = whole(evidence, [word for pair in pairs for word in pair[1:]])
    kept = tuple(pair for pair in pairs if pair.first in known and pair.second in known)
    return {word: known[word] for word in _words(kept)}, _repaired(kept, evidence.seed)


def _words(pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(word for pair in pairs for word in pair[1:]))


@lru_cache(maxsize=4)
def _repaired(pairs: tuple[Pair, ...], seed: int) -> tuple[Pairing, ...]:
    """By kind, with rows in the order of `_words`; a kind that cannot be re-paired is left out."""
    row = {word: i for i, word in enumerate(_words(pairs))}
    draw = np.random.default_rng(seed)
    made = []
    for kind in RELATIONS:
        mine = [pair for pair in pairs if pair.kind == kind]
        allowed = np.array([[b.second not in near(a.first) for b in mine] for a in mine], dtype=bool)
        turned = repair(allowed, REPAIRINGS, draw)
        if turned is not None:
            first, second = (np.array([row[pair[side]] for pair in mine]) for side in (1, 2))
            often = np.zeros(allowed.shape)
            np.add.at(often, (np.arange(len(mine)), turned), 1)
            made.append(Pairing(kind, first, second, turned, often))
    return tuple(made)


def repair(allowed: Flags, draws: int, draw: np.random.Generator, tries: int = 1000) -> Ints | None:
    """Random one-to-one re-pairings [draw, pair] that use allowed places only; None where none was found.

    >>> repair(~np.eye(2, dtype=bool), 1, np.random.default_rng(0))
    array([[1, 0]])
    """
    n, made = len(allowed), []
    for _ in range(draws if n > 1 else 0):
        order = draw.permutation(n)
        for _ in range(tries):
            bad = np.flatnonzero(~allowed[np.arange(n), order])
            if not len(bad):
                break
            i = bad[0]
            # Any exchange that mends i without breaking another; if there is none, any at all, to go on from there.
            fits = np.flatnonzero(allowed[i, order] & allowed[np.arange(n), order[i]])
            j = draw.choice(fits) if len(fits) else draw.integers(n)
            order[[i, j]] = order[[j, i]]
        else:
            return None
        made.append(order)
    return np.stack(made) if made else None


def placed(scores: Floats, pairings: Sequence[Pairing], null: bool = False) -> tuple[Floats, dict[str, Floats]]:
    """For scores [head, word, word] the place [pair, head] of every related pair among the unrelated of its kind, ties
    counting half: its mean is the AUC. With `null` also the mean places [draw, head] of every re-pairing."""
    places, nulls = [], {}
    for one in pairings:
        rows = np.arange(len(one.first))
        grids = scores[:, one.first[:, None], one.second[None]]
        ranked = np.stack([_rank(grid, one.often) for grid in grids], -1)
        places.append(ranked[rows, rows])
        if null:
            nulls[one.kind] = ranked[rows, one.turned].mean(1)
    return np.concatenate(places), nulls


def _rank(grid: Floats, weight: Floats) -> Floats:
    """Each entry's share of the weight that lies below it, equals counting half."""
    _, inverse = np.unique(grid, return_inverse=True)
    held = np.bincount(inverse.reshape(-1), weight.reshape(-1))
    return np.asarray(((np.cumsum(held) - held / 2) / weight.sum())[inverse.reshape(grid.shape)])
