"""How well do angle, distance and length separate pairs of tokens with the same next token from other pairs?"""

from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.samples import LAST_SAMPLES, Sampled
from armillary.probes.machinery import Evidence, Flags, Floats, Ints, once
from armillary.probes.sphere.across_sites import document_weights

MOST = 4000
LEAST = 30
DRAWS = 400
COSINE, EUCLIDEAN, LENGTH = range(3)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of tokens from different documents: those with the same next token, and others; a sample of either."""

    scores: Floats
    """[(cosine, Euclidean, length), pair], larger for pairs that are more alike: cos(z_i, z_j), −‖x_i − x_j‖ and
    −|‖x_i‖ − ‖x_j‖|."""
    same: Flags
    documents: Ints
    """[pair, 2]."""

    def aucs(self) -> Floats:
        """[score]: the AUC of every score."""
        from armillary.geometry.resample import weighted_auc

        return np.array([weighted_auc(scores, self.same, np.ones(len(self.same))) for scores in self.scores])

    def drawn(self, weights: Floats) -> Floats:
        """[draw, score]: the AUCs when document groups weigh [draw, group]; a pair weighs as both of its groups do.

        Comparisons are added up by the documents of the two pairs once, so that a draw costs one small product.
        """
        groups = np.sort(self.documents % weights.shape[1], axis=1)
        couples, couple = np.unique(groups, axis=0, return_inverse=True)
        heavy = weights[:, couples[:, 0]] * weights[:, couples[:, 1]]
        couple = couple.reshape(-1)
        of_same, of_others = (np.bincount(couple[kind], minlength=len(couples)) for kind in (self.same, ~self.same))
        pairs = (heavy @ of_same) * (heavy @ of_others)
        won = [np.einsum("bg,bg->b", heavy @ self._comparisons(row, couple), heavy) for row in self.scores]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([np.where(pairs > 0, wins / pairs, np.nan) for wins in won], 1)

    def _comparisons(self, scores: Floats, couple: Ints) -> Floats:
        """[couple of documents, couple]: how often a same pair of the first scores above another pair of the second,
        ties counting half."""
        size, order = int(couple.max()) + 1, np.argsort(scores[~self.same], kind="stable")
        others = scores[~self.same][order]
        # Row n: how many of the n lowest other pairs belong to each couple. Counts are exact in float32 up to 2²⁴.
        lowest = np.zeros((len(others) + 1, size), dtype=np.float32)
        lowest[np.arange(1, len(others) + 1), couple[~self.same][order]] = 1
        np.cumsum(lowest, axis=0, out=lowest)
        by_owner = np.argsort(couple[self.same], kind="stable")
        high, owner = scores[self.same][by_owner], couple[self.same][by_owner]
        owners, starts = np.unique(owner, return_index=True)
        won = np.zeros((size, size))
        for side in ("left", "right"):
            won[owners] += np.add.reduceat(lowest[np.searchsorted(others, high, side)], starts, axis=0) / 2
        return won


def pairs_of(sample: Sampled, seed: int, permuted: bool = False) -> Pairs | None:
    """None where fewer than `LEAST` pairs are the same, or different; `permuted` gives tokens each other's next one."""
    rng = np.random.default_rng(seed)
    usable = np.flatnonzero(sample.following >= 0)
    following, document = sample.following[usable], sample.document[usable]
    if permuted:
        following = rng.permutation(following)
    i, j = np.triu_indices(len(usable), 1)
    apart = document[i] != document[j]
    i, j = i[apart], j[apart]
    same = following[i] == following[j]
    kinds = np.flatnonzero(same), np.flatnonzero(~same)
    if min(map(len, kinds)) < LEAST:
        return None
    chosen = np.concatenate([rng.choice(kind, min(MOST, len(kind)), replace=False) for kind in kinds])
    i, j, same = i[chosen], j[chosen], same[chosen]
    x, z = sample.x.numpy()[usable], sample.z.numpy()[usable]
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30)
    length = np.linalg.norm(x, axis=1)
    squared = length[i] ** 2 + length[j] ** 2 - 2 * (x @ x.T)[i, j]
    scores = ((unit @ unit.T)[i, j], -np.sqrt(np.maximum(squared, 0)), -np.abs(length[i] - length[j]))
    return Pairs(np.stack(scores), same, np.stack([document[i], document[j]], 1))


@once
def last_aucs(evidence: Evidence, arm: str, permuted: bool = False) -> Floats | None:
    """[1 + draw, score]: the AUCs at the last norm of an arm under `document_weights`; None with too few pairs."""
    site = evidence.sites[-1]
    pairs = pairs_of(evidence[LAST_SAMPLES][arm].ordinary(evidence.anatomy, site), evidence.seed, permuted)
    return None if pairs is None else pairs.drawn(document_weights(evidence, DRAWS))
