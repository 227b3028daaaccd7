"""The statistics of several layers' sampled queries at once: for GPUs, where a layer alone is many small kernels."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from armillary.probes.instruments.head_parts.head_scores import QueryScores, fields_of
from armillary.probes.instruments.heads import FIELDS

# Numbers in the scores of the layers that are evaluated together; some twenty such arrays are alive at a time.
TOGETHER = 1 << 25
Shares = tuple[Tensor, Tensor, Tensor]


class Layers:
    """Collects layers until there are enough of them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, QueryScores, Shares]] = []

    def add(self, layer: int, scores: QueryScores, shares: Shares) -> Iterator[tuple[int, Tensor]]:
        """Yields [b, n, h, FIELDS] of layers that were evaluated."""
        if self._waiting and not _alike(self._waiting[0][1], scores):
            yield from self.flush()
        self._waiting.append((layer, scores, shares))
        if len(self._waiting) * _size(scores) >= TOGETHER:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, Tensor]]:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        layers, scores, shares = zip(*waiting, strict=True)
        query, key, value = (torch.cat(side) for side in zip(*shares, strict=True))
        fields = fields_of(_joined(scores), (query, key, value), FIELDS)
        yield from zip(layers, fields.chunk(len(layers)), strict=True)


def _size(scores: QueryScores) -> int:
    b, h, n, _ = scores.q.shape
    return b * h * n * scores.k.shape[2]


def _alike(one: QueryScores, other: QueryScores) -> bool:
    """Can both be evaluated as one layer with more windows? Not where heads add biases or sinks of their own."""
    a, b = one.attention, other.attention
    plain = all(part is None for part in (a.bias, b.bias, a.sinks, b.sinks))
    return plain and (a.scale, a.softcap) == (b.scale, b.softcap) and one.q.shape == other.q.shape


def _joined(scores: tuple[QueryScores, ...]) -> QueryScores:
    """Layers as windows of one layer."""
    if len(scores) == 1:
        return scores[0]
    names = ("q", "k", "z", "update", "query", "sees", "bare_q", "bare_k", "distinct")
    joined: dict[str, Any] = {name: torch.cat([getattr(each, name) for each in scores]) for name in names}
    return replace(scores[0], **joined)
