"""Which were the largest values of a stream, and where did they occur?"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


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
        self.values: Float[Tensor, " m"] = torch.zeros(0, dtype=torch.float64)
        self.payload: Int[Tensor, "m w"] = torch.zeros(0, width, dtype=torch.int64)

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
        """Add values with their payload. Only those that may enter leave the values' device."""
        if payload.shape[1] != self.width:
            raise ValueError(f"payload rows hold {self.width} integers here, got {payload.shape[1]}")
        values = values.detach()
        if bool(values.isnan().any()):
            raise ValueError(f"{int(values.isnan().sum())} of {len(values)} values are NaN and have no order")
        if len(values) > self.k:
            # Everything tied with the k-th must be looked at: which of them stay is for the payload to say.
            entering = values >= values.topk(self.k).values[-1]
        else:
            entering = torch.ones_like(values, dtype=torch.bool)
        if len(self.values) == self.k:
            entering &= values >= float(self.values[-1])
        self._keep(values[entering].cpu().double(), payload[entering.to(payload.device)].cpu().to(torch.int64))

    def __add__(self, other: "TopK") -> "TopK":
        if (self.k, self.width) != (other.k, other.width):
            raise ValueError(
                f"cannot add the top {self.k} with {self.width} integers and the top {other.k} with {other.width}"
            )
        both = TopK(self.k, self.width)
        both._keep(self.values, self.payload)
        both._keep(other.values, other.payload)
        return both

    def _keep(self, values: Tensor, payload: Tensor) -> None:
        if not len(values):
            return
        values = torch.cat([self.values, values])
        payload = torch.cat([self.payload, payload])
        # lexsort's last key is its first: value descending, then the payload's columns from left to right.
        keys = [column.numpy() for column in reversed(payload.unbind(dim=1))]
        order = torch.from_numpy(np.lexsort((*keys, -values.numpy())))[: self.k]
        self.values, self.payload = values[order], payload[order]
