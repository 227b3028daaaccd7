"""Are the tokens that a left singular vector of W_QK picks related to those of its right vector?

The score of two tokens is a sum over directions, each the product of a query's and a key's coordinate. Tokens at one
end of a left vector therefore attend to those at the same end of the right one. Three relations are measured for every
left vector i with every right vector j of its head; which of them belong together is then left to chance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.related_nouns import known_pairs
from armillary.probes.attention.lexicon.themes.likeness import TOP, Side, shares, side_vectors
from armillary.probes.attention.lexicon.themes.written_words import trained_ids
from armillary.probes.attention.lexicon.word_classes import token_classes
from armillary.probes.attention.lexicon.word_directions import word_directions
from armillary.probes.machinery import Evidence, Floats, Interval, Ints, T, once

if TYPE_CHECKING:
    from torch import Tensor

RELATIONS = ("related nouns", "part of speech", "spelling")
# With fewer re-pairings and draws, the weakest heads are significant by one seed and not by another.
REPAIRINGS, DRAWS = 9999, 2000
SIDES: tuple[Side, Side] = ("queries", "keys")


@dataclass(frozen=True, eq=False)
class PairedSides:
    """Relatedness of left vector i and right vector j."""

    layers: tuple[int, ...]
    related: Floats  # [sign, layer, head, relation, i, j]: same ends of both vectors, opposite ends
    values: Floats  # [layer, head, direction]: singular values
    tokens: Ints  # [layer, head, direction, side, end, rank]
    relations: tuple[str, ...]

    @cached_property
    def weights(self) -> Floats:
        return shares(self.values)

    @property
    def observed(self) -> Floats:
        """[layer, head, relation, direction]."""
        return np.asarray(np.diagonal(self.related[0], axis1=-2, axis2=-1))

    @cached_property
    def excess(self) -> Floats:
        """[layer, head, relation, direction]: relatedness of a pair above that of re-paired directions."""
        size = self.related.shape[-1]
        others = self.related.mean(0) * ~np.eye(size, dtype=bool)
        return self.observed - others.sum(-1) / max(size - 1, 1)

    @property
    def head_excess(self) -> Floats:
        """[layer, head, relation]: mean over directions, weighted by singular value."""
        return np.einsum("lhrd,lhd->lhr", self.excess, self.weights)

    def p(self, seed: int) -> Floats:
        """[layer, head, relation]: share of signed re-pairings of a head's vectors that are as related."""
        draw, size = np.random.default_rng(seed), self.related.shape[-1]
        own = np.einsum("lhrd,lhd->lhr", self.observed, self.weights)
        reached = np.zeros(own.shape)
        for _ in range(REPAIRINGS):
            signs, order = draw.integers(2, size=size), draw.permutation(size)
            # Advanced indices move their axis to the front: [direction, layer, head, relation].
            null = np.einsum("dlhr,lhd->lhr", self.related[signs, ..., np.arange(size), order], self.weights)
            reached += null >= own - 1e-12
        return (1 + reached) / (1 + REPAIRINGS)

    def intervals(
        self, statistics: Sequence[Callable[[Floats], float]], seed: int, draws: int = DRAWS
    ) -> list[Interval]:
        """Statistics of every head's excess [layer, head, relation]: a bootstrap over the directions of each head."""
        from armillary.geometry.resample import tails

        draw, drawn = np.random.default_rng(seed), []
        for _ in range(draws):
            picked = draw.integers(self.values.shape[-1], size=self.values.shape)
            weight = shares(np.take_along_axis(self.values, picked, -1))
            excess = np.take_along_axis(self.excess, picked[:, :, None], -1)
            drawn.append([statistic(np.einsum("lhrd,lhd->lhr", excess, weight)) for statistic in statistics])
        ends = np.quantile(drawn, tails(self.values.size), axis=0).T.tolist()
        values = [statistic(self.head_excess) for statistic in statistics]
        return [(value, low, high) for value, (low, high) in zip(values, ends, strict=True)]


def paired_sides(evidence: Evidence, arm: str, layers: Sequence[int]) -> PairedSides:
    """The heads of some layers of an arm."""
    ids, (nouns, pairs) = trained_ids(evidence), known_pairs(evidence)
    listed = len(pairs) >= T.words_least
    related, values, tokens = [], [], []
    rows = (word_directions(evidence, arm, layers, some) for some in (ids, nouns))
    for layer, words, near in zip(layers, *rows, strict=True):
        (left, strengths), (right, _) = (side_vectors(evidence, arm, layer, side) for side in SIDES)
        ends = np.stack([_ends(side, words.values) for side in (left, right)], 2)
        kinds = [_agreement(labels[ends]) for labels in _classes(evidence)]
        if listed:
            kinds = [_correlation(left, right, near.values, pairs), *kinds]
        related.append(np.stack(kinds, 2))
        values.append(strengths.cpu().numpy())
        tokens.append(ids[ends])
    names = RELATIONS if listed else RELATIONS[1:]
    return PairedSides(tuple(layers), np.stack(related, 1), np.stack(values), np.stack(tokens), names)


@once
def _classes(evidence: Evidence) -> tuple[Ints, Ints]:
    """Part of speech and spelling class of the trained tokens made of letters."""
    return token_classes(evidence, trained_ids(evidence))


def _ends(vectors: "Tensor", words: "Tensor") -> Ints:
    """[head, direction, end, rank]: places of the words farthest along each vector and against it."""
    from armillary.geometry.readout import both_ends

    readouts = both_ends(vectors.flatten(0, 1), words, min(TOP, len(words)))
    ends = np.stack([end.ids.cpu().numpy() for end in readouts], 1)
    return ends.reshape(*vectors.shape[:2], *ends.shape[1:])


def _agreement(labels: Ints) -> Floats:
    """[sign, head, i, j]: share of pairs of a left and a right token that are of one class, mean over both ends.

    From labels [head, direction, side, end, rank]; −1 agrees with nothing.
    """
    counts = np.stack([(labels == kind).mean(-1) for kind in range(max(1, int(labels.max()) + 1))], -1)
    left, right = counts[:, :, 0], counts[:, :, 1]
    same = np.einsum("hiec,hjec->hij", left, right) / 2
    return np.stack([same, np.einsum("hiec,hjec->hij", left, right[:, :, ::-1]) / 2])


def _correlation(left: "Tensor", right: "Tensor", nouns: "Tensor", pairs: Ints) -> Floats:
    """[sign, head, i, j]: over pairs of related nouns, the correlation of one's coordinate along left vector i with the
    other's along right vector j. Both orders of a pair count. Opposite ends have the opposite sign.
    """
    sides = [(nouns @ side.mT).double().cpu().numpy() for side in (left, right)]
    query, key = ((side - side.mean(1, keepdims=True)) / _spread(side) for side in sides)
    first, second = pairs.T
    ordered = np.einsum("hpi,hpj->hij", query[:, first], key[:, second])
    other = np.einsum("hpi,hpj->hij", query[:, second], key[:, first])
    same = (ordered + other) / (2 * len(first))
    return np.stack([same, -same])


def _spread(coordinates: Floats) -> Floats:
    spread = coordinates.std(1, keepdims=True)
    return np.where(spread > 0, spread, 1.0)
