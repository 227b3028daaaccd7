"""Are the axes of one head more alike than axes of different heads, and more than any other grouping of them?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery import NAN3, Floats, Interval, Ints, over_twins

# Documents are left out in so many blocks, and axes are grouped anew so many times.
BLOCKS, GROUPINGS = 16, 20


@dataclass(frozen=True, eq=False)
class Likeness:
    """Mean |correlation| over tokens of two axes within a head, over that of axes of different heads."""

    value: float
    without: Floats
    """[block]: with one block of documents left out."""
    grouped: Floats
    """[grouping]: with axes put into heads at random."""


def likeness(points: Floats, document: Ints, heads: int, seed: int, controls: bool = True) -> Likeness | None:
    """None for a single head, or where nothing varies. Without `controls`, the value alone."""
    if heads < 2 or len(points) < 2:
        return None
    away = points - points.mean(0)
    sums, squares = away.sum(0), away.T @ away
    table = _correlations(sums, squares, len(points))
    if table is None:
        return None
    value = _ratio(table, heads)
    if not controls:
        return Likeness(value, np.zeros(0), np.zeros(0))
    block = document % min(BLOCKS, len(np.unique(document)))
    without = []
    for index in np.unique(block):
        part = away[block == index]
        left = _correlations(sums - part.sum(0), squares - part.T @ part, len(points) - len(part))
        without.append(np.nan if left is None else _ratio(left, heads))
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(table)) for _ in range(GROUPINGS)]
    return Likeness(value, np.array(without), np.array([_ratio(table[np.ix_(o, o)], heads) for o in orders]))


def _correlations(sums: Floats, squares: Floats, count: int) -> Floats | None:
    """|correlation| of every two axes; axes that do not vary count as uncorrelated."""
    if count < 2:
        return None
    mean = sums / count
    covariance = squares / count - np.outer(mean, mean)
    size = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    if not size.max() > 0:
        return None
    size = np.where(size > 1e-9 * size.max(), size, np.inf)
    return np.asarray(np.abs(covariance / np.outer(size, size)))


def _ratio(table: Floats, heads: int) -> float:
    width = len(table) // heads
    blocks = table.reshape(heads, width, heads, width).sum((1, 3))
    own = np.trace(blocks) - np.trace(table)
    within, across = (
        own / (heads * width * (width - 1)),
        (blocks.sum() - np.trace(blocks)) / (heads * (heads - 1) * width**2),
    )
    return float(within / across) if across > 0 else float("nan")


def median_ratio(layers: Sequence[Likeness]) -> Interval:
    """Of the median layer, with the jackknife's interval over blocks of documents."""
    from scipy.stats import t

    from armillary.geometry.resample import jackknife_se

    if not layers:
        return NAN3
    value = float(np.median([layer.value for layer in layers]))
    without = np.median([layer.without for layer in layers], axis=0)
    if len(without) < 2 or not np.isfinite(without).all():
        return value, float("nan"), float("nan")
    reach = float(t.ppf(0.975, len(without) - 1) * jackknife_se(without))
    return value, value - reach, value + reach


def grouped_ratio(layers: Sequence[Likeness]) -> Interval:
    """Of axes grouped at random: mean, and where another grouping is expected."""
    if not layers:
        return NAN3
    values = np.median([layer.grouped for layer in layers], axis=0)
    value, low, high = over_twins(np.repeat(values[:, None], 3, 1)).tolist()
    return value, low, high
