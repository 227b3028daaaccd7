"""What if axes changed places, in every document by another shuffle?

One shuffle costs what its own luck makes of it (a second one, up to a quarter more or less). With a shuffle a document the
interval over documents is one over shuffles as well, and a pass tries as many as it reads documents.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing, changing_heads


@dataclass(frozen=True, eq=False)
class Dealt:
    """Let axis i of layer `layer` carry what axis `order(n)[i]` carried, in the n-th document that passes: in `z`, or in `q`."""

    layer: int
    order: Callable[[int], tuple[int, ...]]
    where: Literal["z", "q"] = "z"
    passed: list[int] = field(default_factory=lambda: [0])
    """How many documents have passed since it was made."""
    example: ClassVar[str] = 'Dealt(layer=3, order=lambda n: across(heads=4, k=64, seed=n), where="z")'

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        if self.where == "z":
            return changing(anatomy, f"L{self.layer}.z", lambda z, given: self._moved(z.flatten(-2)))

        def change(q: Tensor, key: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            b, h, t, k = q.shape
            moved = self._moved(q.transpose(1, 2).reshape(b, t, h * k))
            return moved.reshape(b, t, h, k).transpose(1, 2), key, v

        return changing_heads(anatomy, self.layer, change)

    def _moved(self, rows: Tensor) -> Tensor:
        """[b, t, h·k], each document by its own order."""
        first = self.passed[0]
        self.passed[0] += len(rows)
        orders = torch.tensor([self.order(first + i) for i in range(len(rows))], device=rows.device)
        return rows.gather(-1, orders[:, None].expand(rows.shape))
