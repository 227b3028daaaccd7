"""Which queries of a batch are looked at closely? Some of some windows, known before the pass."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.flow.tokens import Batch, Window


@dataclass(frozen=True, eq=False)
class ChosenQueries:
    """Of one batch, on its device."""

    rows: Tensor
    """The windows [b]."""
    query: Tensor
    """Positions [b, n]; windows with fewer queries repeat their last one."""
    unique: Tensor
    """Which of the b · n queries are no repetitions."""
    distinct: Tensor
    """The same as [b, n]."""
    every: bool
    """Are these all windows of the batch?"""
    places: list[tuple[int, int]]
    """Document and position of every query."""
    rebuilt: list[tuple[int, int]]
    """Windows whose scores are rebuilt: row in the batch, length."""

    def __len__(self) -> int:
        return len(self.places)

    @staticmethod
    def of(
        batch: Batch, chosen: "Mapping[Window, tuple[int, ...]]", rebuilt: Collection[Window], device: torch.device
    ) -> "ChosenQueries":
        rows = [i for i, window in enumerate(batch.windows) if window in chosen]
        windows = [batch.windows[i] for i in rows]
        places = [chosen[window] for window in windows]
        most = max(map(len, places), default=0)
        query = torch.tensor([[*p, *[p[-1]] * (most - len(p))] for p in places]).long()
        unique = torch.tensor([i * most + j for i, p in enumerate(places) for j in range(len(p))]).long()
        distinct = torch.tensor([[j < len(p) for j in range(most)] for p in places]).bool()
        return ChosenQueries(
            rows=torch.tensor(rows).long().to(device, non_blocking=True),
            query=query.to(device, non_blocking=True),
            unique=unique.to(device, non_blocking=True),
            distinct=distinct.to(device, non_blocking=True),
            every=len(rows) == len(batch.ids),
            places=[(window.document, t) for window, p in zip(windows, places, strict=True) for t in p],
            rebuilt=[(i, len(window.ids)) for i, window in zip(rows, windows, strict=True) if window in rebuilt],
        )

    def windows(self, x: Tensor) -> Tensor:
        """The chosen windows [b, …] of a batch."""
        return x if self.every else x.index_select(0, self.rows)
