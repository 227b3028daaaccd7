"""How many coordinates does a cloud need near each of its points?

Both estimators read a matrix of squared distances, so that a jackknife over documents computes distances
once and leaves points out by `keep`. Points that coincide carry no information about dimension and break
both estimators (a zero distance has no logarithm): of each coinciding set one is kept, and the others are
counted as dropped.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Closer than this, relative to the root mean square distance, two points are one point and float32
# rounding.
_COINCIDE = 1e-6

# Where |x − y|² is this small beside |x|² + |y|², the Gram form has lost half of float64's digits:
# recompute.
_CANCELLED = 1e-8
_PAIRS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Dimension:
    value: float
    points: int  # distinct points that were used
    dropped: int  # points that coincide with another


def pairwise_sq_distances(points: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Squared Euclidean distances in float64; coinciding points are at exactly 0.

    >>> pairwise_sq_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]], dtype=torch.float64)
    """
    x = points.to(torch.float64)
    x = x - x.mean(dim=0)
    size = x.square().sum(dim=1)
    total = size[:, None] + size[None, :]
    squared = torch.addmm(total, x, x.T, alpha=-2)
    # |x|² + |y|² − 2x·y leaves rounding where the truth is 0 or tiny; those few pairs are subtracted
    # directly.
    close = (squared <= _CANCELLED * total).triu(1).nonzero()
    for start in range(0, len(close), _PAIRS_AT_ONCE):
        i, j = close[start : start + _PAIRS_AT_ONCE].unbind(dim=1)
        exact = (x[i] - x[j]).square().sum(dim=1)
        squared[i, j] = exact
        squared[j, i] = exact
    return squared.fill_diagonal_(0)


def two_nn(
    sq_distances: Float[Tensor, "n n"],
    keep: Bool[Tensor, " n"] | Int[Tensor, " m"] | None = None,
    discard: float = 0.1,
) -> Dimension:
    """TwoNN (Facco et al. 2017): the ratio of second to first neighbour distance is Pareto with exponent d.

    The largest `discard` share of ratios is censored, not fitted: near-coincidences live there. The
    estimate is the censored maximum-likelihood one, unbiased for independent ratios, with standard error
    near d/√m.

    >>> line = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
    >>> 0.8 < two_nn(pairwise_sq_distances(line)).value < 1.2
    True
    """
    if not 0 <= discard < 1:
        raise ValueError(f"discard is a share of the points, in [0, 1); got {discard}")
    near, dropped = _nearest(sq_distances, 2, keep)
    log_ratio = (near[:, 1].log() - near[:, 0].log()).sort().values / 2
    n = len(log_ratio)
    fitted = n - int(discard * n)
    exposure = log_ratio[:fitted].sum() + (n - fitted) * log_ratio[fitted - 1]
    return Dimension((fitted - 1) / float(exposure), n, dropped)


def _nearest(squared: Tensor, count: int, keep: Tensor | None) -> tuple[Tensor, int]:
    """Squared distances of the distinct kept points to their `count` nearest, and how many were dropped."""
    if keep is not None:
        index = keep.nonzero()[:, 0] if keep.dtype == torch.bool else keep
        squared = squared[index][:, index]
    n = len(squared)
    coincide = squared <= _COINCIDE**2 * squared.mean()
    double = coincide.triu(1).any(dim=0)
    dropped = int(double.sum())
    if n - dropped < count + 1:
        raise ValueError(
            f"{count} neighbours need at least {count + 1} distinct points; found {n - dropped} "
            f"({n} kept, {dropped} of them coincide with another)"
        )
    if dropped:
        squared = squared[~double][:, ~double]
    # The nearest of a point is itself, at 0; distinct points are farther.
    return squared.topk(count + 1, dim=1, largest=False).values[:, 1:], dropped
