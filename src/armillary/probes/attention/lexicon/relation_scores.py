"""How well does a score separate related from unrelated pairs of nouns, before and after W_QK?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.lexicon.related_nouns import Pairing
from armillary.probes.attention.lexicon.word_directions import folded, keys, queries
from armillary.probes.machinery import MODEL, Evidence, Floats

if TYPE_CHECKING:
    from armillary.anatomy.space import Vectors


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


def _scores(evidence: Evidence, arm: str, layer: int, z: "Vectors") -> Floats:
    """z_i W_QK z_j [head, word, word], the mean of both orders."""
    heads = folded(evidence, arm, layer)
    scores = (queries(heads, z) @ keys(heads, z).mT).cpu().numpy()
    return np.asarray((scores + scores.swapaxes(1, 2)) / 2)


def shares_after(evidence: Evidence, arm: str, ids: Sequence[int], pairings: Sequence[Pairing]) -> Floats:
    """`RelationScores.after` [pair, layer, head] alone: all that is asked of an untrained model."""
    import torch

    tokens = vocabulary(evidence, arm)
    rows = torch.tensor(list(ids), device=tokens.anatomy.device)
    layers = range(tokens.anatomy.layers)
    scores = (_scores(evidence, arm, layer, tokens.directions(layer, rows)) for layer in layers)
    return np.stack([exceeded(each, pairings)[0] for each in scores], 1)


def relation_scores(evidence: Evidence, ids: Sequence[int], pairings: Sequence[Pairing]) -> RelationScores:
    import torch

    tokens, arm = vocabulary(evidence), MODEL
    rows = torch.tensor(list(ids), device=tokens.anatomy.device)
    after, null, centred, before = [], [], [], []
    for layer in range(tokens.anatomy.layers):
        z = tokens.directions(layer, rows)
        scores = _scores(evidence, arm, layer, z)
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
