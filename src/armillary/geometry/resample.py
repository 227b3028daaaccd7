"""How sure is a number, when documents and not tokens are the independent draws? NumPy only."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num
from scipy.stats import false_discovery_control, rankdata
from scipy.stats import norm as normal
from scipy.stats import t as student

# Draws of more numbers than this are not kept: eight megabytes.
KEPT = 1 << 20


class Interval(NamedTuple):
    """A value with its percentile interval (95 % by default); arrays of the statistic's shape, 0-d for a number."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@lru_cache(maxsize=256)
def tails(count: int, level: float = 0.95) -> tuple[float, float]:
    """Which quantiles of bootstrap draws over `count` documents make an interval of this level.

    Plain percentiles are too narrow when documents are few (of eight, by a quarter): a resample varies by the spread
    divided by n, not n − 1, and the spread itself is uncertain. The expanded percentile interval mends both (T.
    Hesterberg, What teachers should know about the bootstrap, The American Statistician 69, 2015).

    >>> [round(tail, 4) for tail in tails(8)], [round(tail, 4) for tail in tails(100_000)]
    ([0.0057, 0.9943], [0.025, 0.975])
    """
    reach = np.sqrt(count / (count - 1)) * student.ppf((1 - level) / 2, count - 1)
    low = float(normal.cdf(reach))
    return low, 1 - low


def _weights(count: int, draws: int, seed: int) -> Float[np.ndarray, "{draws} {count}"]:
    """How often each document is drawn."""
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws)
    return weights.astype(np.float64)


@lru_cache(maxsize=8)
def _kept_weights(count: int, draws: int, seed: int) -> Float[np.ndarray, "{draws} {count}"]:
    """The same, drawn once: a survey bootstraps hundreds of statistics over the same documents, and drawing takes fifty
    times as long as adding."""
    weights = _weights(count, draws, seed)
    weights.flags.writeable = False
    return weights


def bootstrap(
    groups: Num[np.ndarray, " g *stats"],
    statistic: Callable[[np.ndarray], np.ndarray],
    draws: int = 400,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Resample documents: row g holds sums over document g's tokens, a draw adds them by multinomial weights.

    `statistic` takes an array [draws, *stats] of summed rows and answers one value per draw. Draws on which it is not
    finite are left out of the interval.

    >>> rows = np.stack([np.ones(50), np.arange(50.0)], axis=1)  # count and sum of each document
    >>> mean = bootstrap(rows, lambda s: s[:, 1] / s[:, 0])
    >>> float(mean.value), bool(mean.low < 24.5 < mean.high)
    (24.5, True)
    """
    count = len(groups)
    if count < 2:
        raise ValueError(f"a bootstrap over documents needs at least two of them, got {count}")
    rows = groups.reshape(count, -1).astype(np.float64)
    weights = (_kept_weights if count * draws <= KEPT else _weights)(count, draws, seed)
    summed = (weights @ rows).reshape(draws, *groups.shape[1:])
    value = np.asarray(statistic(rows.sum(axis=0).reshape(1, *groups.shape[1:])), dtype=np.float64)[0]
    drawn = np.asarray(statistic(summed), dtype=np.float64)
    defined = np.isfinite(drawn).reshape(draws, -1).all(axis=1)
    if not defined.any():
        nowhere = np.full(np.shape(value), np.nan)
        return Interval(np.asarray(value), nowhere, nowhere)
    low, high = np.quantile(drawn[defined], tails(count, level), axis=0)
    return Interval(np.asarray(value), np.asarray(low), np.asarray(high))


def jackknife_se(values: Float[np.ndarray, " g *shape"]) -> Float[np.ndarray, "*shape"]:
    """Standard error from estimates that each leave one group out.

    >>> x = np.array([1.0, 2.0, 4.0, 9.0])
    >>> without = (x.sum() - x) / 3
    >>> bool(np.isclose(jackknife_se(without), x.std(ddof=1) / 2))
    True
    """
    count = len(values)
    if count < 2:
        raise ValueError(f"a jackknife needs at least two groups, got {count}")
    away = values - values.mean(axis=0)
    return np.asarray(np.sqrt((count - 1) / count * np.square(away).sum(axis=0)))


def auc(positive: Num[np.ndarray, " p"], negative: Num[np.ndarray, " n"]) -> float:
    """The chance that a positive scores above a negative, ties counting half.

    >>> auc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    if len(positive) == 0 or len(negative) == 0:
        raise ValueError(f"AUC needs both kinds; got {len(positive)} positive and {len(negative)} negative")
    ranks = rankdata(np.concatenate([positive, negative]), nan_policy="raise")
    above = ranks[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(above / (len(positive) * len(negative)))


def weighted_auc(
    scores: Num[np.ndarray, " n"],
    labels: Bool[np.ndarray, " n"],
    weights: Num[np.ndarray, "*draws n"],
) -> Float[np.ndarray, "*draws"]:
    """AUC with weighted scores, for many draws of weights at once; NaN where a kind has no weight.

    >>> scores, labels = np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True])
    >>> weighted_auc(scores, labels, np.array([[1, 1, 1, 1], [0, 2, 1, 0]]))
    array([0.875, 0.5  ])
    """
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} scores are NaN and have no rank")
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    ties = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    heavy = weights[..., order].astype(np.float64)
    positive = np.add.reduceat(heavy * labels[order], ties, axis=-1)
    negative = np.add.reduceat(heavy * ~labels[order], ties, axis=-1)
    below = np.cumsum(negative, axis=-1) - negative / 2
    pairs = positive.sum(axis=-1) * negative.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((positive * below).sum(axis=-1) / pairs)


def benjamini_hochberg(p: Float[np.ndarray, " m"], q: float) -> Bool[np.ndarray, " m"]:
    """Which of many tests to call discoveries, so that the expected share of false ones is at most q.

    >>> benjamini_hochberg(np.array([0.01, 0.2, 0.03, 0.9]), q=0.1)
    array([ True, False,  True, False])
    """
    if not (np.all((p >= 0) & (p <= 1)) and 0 < q < 1):
        raise ValueError("p-values must lie in [0, 1] (none NaN) and q in (0, 1)")
    if len(p) == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(false_discovery_control(p, method="bh") <= q)
