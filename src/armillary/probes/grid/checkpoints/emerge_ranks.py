"""Does a head's excess share of the gradient go with its role, now or at the next checkpoint? Ranks over heads.

All values are centred on the mean of their layer: S3's heads are those of one layer, and what depth alone explains is
not the head's. Ranks run over all heads of the model. The rank correlation is partial: what the share on other tokens
explains is taken out of both sides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from armillary.probes.grid.checkpoints.emergence import Emergence
from armillary.probes.machinery import NAN3, Floats, Interval, T, interval_of_draws, redrawn
from armillary.probes.machinery.intervals import null_interval

NOW, NEXT = "now", "next"
DRAWS, AT_ONCE = 1000, 100
EXCESS, OUTCOME, OTHERS, HELD = 0, 1, 2, 3
"""Rows of a cell's ranks: excess share, role or gain, share on other tokens, role now."""


@dataclass(frozen=True, eq=False)
class RankedHeads:
    """One phenomenon at one checkpoint: ranks [4, heads] of what is correlated over the heads."""

    at: int
    phenomenon: str
    ranks: Floats
    emerges: bool
    """Does the role, or the gain, of some head stand out of its layer?"""


def cells(table: Emergence, when: str, shares: Floats | None = None) -> list[RankedHeads]:
    """At every checkpoint (`now`), or at every one that another follows (`next`)."""
    marked, others = np.moveaxis(table.shares if shares is None else shares, 2, 0)
    outcome = table.roles if when == NOW else np.diff(table.roles, axis=0)
    ranked = []
    for at in range(len(outcome)):
        for place, name in enumerate(table.names):
            rows = (
                marked[at, place] - others[at, place],
                outcome[at, place],
                others[at, place],
                table.roles[at, place],
            )
            centred = [_centred(row) for row in rows]
            emerges = bool(centred[OUTCOME].max() >= T.emerge_gain)
            ranked.append(RankedHeads(at, name, np.stack([rankdata(row.ravel()) for row in centred]), emerges))
    return ranked


def _centred(values: Floats) -> Floats:
    """[layer, head] less the layer's mean; 0 in a layer that gets no gradient."""
    return np.nan_to_num(values - values.mean(-1, keepdims=True))


def correlation(
    ranked: Sequence[RankedHeads], seed: int, variable: int = EXCESS, given: tuple[int, ...] = (OTHERS,)
) -> Interval:
    """Mean partial rank correlation with the outcome over the cells in which a role emerges, with its interval over
    heads; no ends where heads are too few."""
    return _interval(ranked, seed, lambda ranks, weights: _pooled(ranks, weights, variable, given))


def point(ranked: Sequence[RankedHeads]) -> float:
    """The correlation without an interval; NaN where no role emerges."""
    ranks = np.array([cell.ranks for cell in ranked if cell.emerges])
    if not len(ranks):
        return float("nan")
    return float(_pooled(ranks[None], np.ones((1, ranks.shape[-1])), EXCESS, (OTHERS,))[0])


def beyond_others(ranked: Sequence[RankedHeads], seed: int) -> Interval:
    """By how much the excess predicts better than the share on other tokens does, on the same draws of heads."""

    def difference(ranks: Floats, weights: Floats) -> Floats:
        return _pooled(ranks, weights, EXCESS, (OTHERS,)) - _pooled(ranks, weights, OTHERS, ())

    return _interval(ranked, seed, difference)


def _interval(ranked: Sequence[RankedHeads], seed: int, statistic: Callable[[Floats, Floats], Floats]) -> Interval:
    ranks = np.array([cell.ranks for cell in ranked if cell.emerges])
    if not len(ranks):
        return NAN3
    heads = ranks.shape[-1]
    return interval_of_draws(statistic(ranks[None], redrawn(heads, DRAWS, (seed, 67))), heads)


def exchanged(ranked: Sequence[RankedHeads], layers: int, seed: int, given: tuple[int, ...] = (OTHERS,)) -> Interval:
    """The same with the gradients of a layer's heads exchanged, alike at all checkpoints: mean, and where 95 % lie."""
    ranks = np.array([cell.ranks for cell in ranked if cell.emerges])
    if not len(ranks):
        return NAN3
    rng, heads = np.random.default_rng([seed, 71]), ranks.shape[-1]
    each = np.arange(heads).reshape(layers, -1)
    drawn = []
    for _ in range(DRAWS // AT_ONCE):
        orders = np.stack([rng.permuted(each, axis=1).ravel() for _ in range(AT_ONCE)])
        moved = np.repeat(ranks[None], AT_ONCE, 0)
        for row in (EXCESS, OTHERS):
            moved[:, :, row] = ranks[:, row][:, orders].swapaxes(0, 1)
        drawn.append(_pooled(moved, np.ones((AT_ONCE, heads)), EXCESS, given))
    return null_interval(drawn)


def _pooled(ranks: Floats, weights: Floats, variable: int, given: tuple[int, ...]) -> Floats:
    """[draw]: mean over cells, from ranks [1 or draw, cell, row, head] and the weight of every head [draw, head]."""
    weights = weights / weights.sum(1, keepdims=True)
    ranks = np.broadcast_to(ranks, (len(weights), *ranks.shape[1:]))
    centred = ranks - np.einsum("dh,dcrh->dcr", weights, ranks)[..., None]
    products = (centred * weights[:, None, None]) @ centred.swapaxes(2, 3)
    spread = np.sqrt(np.diagonal(products, axis1=2, axis2=3))
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = products / (spread[..., :, None] * spread[..., None, :])
        each = _partial(matrix, variable, OUTCOME, given)
    counted = np.isfinite(each)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(counted, each, 0).sum(1) / counted.sum(1))


def _partial(matrix: Floats, variable: int, outcome: int, given: tuple[int, ...]) -> Floats:
    """The correlation of two rows with others taken out, from correlations […, row, row]."""
    if not given:
        return np.asarray(matrix[..., variable, outcome])
    *rest, last = given
    left = tuple(rest)
    both = _partial(matrix, variable, outcome, left)
    first, second = _partial(matrix, variable, last, left), _partial(matrix, outcome, last, left)
    return np.asarray((both - first * second) / np.sqrt((1 - first**2) * (1 - second**2)))
