"""How well do angle, distance and length separate pairs of tokens with the same next token from other pairs?"""

from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.samples import SAMPLES, Sampled
from armillary.probes.machinery import NAN3, Evidence, Flags, Floats, Interval, Ints, T

DIFFERENT = 8000
LEAST = 30
DRAWS = 200


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of tokens from different documents: all with the same next token, and a sample of the others."""

    cosine: Floats
    euclidean: Floats
    length: Floats
    """Scores, larger for pairs that are more alike: cos(z_i, z_j), −‖x_i − x_j‖ and −|‖x_i‖ − ‖x_j‖|."""
    same: Flags
    documents: Ints
    """[pair, 2]."""

    def auc(self, scores: Floats, weights: Floats | None = None) -> Floats:
        """[draw]: the AUC of one of the scores, pairs weighted [draw, pair]."""
        from armillary.geometry.resample import weighted_auc

        return np.asarray(weighted_auc(scores, self.same, np.ones((1, len(self.same))) if weights is None else weights))


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
    different = np.flatnonzero(~same)
    if same.sum() < LEAST or len(different) < LEAST:
        return None
    chosen = np.concatenate([np.flatnonzero(same), rng.choice(different, min(DIFFERENT, len(different)), False)])
    i, j, same = i[chosen], j[chosen], same[chosen]
    x, z = sample.x.numpy()[usable], sample.z.numpy()[usable]
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30)
    length = np.linalg.norm(x, axis=1)
    squared = length[i] ** 2 + length[j] ** 2 - 2 * (x @ x.T)[i, j]
    euclidean = -np.sqrt(np.maximum(squared, 0))
    documents = np.stack([document[i], document[j]], 1)
    return Pairs((unit @ unit.T)[i, j], euclidean, -np.abs(length[i] - length[j]), same, documents)


def auc_difference(evidence: Evidence, arm: str, site: str, permuted: bool = False) -> Interval:
    """AUC(cosine) − AUC(length) with its interval: a pair counts as often as both of its documents are drawn."""
    from armillary.geometry.resample import tails

    pairs = pairs_of(evidence[SAMPLES][arm].ordinary(evidence.anatomy, site), evidence.seed, permuted)
    if pairs is None or evidence.corpus is None:
        return NAN3
    value = float((pairs.auc(pairs.cosine) - pairs.auc(pairs.length))[0])
    if evidence.corpus.documents < T.documents_least:
        return value, float("nan"), float("nan")
    groups = evidence.corpus.groups
    drawn = np.random.default_rng(evidence.seed).multinomial(groups, np.full(groups, 1 / groups), size=DRAWS)
    weights = drawn[:, pairs.documents % groups].prod(-1).astype(float)
    differences = pairs.auc(pairs.cosine, weights) - pairs.auc(pairs.length, weights)
    low, high = np.nanquantile(differences, tails(groups))
    return value, float(low), float(high)
