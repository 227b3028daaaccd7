"""How well do heads separate related nouns from unrelated ones, before and after W_QK?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.lexicon.related_nouns import Pairing, exceeded
from armillary.probes.attention.lexicon.word_directions import folded, keys, queries
from armillary.probes.machinery import Evidence, Floats


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
