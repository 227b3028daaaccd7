"""Which rows were looked at closely? A few, kept as they are: their number is bounded by who offers them."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Rows:
    """Rows of one shape, batch by batch, on the device where they arose; adding joins them.

    >>> rows = Rows((2,))
    >>> rows.include(torch.ones(3, 2))
    >>> (rows + rows).joined().shape
    torch.Size([6, 2])
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        self.shape, self.dtype = shape, dtype
        self._batches: list[Tensor] = []

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def include(self, rows: Tensor) -> None:
        if tuple(rows.shape[1:]) != self.shape:
            raise ValueError(f"expected rows of shape {self.shape}, got {tuple(rows.shape[1:])}")
        self._batches.append(rows.detach().to(self.dtype))

    def __add__(self, other: "Rows") -> "Rows":
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            raise ValueError(f"cannot add rows {self.shape} {self.dtype} and {other.shape} {other.dtype}")
        merged = Rows(self.shape, self.dtype)
        merged._batches = [*self._batches, *other._batches]
        return merged

    def joined(self) -> Tensor:
        """All rows, on the CPU, in the order of their coming; they are fetched from the device once."""
        if len(self._batches) != 1 or self._batches[0].device.type != "cpu":
            empty = torch.zeros((0, *self.shape), dtype=self.dtype)
            self._batches = [torch.cat([empty, *(batch.cpu() for batch in self._batches)])]
        return self._batches[0]

    def reset(self) -> None:
        self._batches = []

    def arrays(self) -> dict[str, Tensor]:
        return {"rows": self.joined()}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        self._batches = [arrays["rows"].clone()]
