"""Seen close up, is the cloud on a sphere: does it lose its radial spread faster than its tangential one?

Inside a ball of angle α on a sphere the tangential variance falls like α² and the radial one like α⁴; their
ratio falls like α². Off a sphere the radial variance stays, and the ratio grows.

Two biases were found on planted spheres, and are removed here. (1) The variance along the *sample* mean
direction is too large by a factor of about 1 + (m + 8)/k, because k points fix that direction only up to a tilt; on
an m-sphere of m = 20 it turns the slope from 3.4 into 0.3. It is replaced by a U-statistic that is unbiased
for μᵀΣμ/|μ|². (2) The logarithm of one ball's noisy ratio is biased at small k, so balls are summed before
the logarithm (`pooled_slope`). A third effect is no bias but geometry: balls of neighbours are large when m
is large, see `sphere.cap_ratio`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from armillary.geometry.sphere import angle

# Below this angle a ball holds copies of one point: it has no shape, and log α none either.
_COPIES = 1e-6
_CENTRES_AT_ONCE = 64


@dataclass(frozen=True)
class Balls:
    """One row per centre, one column per neighbour count."""

    alpha: Float[np.ndarray, "c k"]
    radial: Float[np.ndarray, "c k"]
    tangential: Float[np.ndarray, "c k"]
    centres: Int[np.ndarray, " c"]  # row of each centre in the points, for resampling by document
    dropped: int  # centres whose smallest ball held only copies of one direction

    @property
    def ratio(self) -> Float[np.ndarray, "c k"]:
        """Radial over mean tangential variance; can be negative where the unbiased estimate is."""
        return self.radial / self.tangential

    def sums(self) -> Float[np.ndarray, "c k 3"]:
        """What adds up over balls: radial, tangential, and tangential times α², which weighs α."""
        return np.stack([self.radial, self.tangential, self.tangential * self.alpha**2], axis=-1)


def radial_to_tangential(
    points: Float[Tensor, "n d"],
    neighbours: Sequence[int] = (16, 32, 64, 128, 256),
    centres: int = 200,
    seed: int = 0,
    groups: Int[Tensor, " n"] | None = None,
    axis: Literal["mean", "centre"] = "mean",
) -> Balls:
    """Radial and tangential variance in balls of k nearest neighbours by angle.

    A ball holds the k nearest points and reaches to the k+1st, so that given its radius the points inside
    are an ordinary sample. The centre itself is not in it. With `groups` (documents), no ball holds points
    of its centre's own group. `axis="centre"` takes the variance along the centre instead of the ball's
    mean direction: the same law on a sphere with less noise, for clouds of many dimensions.

    >>> x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    >>> unit = x / x.norm(dim=1, keepdim=True)
    >>> counts = (16, 32, 64)
    >>> slopes = [pooled_slope(radial_to_tangential(p, counts).sums().sum(0)) for p in (unit, x)]
    >>> 1.7 < slopes[0] < 2.5, slopes[1] < -1
    (True, True)
    """
    n = len(points)
    counts = sorted(neighbours)
    if counts[0] < 4 or counts[-1] + 2 > n:
        raise ValueError(f"neighbour counts must lie in 4 … n − 2 = {n - 2}, got {tuple(neighbours)}")
    random = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(n, generator=random)[:centres].to(points.device)
    wide = points.to(torch.float64)
    # Every ball is read from this one matrix: neighbours, lengths and variances are all inner products.
    gram = wide @ wide.T
    label = torch.arange(n, device=points.device) if groups is None else groups.to(points.device)
    parts = []
    for part in torch.split(chosen, _CENTRES_AT_ONCE):
        own = label[part, None] == label[None, :]
        parts.append(_balls(wide, gram, part, counts, own, axis))
    alpha, radial, tangential = (torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))
    shaped = alpha[:, 0] > _COPIES
    if not shaped.any():
        raise ValueError(f"every one of {len(shaped)} centres has only copies of itself in its smallest ball")
    index = chosen.cpu().numpy()[shaped]
    return Balls(alpha[shaped], radial[shaped], tangential[shaped], index, int((~shaped).sum()))


def contracted(
    points: Float[Tensor, "n d"],
    onto: Callable[[Tensor], Tensor],
    scales: Sequence[float] = (1 / 4, 1 / 8, 1 / 16, 1 / 32),
    neighbours: int = 24,
    centres: int = 48,
    seed: int = 0,
    groups: Int[Tensor, " n"] | None = None,
) -> Balls:
    """Balls of neighbours drawn in towards their centre by each scale, then sent `onto` a surface.

    Real clouds have no small balls: in many dimensions the nearest neighbours of a point are far. Drawn in, the same
    neighbours do come near, and what the surface does locally shows. Columns are scales instead of counts; α is the
    root mean square angle to the centre.

    >>> x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)) + 1
    >>> unit = lambda p: p / p.norm(dim=-1, keepdim=True)
    >>> slopes = [pooled_slope(contracted(x, onto).sums().sum(0)) for onto in (unit, lambda p: p)]
    >>> 1.8 < slopes[0] < 2.2, abs(slopes[1]) < 0.2
    (True, True)
    """
    n = len(points)
    wide = points.to(torch.float64)
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:centres].to(points.device)
    label = torch.arange(n, device=points.device) if groups is None else groups.to(points.device)
    own = label[chosen, None] == label[None, :]
    if int((~own).sum(dim=1).min()) < neighbours:
        raise ValueError(f"a centre has fewer than {neighbours} points outside its own group")
    image = onto(wide)
    gram = image[chosen] @ image.T / torch.linalg.vector_norm(image, dim=1)
    near = gram.masked_fill(own, -torch.inf).topk(neighbours, dim=1).indices
    middle, around = wide[chosen, None], wide[near]
    columns = []
    for scale in scales:
        ball, centre = onto(middle + scale * (around - middle)), onto(middle)
        axis = torch.nn.functional.normalize(ball.mean(dim=1, keepdim=True), dim=-1)
        along = (ball * axis).sum(dim=-1).var(dim=1)
        across = (ball.var(dim=1).sum(dim=-1) - along) / (points.shape[1] - 1)
        size = angle(ball, centre).square().mean(dim=1).sqrt()
        columns.append((size, along, across))
    parts = [torch.stack(part, dim=1).cpu().numpy() for part in zip(*columns, strict=True)]
    shaped = parts[0][:, -1] > _COPIES
    index = chosen.cpu().numpy()[shaped]
    alpha, radial, tangential = (part[shaped] for part in parts)
    return Balls(alpha, radial, tangential, index, int((~shaped).sum()))


def pooled_slope(sums: Float[np.ndarray, "*draws k 3"]) -> float | Float[np.ndarray, "*draws"]:
    """Slope of log ratio on log α from `Balls.sums()` added over balls: the statistic for a bootstrap over documents.

    NaN where a pooled radial variance is not positive: too few balls to tell it from 0.
    """
    radial, tangential, weighted = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        y = np.log(np.where(radial > 0, radial, np.nan) / tangential)
        x = np.log(weighted / tangential) / 2
    x = x - x.mean(axis=-1, keepdims=True)
    y = y - y.mean(axis=-1, keepdims=True)
    slope = (x * y).sum(axis=-1) / (x * x).sum(axis=-1)
    return slope if sums.ndim > 2 else float(slope)


def _balls(
    points: Tensor, gram: Tensor, centres: Tensor, counts: list[int], own: Tensor, axis: str
) -> tuple[Tensor, Tensor, Tensor]:
    """α, radial and tangential variance [centres, counts]; `own` [centres, n] marks what no ball may hold."""
    length = gram.diagonal().sqrt()
    cosine = gram[centres] / length
    if int((~own).sum(dim=1).min()) < counts[-1] + 1:
        raise ValueError(f"a centre has fewer than {counts[-1] + 1} points outside its own group")
    near = cosine.masked_fill(own, -torch.inf).topk(counts[-1] + 1, dim=1).indices
    edge = near[:, torch.tensor(counts, device=near.device)]
    alpha = angle(points[edge], points[centres, None])
    inside = near[:, :-1]
    blocks = gram[inside[:, :, None], inside[:, None, :]]
    along = gram[centres[:, None], inside] / length[centres, None]
    radial, tangential = [], []
    for k in counts:
        block = blocks[:, :k, :k]
        mean_square = block.diagonal(dim1=1, dim2=2).sum(dim=1)
        total = (mean_square - block.sum(dim=(1, 2)) / k) / (k - 1)
        spread = along[:, :k].var(dim=1) if axis == "centre" else _along_mean(block)
        radial.append(spread)
        tangential.append((total - spread) / (points.shape[1] - 1))
    return alpha, torch.stack(radial, dim=1), torch.stack(tangential, dim=1)


def _along_mean(gram: Tensor) -> Tensor:
    """The unbiased variance along the mean direction, μᵀΣμ / |μ|², from the Gram matrices [c, k, k] of balls.

    μᵀE[xxᵀ]μ averages G_ab·G_bd over distinct a, b, d, and (μᵀμ)² averages G_ab·G_cd over distinct a, b, c,
    d; both sums over distinct indices follow from row sums by inclusion and exclusion. (The quotient by
    |μ|² is consistent, with a relative bias of the order of the ball's variance over k, which is small for
    a ball that is small.)
    """
    k = gram.shape[-1]
    diagonal = gram.diagonal(dim1=1, dim2=2)
    rows = gram.sum(dim=2) - diagonal
    total = rows.sum(dim=1)
    row_squares = rows.square().sum(dim=1)
    squares = gram.square().sum(dim=(1, 2)) - diagonal.square().sum(dim=1)
    triples = (row_squares - squares) / (k * (k - 1) * (k - 2))
    quadruples = (total.square() - 4 * row_squares + 2 * squares) / (k * (k - 1) * (k - 2) * (k - 3))
    return (triples - quadruples) / (total / (k * (k - 1)))
