"""What are the sums, squares and extremes of a few numbers per token, document group by document group?

Kept per group, because groups are what a bootstrap draws: `additive()` is the array it asks for.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from armillary.errors import ValuesError
from armillary.measures.device import home

FIELDS = ("count", "sum", "square", "least", "greatest")


class GroupedScalars:
    """Count, sum and sum of squares of C named columns in each of G groups, and the extremes of all, in float64."""

    def __init__(self, groups: int, names: tuple[str, ...]) -> None:
        if len(set(names)) != len(names):
            raise ValueError(f"column names must differ, got {names}")
        self.groups = groups
        self.names = names
        shape = (groups, len(names))
        self.count: Int[Tensor, " g"] = torch.zeros(groups, dtype=torch.int64)
        self.sum: Float[Tensor, "g c"] = torch.zeros(shape, dtype=torch.float64)
        self.square: Float[Tensor, "g c"] = torch.zeros(shape, dtype=torch.float64)
        # Of all groups together: extremes are not resampled, and per group they would cost as much as the sums.
        self.least: Float[Tensor, " c"] = torch.full(shape[1:], torch.inf, dtype=torch.float64)
        self.greatest: Float[Tensor, " c"] = torch.full(shape[1:], -torch.inf, dtype=torch.float64)

    @classmethod
    def empty(cls, groups: int, names: tuple[str, ...]) -> "GroupedScalars":
        return cls(groups, names)

    @classmethod
    def of(
        cls, groups: int, names: tuple[str, ...], index: Int[Tensor, " n"], columns: Float[Tensor, "n c"]
    ) -> "GroupedScalars":
        """The measure of one batch.

        >>> lengths = torch.tensor([[1.0], [3.0], [5.0]])
        >>> GroupedScalars.of(2, ("length",), torch.tensor([0, 0, 1]), lengths).mean()
        tensor([[2.],
                [5.]], dtype=torch.float64)
        """
        scalars = cls(groups, names)
        scalars.include(index, columns)
        return scalars

    def include(self, index: Int[Tensor, " n"], columns: Float[Tensor, "n c"]) -> None:
        """Add one row of scalars per token; `index` says which group each token belongs to.

        Nothing here waits for the device: NaN is found when the sums are read.
        """
        if columns.shape[1] != len(self.names):
            raise ValueError(f"expected the {len(self.names)} columns {self.names}, got {columns.shape[1]}")
        if not len(index):
            return
        device = home(columns.device)
        self._move(device)
        where = index.detach().to(device, torch.int64, non_blocking=True)
        values = columns.detach().to(device, torch.float64)
        if device.type == "cpu" and not 0 <= int(where.min()) <= int(where.max()) < self.groups:
            ends = f"{int(where.min())} … {int(where.max())}"
            raise ValueError(f"group indices must lie in 0 … {self.groups - 1}, got {ends}")
        if device.type == "cpu":
            self.count.index_add_(0, where, torch.ones_like(where))
            self.sum.index_add_(0, where, values)
            self.square.index_add_(0, where, values.square())
        else:
            # Products add in a fixed order; `index_add_` on a GPU does not, and waits for its own atomics.
            member = (where == torch.arange(self.groups, device=device)[:, None]).to(torch.float64)
            self.count += member.sum(1).to(torch.int64)
            self.sum += member @ values
            self.square += member @ values.square()
        least, greatest = values.aminmax(dim=0)
        torch.minimum(self.least, least, out=self.least)
        torch.maximum(self.greatest, greatest, out=self.greatest)

    @staticmethod
    def add_each(
        measures: "Sequence[GroupedScalars]", count: Tensor, total: Tensor, square: Tensor, least: Tensor, most: Tensor
    ) -> None:
        """Add to each measure its row of sums [measure, g, c], counts [measure, g] and extremes [measure, c]: a few
        kernels for all."""
        device = home(total.device)
        for measure in measures:
            measure._move(device)
        count, total, square, least, most = (part.to(device) for part in (count, total, square, least, most))
        torch._foreach_add_([m.count for m in measures], list(count))
        torch._foreach_add_([m.sum for m in measures], list(total))
        torch._foreach_add_([m.square for m in measures], list(square))
        torch._foreach_minimum_([m.least for m in measures], list(least))
        torch._foreach_maximum_([m.greatest for m in measures], list(most))

    def _move(self, device: torch.device) -> None:
        if self.count.device != device:
            for name in FIELDS:
                setattr(self, name, getattr(self, name).to(device, non_blocking=True))

    def __add__(self, other: "GroupedScalars") -> "GroupedScalars":
        if (self.groups, self.names) != (other.groups, other.names):
            raise ValueError(
                f"cannot add scalars of {self.groups} groups {self.names} and of {other.groups} groups {other.names}"
            )
        merged = GroupedScalars(self.groups, self.names)
        merged._move(self.count.device)
        for name in ("count", "sum", "square"):
            setattr(merged, name, getattr(self, name) + getattr(other, name).to(self.count.device))
        merged.least = torch.minimum(self.least, other.least.to(self.least.device))
        merged.greatest = torch.maximum(self.greatest, other.greatest.to(self.greatest.device))
        return merged

    def reset(self) -> None:
        """Make it empty; its tensors stay where they are."""
        for name in ("count", "sum", "square"):
            getattr(self, name).zero_()
        self.least.fill_(torch.inf)
        self.greatest.fill_(-torch.inf)

    def arrays(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).cpu() for name in FIELDS}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        for name in FIELDS:
            setattr(self, name, arrays[name].clone())

    def _check(self) -> None:
        """Refuse sums that NaN entered."""
        broken = self.sum.isnan().any(dim=0).tolist()
        if any(broken):
            names = ", ".join(name for name, bad in zip(self.names, broken, strict=True) if bad)
            raise ValuesError(f"the values of {names} contain NaN: their sums mean nothing.")

    def mean(self) -> Float[Tensor, "g c"]:
        """NaN for a group without tokens."""
        self._check()
        return self.sum / self.count[:, None]

    def additive(self) -> Float[np.ndarray, "g c 3"]:
        """Count, sum and sum of squares, as `geometry.resample.bootstrap` takes them."""
        self._check()
        count = self.count[:, None].expand_as(self.sum).to(torch.float64)
        return torch.stack([count, self.sum, self.square], dim=2).cpu().numpy()
