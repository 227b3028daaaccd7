"""Which of some points can be the farthest in a direction, and which lie inside the hull of the others?"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Points closer than this, in units of the cloud's spread, count as one; a margin below it is rounding of float32.
NEAR = 1e-6


def selectable(points: Floats, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[rows]: is there a direction in which this point [n, k] is farther out than every other?

    There is one unless the point lies in the convex hull of the others. Copies of a point do not count as others: they
    tie with it.

    >>> corners, middle = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]), np.zeros((1, 2))
    >>> selectable(np.concatenate([corners, middle]), np.arange(5))
    array([ True,  True,  True,  True, False])
    """
    points = _whitened(points)
    # Of points that span as many dimensions as they can, none lies in the hull of the others.
    if len(points) <= points.shape[1] + 1:
        return np.ones(len(rows), dtype=bool)
    scores = points[rows] @ points.T
    scores[np.arange(len(rows)), rows] = -np.inf
    # A point that stands out along its own direction needs no search; in many dimensions that is nearly every point.
    is_selectable = np.asarray(scores.max(1) < np.square(points[rows]).sum(1) * (1 - NEAR))
    for index in np.flatnonzero(~is_selectable):
        is_selectable[index] = _margin(points, int(rows[index])) > NEAR
    return is_selectable


def _whitened(points: Floats) -> Floats:
    """The same points with mean 0 and unit variance along every axis they span: hulls stay hulls under affine maps."""
    centred = points - points.mean(0)
    # The smaller of both products is decomposed: several times faster than a singular value decomposition. Squares lose
    # half of the digits, and eight are left.
    wide = len(points) <= points.shape[1]
    sizes, axes = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
    spanned = sizes > NEAR**2 * max(sizes[-1], 1e-300)
    left = axes[:, spanned] if wide else centred @ axes[:, spanned] / np.sqrt(sizes[spanned])
    return np.asarray(left * np.sqrt(len(points)))


def _margin(points: Floats, row: int) -> float:
    """How far the hull of unit vectors from a point to all others stays from 0: 0 where the point lies inside.

    Non-negative weights that come nearest to combining them to 0 are a problem of non-negative least squares, whose
    residual is the direction that is asked for.
    """
    from scipy.optimize import nnls

    steps = np.delete(points, row, axis=0) - points[row]
    lengths = np.linalg.norm(steps, axis=1)
    others = lengths > NEAR * np.sqrt(points.shape[1])
    steps = steps[others] / lengths[others, None]
    if not len(steps):
        return 1.0
    target = np.zeros(points.shape[1] + 1)
    target[-1] = 1
    return float(nnls(np.vstack([steps.T, np.ones(len(steps))]), target, maxiter=30 * len(steps))[1])
