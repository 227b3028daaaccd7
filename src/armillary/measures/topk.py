"""Which were the largest values of a stream, and where did they occur?"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from armillary.measures.device import home

WAITING = 32


class TopK:
    """The k largest values, each with a row of integers that says where it was (document, position, …).

    Equal values are ordered by that row, lowest first, so that the answer depends on the stream's content
    alone.
    """

    def __init__(self, k: int, width: int) -> None:
        if k < 1:
            raise ValueError(f"the largest k values need k ≥ 1, got {k}")
        self.k = k
        self.width = width
        self._values = torch.zeros(0, dtype=torch.float64)
        self._payload = torch.zeros(0, width, dtype=torch.int64)
        # Candidates that wait to be ordered, a few per batch.
        self._waiting: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def empty(cls, k: int, width: int) -> "TopK":
        return cls(k, width)

    @classmethod
    def of(cls, values: Float[Tensor, " n"], payload: Int[Tensor, "n w"], k: int) -> "TopK":
        """The measure of one batch.

        >>> top = TopK.of(torch.tensor([1.0, 9.0, 4.0]), torch.tensor([[0], [1], [2]]), k=2)
        >>> top.values.tolist(), top.payload.tolist()
        ([9.0, 4.0], [[1], [2]])
        """
        top = cls(k, payload.shape[1])
        top.include(values, payload)
        return top

    def include(self, values: Float[Tensor, " n"], payload: Int[Tensor, "n w"]) -> None:
        """Add values with their payload; −inf marks an entry that does not count. Nothing waits for the device."""
        if payload.shape[1] != self.width:
            raise ValueError(f"payload rows hold {self.width} integers here, got {payload.shape[1]}")
        device = home(values.device)
        values, payload = values.detach().to(device, torch.float64), payload.detach().to(device, torch.int64)
        if device.type == "cpu":
            # Few entries count: sorting those alone is cheaper. On a GPU, counting them would wait for it.
            counts = values > -torch.inf
            values, payload = values[counts | values.isnan()], payload[counts | values.isnan()]
        self._keep(values, payload)

    def offer(self, values: Float[Tensor, " n"], payload: Int[Tensor, "n w"]) -> None:
        """The same for a batch's few candidates on a device: they are ordered when somebody reads, or at many."""
        self._waiting.append((values.detach().to(torch.float64), payload.detach()))
        if len(self._waiting) > WAITING:
            self._settle()

    def _settle(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            values, payload = (torch.cat(parts) for parts in zip(*waiting, strict=True))
            self.include(values, payload)

    def __add__(self, other: "TopK") -> "TopK":
        if (self.k, self.width) != (other.k, other.width):
            raise ValueError(
                f"cannot add the top {self.k} with {self.width} integers and the top {other.k} with {other.width}"
            )
        merged = TopK(self.k, self.width)
        for part in (self, other):
            part._settle()
            merged._keep(part._values, part._payload)
        return merged

    @property
    def values(self) -> Float[Tensor, " m"]:
        """Largest first, on the CPU."""
        self._settle()
        values = self._values.cpu()
        if bool(values.isnan().any()):
            raise ValueError(f"{int(values.isnan().sum())} of the largest values are NaN and have no order")
        return values[values > -torch.inf]

    @property
    def payload(self) -> Int[Tensor, "m w"]:
        values = self.values
        return self._payload.cpu()[: len(values)]

    def reset(self) -> None:
        self._values, self._payload, self._waiting = self._values[:0], self._payload[:0], []

    def arrays(self) -> dict[str, Tensor]:
        return {"values": self.values, "payload": self.payload}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        self._values, self._payload = arrays["values"].clone(), arrays["payload"].clone()

    def _keep(self, values: Tensor, payload: Tensor) -> None:
        if not len(values):
            return
        values = torch.cat([self._values.to(values.device), values])
        payload = torch.cat([self._payload.to(payload.device), payload])
        order = _order(values, payload)[: self.k]
        self._values, self._payload = values[order], payload[order]


def _order(values: Tensor, payload: Tensor) -> Tensor:
    """By value, largest first (NaN before all), then by the payload's columns from left to right."""
    if values.device.type == "cpu":
        # lexsort's last key is its first.
        keys = [column.numpy() for column in reversed(payload.unbind(dim=1))]
        return torch.from_numpy(np.lexsort((*keys, -values.nan_to_num(nan=torch.inf).numpy())))
    order = torch.arange(len(values), device=values.device)
    for column in (*reversed(payload.unbind(dim=1)), -values.nan_to_num(nan=torch.inf)):
        order = order[column[order].argsort(stable=True)]
    return order
