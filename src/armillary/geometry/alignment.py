"""How alike are two sets of representations of the same samples, and how alike would they be by chance? NumPy only.

Both measures are inner products of two n × n matrices, one per layer: centred Gram matrices for CKA, tables of nearest
neighbours for mutual nearest neighbours. Permuting the samples of one side gives the null of both.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FEWEST = 16


class Alignment(NamedTuple):
    """Maps [layer of A, layer of B], and the same for the best pair of all layers."""

    score: Floats
    chance: Floats
    """The score that 5 % of permutations reach."""
    p: Floats
    """How often permutations reach the score, the score itself counted among them."""
    best: float
    best_chance: float
    """The score that the best pair of layers reaches in 5 % of permutations."""

    @property
    def calibrated(self) -> Floats:
        """0 at chance and below, 1 for identical representations: (s − c) / (1 − c), c the score by chance."""
        return np.asarray(np.clip((self.score - self.chance) / (1 - self.chance), 0, None))


def centred_gram(x: Floats) -> Floats:
    """The Gram matrix of rows, U-centred: its inner products are unbiased estimates of HSIC, so that unrelated rows
    score 0 on average whatever their width (Székely & Rizzo, 2014; Song et al., 2012).

    >>> gram = centred_gram(np.random.default_rng(0).normal(size=(20, 5)))
    >>> bool(np.allclose(gram.sum(0), 0)), float(np.abs(np.diag(gram)).max())
    (True, 0.0)
    """
    n = len(x)
    gram = x @ x.T
    np.fill_diagonal(gram, 0)
    rows = gram.sum(0) / (n - 2)
    gram = gram - rows[:, None] - rows[None] + gram.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(gram, 0)
    return np.asarray(gram)


def neighbours(x: Floats, k: int) -> Floats:
    """[sample, sample]: 1 where the second is among the k nearest of the first, by the cosine about the mean.

    >>> neighbours(np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, -0.1]]), 1).astype(int).tolist()
    [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    """
    centred = x - x.mean(0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    near = (centred / np.maximum(length, 1e-300)) @ (centred / np.maximum(length, 1e-300)).T
    np.fill_diagonal(near, -np.inf)
    table = np.zeros_like(near)
    np.put_along_axis(table, np.argpartition(-near, k - 1, axis=1)[:, :k], 1.0, axis=1)
    return table


def cka(a: Sequence[Floats], b: Sequence[Floats], permutations: int = 200, seed: int = 0) -> Alignment:
    """Linear CKA (Kornblith et al., arXiv:1905.00414) with an unbiased HSIC; at most 1, about 0 by chance."""
    first, second = (np.stack([_unit(centred_gram(np.asarray(x, np.float64))) for x in side]) for side in (a, b))
    return _against_chance(first, second, permutations, seed)


def mutual_neighbours(
    a: Sequence[Floats], b: Sequence[Floats], k: int = 10, permutations: int = 200, seed: int = 0
) -> Alignment:
    """The share of a sample's k nearest neighbours that both have in common (Huh et al., arXiv:2405.07987)."""
    n = len(a[0])
    scale = 1 / np.sqrt(n * k)
    first, second = (np.stack([neighbours(np.asarray(x, np.float64), k) * scale for x in side]) for side in (a, b))
    return _against_chance(first, second, permutations, seed)


def _unit(gram: Floats) -> Floats:
    return np.asarray(gram / max(float(np.linalg.norm(gram)), 1e-300))


def _against_chance(a: Floats, b: Floats, permutations: int, seed: int) -> Alignment:
    """Inner products of all layers, and of all layers with the samples of B permuted."""
    if len(a[0]) < FEWEST:
        raise ValueError(f"{len(a[0])} samples are too few for a null; give at least {FEWEST}.")
    rng = np.random.default_rng(seed)
    a, b = a.astype(np.float32), b.astype(np.float32)
    flat = a.reshape(len(a), -1)
    score = np.minimum(flat @ b.reshape(len(b), -1).T, 1.0).astype(np.float64)
    null = np.empty((permutations, *score.shape))
    for draw in range(permutations):
        order = rng.permutation(b.shape[1])
        null[draw] = flat @ b[:, order][:, :, order].reshape(len(b), -1).T
    # The observed score is one of the draws: under the null it is as good as any (arXiv:2602.14486).
    drawn = np.concatenate([score[None], null])
    chance = np.quantile(drawn, 0.95, axis=0, method="higher")
    best = float(np.quantile(drawn.max((1, 2)), 0.95, method="higher"))
    return Alignment(score, chance, (drawn >= score).mean(0), float(score.max()), best)
