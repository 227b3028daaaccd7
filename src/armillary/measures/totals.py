"""What are the sums of whole arrays, document group by document group?"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from armillary.errors import ValuesError
from armillary.measures.device import home


class Totals:
    """A float64 array [group, *shape] into which rows [n, *shape] are added.

    >>> totals = Totals(2, (3,))
    >>> totals.include(torch.tensor([0, 1, 1]), torch.ones(3, 3))
    >>> totals.additive().tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """

    def __init__(self, groups: int, shape: tuple[int, ...]) -> None:
        self.sum = torch.zeros(groups, *shape, dtype=torch.float64)

    def include(self, index: Int[Tensor, " n"], rows: Float[Tensor, " n *shape"]) -> None:
        """Add rows; `index` says which group each belongs to."""
        if rows.shape[1:] != self.sum.shape[1:]:
            raise ValueError(f"expected rows of shape {tuple(self.sum.shape[1:])}, got {tuple(rows.shape[1:])}")
        device = home(rows.device)
        self.sum = self.sum.to(device, non_blocking=True)
        index, rows = index.detach().to(device, torch.int64), rows.detach().to(device, torch.float64)
        if device.type == "cpu":
            self.sum.index_add_(0, index, rows)
        else:
            # A product adds in a fixed order; `index_add_` on a GPU does not.
            member = (index == torch.arange(len(self.sum), device=device)[:, None]).to(torch.float64)
            self.sum += (member @ rows.flatten(1)).view(self.sum.shape)

    def __add__(self, other: "Totals") -> "Totals":
        if self.sum.shape != other.sum.shape:
            raise ValueError(f"cannot add totals of shapes {tuple(self.sum.shape)} and {tuple(other.sum.shape)}")
        merged = Totals(len(self.sum), tuple(self.sum.shape[1:]))
        merged.sum = self.sum + other.sum.to(self.sum.device)
        return merged

    def additive(self) -> Float[np.ndarray, " g *shape"]:
        if bool(self.sum.isnan().any()):
            raise ValuesError("the rows contain NaN: their sums mean nothing.")
        return np.asarray(self.sum.cpu().numpy())

    def reset(self) -> None:
        self.sum.zero_()

    def arrays(self) -> dict[str, Tensor]:
        return {"sum": self.sum.cpu()}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        self.sum = arrays["sum"].clone()
