"""What a model adds to a score for the distance of query and key alone: ALiBi, relative positions."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class ScoreBias(Protocol):
    """From offsets i − j of queries i and keys j, any shape, to what is added to the scores [h, *shape]."""

    def __call__(self, offsets: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Slopes:
    """ALiBi: every position of distance costs a head its slope.

    >>> Slopes(torch.tensor([0.5, 0.25]))(torch.tensor([1, 2, 4]))
    tensor([[-0.5000, -1.0000, -2.0000],
            [-0.2500, -0.5000, -1.0000]])
    """

    slopes: Tensor

    def __call__(self, offsets: Tensor) -> Tensor:
        return -self.slopes.reshape(-1, *[1] * offsets.ndim) * offsets.abs()


def alibi_slopes(heads: int, steepest: float = 8.0) -> Tensor:
    """2^(−8/n), 2^(−16/n), … for n a power of two; between powers, every other slope of the next one.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-steepest * (i + 1) / power) for i in range(power)]
    more = [2.0 ** (-steepest * (2 * i + 1) / (2 * power)) for i in range(heads - power)]
    return torch.tensor(slopes + more)


def next_power_slopes(heads: int, steepest: float = 8.0) -> Tensor:
    """MPT's order between powers of two: the slopes of the next power, odd ones first."""
    power = 2 ** math.ceil(math.log2(heads))
    slopes = 2.0 ** (-steepest * torch.arange(1, power + 1) / power)
    return slopes if power == heads else torch.cat((slopes[1::2], slopes[::2]))[:heads]


@dataclass(frozen=True, eq=False)
class Buckets:
    """One trained number per head and bucket of distances [buckets, h]; near distances have buckets of their own."""

    table: Tensor
    farthest: int
    both_ways: bool = True

    def __call__(self, offsets: Tensor) -> Tensor:
        chosen = _bucket(offsets, len(self.table), self.farthest, self.both_ways)
        return self.table[chosen].movedim(-1, 0)


def _bucket(offsets: Tensor, buckets: int, farthest: int, both_ways: bool) -> Tensor:
    """Half of the buckets are for keys after the query; of each half, half are for single distances, the others grow
    by equal factors up to `farthest`."""
    number = buckets // 2 if both_ways else buckets
    later = (offsets < 0).long() * number if both_ways else torch.zeros_like(offsets)
    distance = offsets.abs() if both_ways else offsets.clamp_min(0)
    near = number // 2
    grown = (distance.float().clamp_min(1) / near).log() / math.log(farthest / near) * (number - near)
    far = (near + grown.long()).clamp_max(number - 1)
    return later + torch.where(distance < near, distance, far)
