"""Do single axes tell what a token is, and have they heavier tails, more than axes that were rotated at random?"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import Flags, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

# Classes of tokens: to be, or to stand before, one of the most frequent ones, or one of a kind. A class needs some
# members in each half, and as many others.
FREQUENT = 8
MEMBERS = 6


@dataclass(frozen=True, eq=False)
class Cloud:
    """Tokens [n, axes] in float32 with what is known of each; blocks of equal width are rotated each in itself."""

    points: "Tensor"
    document: Ints
    token: Ints
    following: Ints
    blocks: int = 1
    fixes_ones: bool = False
    """Do all points have coordinates that sum to 0? Then rotations keep that."""
    kinds: tuple[Ints, ...] = ()
    """Ways of sorting the vocabulary: a token's id → the number of its kind, −1 for none."""

    def rotated(self, seed: int) -> "Tensor":
        """The same points in random axes."""
        import torch

        width = self.points.shape[1] // self.blocks
        turns = [_turn(width, 1000 * seed + block, self.fixes_ones) for block in range(self.blocks)]
        parts = torch.tensor_split(self.points, self.blocks, dim=1)
        return torch.cat([part @ turn for part, turn in zip(parts, turns, strict=True)], 1)


@lru_cache(maxsize=128)
def _turn(width: int, seed: int, fixes_ones: bool) -> "Tensor":
    """The same rotations serve every layer."""
    from armillary.probes.sphere.symmetry.rotations import rotation

    return rotation(width, seed, fixes_ones).float()


def classes(cloud: Cloud) -> Flags:
    """[class, token]: membership in the classes that have enough members in either half of the documents."""
    even = cloud.document % 2 == 0
    masks = []
    for ids in (cloud.token, cloud.following):
        values, counts = np.unique(ids[ids >= 0], return_counts=True)
        masks += [ids == value for value in values[np.argsort(-counts, kind="stable")][:FREQUENT]]
        for kinds in cloud.kinds:
            kind = np.where(ids >= 0, kinds[ids], -1)
            masks += [kind == value for value in np.unique(kind[kind >= 0])]
    large = [m for m in masks if min((m & half).sum() for half in (even, ~even)) >= MEMBERS]
    large = [m for m in large if min((~m & half).sum() for half in (even, ~even)) >= MEMBERS]
    return np.array(large, dtype=bool).reshape(len(large), len(cloud.document))


def best_axis_aucs(points: "Tensor", members: Flags, document: Ints, weights: Floats) -> Floats:
    """[draw]: the mean over classes of the AUC of the axis that tells a class best in one half of the documents,
    measured in the other half; both ways. NaN without a class."""
    import torch

    if not len(members):
        return np.full(len(weights), np.nan)
    even = document % 2 == 0
    values = []
    for chosen, measured in ((even, ~even), (~even, even)):
        labels = torch.from_numpy(members[:, chosen]).float()
        ranks = _ranks(points[chosen].T)
        size = labels.sum(1, keepdim=True)
        aucs = (labels @ ranks.T - size * (size + 1) / 2) / (size * (labels.shape[1] - size))
        axis = (aucs - 0.5).abs().argmax(1)
        sign = (aucs.gather(1, axis[:, None])[:, 0] - 0.5).sign()
        scores = (points[measured][:, axis] * sign).T.numpy()
        for score, member in zip(scores, members[:, measured], strict=True):
            values.append(_weighted_auc(score, member, document[measured], weights))
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):  # a draw of documents may hold no member of any class
        return np.asarray(np.where(known, values, 0).sum(0) / known.sum(0))


def _ranks(rows: "Tensor") -> "Tensor":
    """The rank of every entry in its row, from 1."""
    import torch

    order = rows.contiguous().argsort(1)
    places = torch.arange(1, rows.shape[1] + 1, dtype=torch.float32).expand(rows.shape)
    return torch.empty_like(places, memory_format=torch.contiguous_format).scatter_(1, order, places)


def _weighted_auc(score: Floats, member: Flags, document: Ints, weights: Floats) -> Floats:
    """[draw]: the AUC from sums over pairs of documents."""
    groups = weights.shape[1]
    above = (score[member][:, None] > score[~member][None]).astype(np.float64)
    sides = [np.zeros((groups, int(flags.sum()))) for flags in (member, ~member)]
    for side, flags in zip(sides, (member, ~member), strict=True):
        side[document[flags] % groups, np.arange(side.shape[1])] = 1
    wins = sides[0] @ above @ sides[1].T
    pairs = np.outer(sides[0].sum(1), sides[1].sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        won = ((weights @ wins) * weights).sum(1)
        return np.asarray(won / ((weights @ pairs) * weights).sum(1))


def kurtoses(points: "Tensor", document: Ints, weights: Floats) -> Floats:
    """[draw]: the mean over axes of the kurtosis over tokens; 3 for a Gaussian."""
    import torch

    groups = weights.shape[1]
    away = points - points.mean(0)
    scale = away.square().mean(0).sqrt()
    away = away / torch.where(scale > 1e-9 * scale.max(), scale, torch.nan)
    member = torch.zeros(groups, len(points))
    member[torch.from_numpy(document % groups), torch.arange(len(points))] = 1
    sums = torch.stack([member @ away**power for power in range(5)], -1).double()
    drawn = torch.from_numpy(weights) @ sums.flatten(1)
    n, first, second, third, fourth = drawn.reshape(len(weights), -1, 5).unbind(-1)
    m1, m2, m3, m4 = first / n, second / n, third / n, fourth / n
    variance = m2 - m1**2
    moment = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return np.asarray((moment / variance**2).nanmean(1).numpy())


@dataclass(frozen=True, eq=False)
class AxisMeaning:
    """[1 + draw] of a cloud: AUC and kurtosis, in its own axes and in rotated ones (mean of several)."""

    auc: Floats
    rotated_auc: Floats
    kurtosis: Floats
    rotated_kurtosis: Floats
    classes: int


def axis_meaning(cloud: Cloud, weights: Floats, seed: int, rotations: int = 2) -> AxisMeaning:
    members = classes(cloud)
    turned = [cloud.rotated(100 * seed + number) for number in range(rotations)]
    # Tails of heads decide nothing: no draws of them.
    draws = weights if cloud.blocks == 1 else weights[:1]
    return AxisMeaning(
        best_axis_aucs(cloud.points, members, cloud.document, weights),
        np.mean([best_axis_aucs(points, members, cloud.document, weights) for points in turned], axis=0),
        kurtoses(cloud.points, cloud.document, draws),
        np.mean([kurtoses(points, cloud.document, draws) for points in turned], axis=0),
        len(members),
    )
