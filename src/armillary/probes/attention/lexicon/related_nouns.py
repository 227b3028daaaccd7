"""Related and unrelated pairs of nouns, and how well a score separates them, before and after W_QK."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary, whole
from armillary.probes.attention.lexicon.word_directions import folded, keys, queries
from armillary.probes.machinery import Evidence, Flags, Floats, Ints

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
    known = whole(evidence, [word for pair in pairs for word in pair[1:]])
    usable = tuple(pair for pair in pairs if pair.first in known and pair.second in known)
    return {word: known[word] for word in _words(usable)}, _repaired(usable, evidence.seed)


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


def exceeded(scores: Floats, pairings: Sequence[Pairing], null: bool = False) -> tuple[Floats, dict[str, Floats]]:
    """For scores [head, word, word] the share [pair, head] of unrelated pairs of its kind that a related pair exceeds.

    Ties count half, so the mean share is the AUC. With `null` also the mean shares [draw, head] of every re-pairing.
    """
    shares, nulls = [], {}
    for pairing in pairings:
        rows = np.arange(len(pairing.first))
        grids = scores[:, pairing.first[:, None], pairing.second[None]]
        ranked = np.stack([_rank(grid, pairing.counts) for grid in grids], -1)
        shares.append(ranked[rows, rows])
        if null:
            nulls[pairing.kind] = ranked[rows, pairing.repaired].mean(1)
    return np.concatenate(shares), nulls


def _rank(grid: Floats, weight: Floats) -> Floats:
    """For each entry the share of the weight below it, ties counting half."""
    _, inverse = np.unique(grid, return_inverse=True)
    weights = np.bincount(inverse.reshape(-1), weight.reshape(-1))
    return np.asarray(((np.cumsum(weights) - weights / 2) / weight.sum())[inverse.reshape(grid.shape)])


@dataclass(frozen=True, eq=False)
class RelationScores:
    """For every related pair the share of unrelated pairs that it scores above; the mean over pairs is the AUC."""

    after: Floats  # [pair, layer, head]: by z_i W_QK z_j
    centred: Floats  # the same after removing each word's mean score over all words
    before: Floats  # [pair, layer]: by the cosine of directions
    stored: Floats  # [pair]: by the dot product of embeddings as stored
    null: dict[str, Floats]  # relation → AUC of every re-pairing [draw, layer, head]
    kinds: tuple[str, ...]  # the relation of each pair

    @property
    def auc(self) -> Floats:
        """[layer, head]."""
        return np.asarray(self.after.mean(0))

    @property
    def null_auc(self) -> Floats:
        """[draw, layer, head], averaged over relations by their numbers of pairs."""
        sizes = [self.kinds.count(kind) for kind in self.null]
        return np.asarray(np.average(list(self.null.values()), axis=0, weights=sizes))


def relation_scores(evidence: Evidence, arm: str, ids: Sequence[int], pairings: Sequence[Pairing]) -> RelationScores:
    import torch

    tokens = vocabulary(evidence, arm)
    rows = torch.tensor(list(ids), device=tokens.anatomy.device)
    after, null, centred, before = [], [], [], []
    for layer in range(tokens.anatomy.layers):
        z = tokens.directions(layer, rows)
        heads = folded(evidence, arm, layer)
        scores = (queries(heads, z) @ keys(heads, z).mT).cpu().numpy()
        scores = (scores + scores.swapaxes(1, 2)) / 2
        shares, null_shares = exceeded(scores, pairings, null=True)
        after.append(shares)
        null.append(null_shares)
        means = scores.mean(2, keepdims=True)
        centred.append(exceeded(scores - means - means.swapaxes(1, 2), pairings)[0])
        before.append(exceeded(z.cosine(z).cpu().numpy()[None], pairings)[0])
    stored = tokens.embedded(rows)
    return RelationScores(
        after=np.stack(after, 1),
        centred=np.stack(centred, 1),
        before=np.stack(before, 1)[..., 0],
        stored=exceeded(stored.dot(stored).cpu().numpy()[None], pairings)[0][:, 0],
        null={p.kind: np.stack([layer[p.kind] for layer in null], 1) for p in pairings},
        kinds=tuple(p.kind for p in pairings for _ in p.first),
    )
