"""What was the largest of a few numbers, batch after batch?"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from armillary.measures.device import home


class Largest:
    """The largest of each of n numbers, none below 0.

    >>> largest = Largest(2)
    >>> largest.include(torch.tensor([3.0, 1.0])); largest.include(torch.tensor([2.0, 5.0]))
    >>> largest.values.tolist()
    [3.0, 5.0]
    """

    def __init__(self, count: int = 1) -> None:
        self.values = torch.zeros(count, dtype=torch.float64)

    def include(self, rows: Tensor) -> None:
        """Rows of n numbers, or one such row."""
        rows = rows.detach().to(home(rows.device), torch.float64).reshape(-1, len(self.values))
        if len(rows):
            self.values = torch.maximum(self.values.to(rows.device, non_blocking=True), rows.amax(0))

    @staticmethod
    def include_each(measures: "Sequence[Largest]", rows: Tensor) -> None:
        """One row of numbers for each measure."""
        rows = rows.detach().to(home(rows.device), torch.float64)
        for measure in measures:
            measure.values = measure.values.to(rows.device, non_blocking=True)
        torch._foreach_maximum_([measure.values for measure in measures], list(rows))

    def __add__(self, other: "Largest") -> "Largest":
        total = Largest(len(self.values))
        total.values = torch.maximum(self.values, other.values.to(self.values.device))
        return total

    def reset(self) -> None:
        self.values.zero_()

    def arrays(self) -> dict[str, Tensor]:
        return {"values": self.values.cpu()}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        self.values = arrays["values"].clone()
