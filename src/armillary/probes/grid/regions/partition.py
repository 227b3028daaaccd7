"""Into which regions do the directions of one half of the documents fall, and what do they explain on the other half?

Regions, what heads do in them, and what position and frequency explain are all learned on one half of the documents.
On the other half nothing is fitted, so a partition that says nothing explains nothing, or a little less.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery import Floats, Ints

Points = NDArray[np.floating]
"""Float32 is enough to tell which centre is nearest, and twice as fast."""

REGIONS = 8
ROUNDS, STARTS = 15, 2


@dataclass(frozen=True, eq=False)
class Explained:
    """Per layer, sums over each document group of the half that was not fitted; both halves take their turn."""

    squares: Floats
    """[group, head, measure, (all, region, random partition)]: squared deviations from what position and frequency
    predict; the same after region, and after a random partition of equal sizes."""
    profiles: Floats
    """[group, fitted half, region, (tokens, sum of the rank of every head's write …)], ranks standardised."""
    fitted: Floats
    """[half, region, head]: mean rank of the write in each region of the half that was fitted, standardised."""
    labels: Ints
    """[token]: the region by the regions of the other half."""


def explain(z: Points, heads: Floats, places: Ints, frequency: Floats, groups: int, seed: int) -> Explained:
    """Of directions z [token, d] and what heads do [token, head, measure], with regions from the other half."""
    group, fold = places[:, 0] % groups, places[:, 0] % 2
    count, measures = heads.shape[1], heads.shape[2]
    known, ranked = covariates(places[:, 1], frequency), ranks(heads.reshape(len(heads), -1))
    squares, profiles = np.zeros((groups, count, measures, 3)), np.zeros((groups, 2, REGIONS, 1 + count))
    fitted, labels = np.zeros((2, REGIONS, count)), np.zeros(len(z), dtype=np.int64)
    rng = np.random.default_rng([seed, 79])
    for half in (0, 1):
        fit, other = fold == half, fold != half
        centres = kmeans(z[fit], REGIONS, rng)
        near = nearest(z, centres)
        labels[other] = near[other]
        rest = residuals(ranked, known, fit)
        scale = rest[fit].std(0)
        rest = rest / np.where(scale > 0, scale, 1)
        random = np.empty_like(near)
        for part in (fit, other):
            random[part] = rng.permutation(near[part])
        after = [rest, *(rest - region_means(rest[fit], label[fit])[label] for label in (near, random))]
        each = np.stack([np.square(values).reshape(heads.shape) for values in after], -1)
        np.add.at(squares, group[other], each[other])
        write = rest.reshape(heads.shape)[..., 0]
        fitted[half] = region_means(write[fit], near[fit])
        rows = np.concatenate([np.ones((len(z), 1)), write], 1)
        np.add.at(profiles, (group[other], half, near[other]), rows[other])
    return Explained(squares, profiles, fitted, labels)


def covariates(position: Ints, frequency: Floats) -> Floats:
    """What is taken out first: a constant, the ranks of position and frequency, their squares and cubes."""
    known = ranks(np.stack([position, frequency], 1).astype(np.float64))
    return np.concatenate([np.ones((len(known), 1)), known, known**2, known**3], 1)


def ranks(values: Floats) -> Floats:
    """[token, column]: ranks from −½ to ½. A few tokens far out would otherwise hold most of the variance.

    >>> ranks(np.array([[3.0], [1000.0], [5.0]])).ravel().round(2)
    array([-0.33,  0.33,  0.  ])
    """
    from scipy.stats import rankdata

    return np.asarray((rankdata(values, axis=0) - (len(values) + 1) / 2) / len(values))


def residuals(values: Floats, known: Floats, fit: Ints) -> Floats:
    """What is left of values after a linear fit on the rows that `fit` marks."""
    weights = np.linalg.lstsq(known[fit], values[fit], rcond=None)[0]
    return np.asarray(values - known @ weights)


def region_means(values: Floats, label: Ints) -> Floats:
    """[region, column]; 0 of a region without tokens."""
    sums = np.zeros((REGIONS, values.shape[1]))
    np.add.at(sums, label, values)
    return np.asarray(sums / np.maximum(np.bincount(label, minlength=REGIONS), 1)[:, None])


def kmeans(points: Points, count: int, rng: np.random.Generator) -> Points:
    """Centres [count, d] of the best of a few starts; points lie on a sphere, so distances are angles.

    >>> points = np.repeat(np.eye(3), 5, axis=0)
    >>> sorted(kmeans(points, 3, np.random.default_rng(0)).round(6).tolist())
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    best, least = points[:0], np.inf
    for _ in range(STARTS):
        centres, before = _spread(points, count, rng), None
        for _ in range(ROUNDS):
            label = nearest(points, centres)
            if before is not None and np.array_equal(label, before):
                break
            member, before = np.eye(count, dtype=points.dtype)[label].T, label
            sizes = member.sum(1, keepdims=True)
            # A centre that no point is nearest to stays where it is.
            centres = np.where(sizes > 0, member @ points / np.maximum(sizes, 1), centres)
        cost = float(_distances(points, centres).min(1).sum())
        if cost < least:
            best, least = centres, cost
    return best


def _spread(points: Points, count: int, rng: np.random.Generator) -> Points:
    """Starting centres, each drawn far from those before it (k-means++)."""
    lengths = np.square(points).sum(1)
    chosen = [points[rng.integers(len(points))]]
    far = np.full(len(points), np.inf)
    while len(chosen) < count:
        far = np.minimum(far, np.maximum(lengths + _distances(points, chosen[-1][None])[:, 0], 0)).astype(np.float64)
        total = far.sum()
        chosen.append(points[rng.choice(len(points), p=far / total if total > 0 else None)])
    return np.stack(chosen)


def nearest(points: Points, centres: Points) -> Ints:
    return np.asarray(_distances(points, centres).argmin(1))


def _distances(points: Points, centres: Points) -> Points:
    """[point, centre]: squared distances, less the point's own squared length."""
    return np.asarray(np.square(centres).sum(1) - 2 * points @ centres.T)
