"""What maps of a vision model's largest activations leave behind."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.results.table import Column, Table


@dataclass(frozen=True, eq=False)
class PatchMaps:
    """The largest coordinate of every token, over the median magnitude of the state, at the state where it peaks."""

    model: str
    source: str
    state: str
    own: int
    """How many tokens of the model's own stand before the patches."""
    grid: tuple[int, int]
    ratios: NDArray[np.float64]
    """[images, tokens]"""
    by_state: Mapping[str, float]
    """The median image's largest ratio at every state of the stream."""
    pictures: NDArray[np.uint8]
    """[images, height, width, 3]"""

    def table(self, most: int = 5) -> Table:
        """The tokens with the largest ratios of every image, largest first."""
        columns = (
            Column("image", "its number"),
            Column("token", "the model's own token, or the patch's row and column"),
            Column("ratio", "largest coordinate over the median magnitude"),
        )
        rows = []
        for image, ratios in enumerate(self.ratios):
            for place in np.argsort(-ratios, kind="stable")[:most]:
                rows.append((image, self.name(int(place)), float(ratios[place])))
        return Table(columns, tuple(rows))

    def name(self, place: int) -> str:
        if place < self.own:
            return "class token" if place == 0 else f"own token {place}"
        row, column = divmod(place - self.own, self.grid[1])
        return f"row {row}, column {column}"
