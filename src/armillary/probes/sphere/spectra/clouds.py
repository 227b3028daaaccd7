"""How isotropic is a cloud of tokens? Participation ratio, mean cosine and top axis, none of them raised by noise.

Products are taken between tokens of different documents only, so that few tokens do not look like few axes.
"""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

# The top axis is looked for by as many power steps; what they miss is an axis nearly as strong as the one found.
POWER_STEPS = 24


def membership(document: Ints, groups: int) -> Floats:
    """[document group, token]: 1 where the token belongs to the group."""
    member = np.zeros((groups, len(document)))
    member[document % groups, np.arange(len(document))] = 1
    return member


def crossed_mean(pairs: Floats, size: Floats, weights: Floats) -> Floats:
    """[draw]: the mean over pairs of tokens of different documents, from sums over pairs [group, group], numbers of
    tokens [group], and how often each group is drawn [draw, group]."""
    pairs, crossed = pairs.copy(), np.outer(size, size)
    for sums in (pairs, crossed):
        np.fill_diagonal(sums, 0)
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw of one document alone has no pairs
        square = np.einsum("bg,gh,bh->b", weights, pairs, weights)
        square /= np.einsum("bg,gh,bh->b", weights, crossed, weights)
    return np.asarray(square)


def participation(points: Floats, member: Floats, weights: Floats) -> Floats:
    """[draw]: (Σλ)²/Σλ² of the covariance. Σλ² is a mean over pairs of tokens of squared inner products, which has no
    bias from few tokens, and a resampled value needs only the pair sums of documents."""
    away, own = points - points.mean(0), member.astype(points.dtype)
    size, power = member.sum(1), own @ np.square(away).sum(1)
    square = crossed_mean((own @ np.square(away @ away.T) @ own.T).astype(np.float64), size, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights @ power / (weights @ size)) ** 2 / square)


def mean_cosine(points: Floats, member: Floats, weights: Floats) -> Floats:
    """[draw]: the mean cosine of two tokens; 0 where directions have no preference."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    sums = member @ (points / np.where(length > 0, length, 1)).astype(np.float64)
    return crossed_mean(sums @ sums.T, member.sum(1), weights)


def top_axis(points: Floats, document: Ints) -> float:
    """The share of the variance of one half of the documents along the strongest axis of the other; the mean of both
    ways. An axis found and measured on the same tokens would look stronger than it is."""
    import torch

    even = torch.from_numpy(document % 2 == 0)
    halves = [torch.from_numpy(points)[part] for part in (even, ~even)]
    if min(map(len, halves)) < 2:
        return float("nan")
    away = [half - half.mean(0) for half in halves]
    shares = [_share(fitted, measured) for fitted, measured in (away, away[::-1])]
    return float(np.mean(shares))


def _share(fitted: "Tensor", measured: "Tensor") -> float:
    # Started from the longest row, which is never at right angles to everything.
    axis = fitted[int(fitted.square().sum(1).argmax())]
    for _ in range(POWER_STEPS):
        axis = fitted.T @ (fitted @ axis)
        axis = axis / axis.norm().clamp_min(1e-300)
    total = float(measured.square().sum())
    return float((measured @ axis).square().sum()) / total if total > 0 else float("nan")
