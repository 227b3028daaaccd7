"""How alike are the representations of two models, layer by layer, beside what chance gives?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.results.quantity import Quantity
from armillary.results.table import Column, Table

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SimilarityMaps:
    """One measure of likeness: maps [layer of A, layer of B], and the best pair of layers."""

    name: str
    meaning: str
    score: Floats
    chance: Floats
    """The score that 5 % of permutations reach."""
    best: float
    best_chance: float

    @property
    def calibrated(self) -> Floats:
        """0 at chance and below, 1 for identical representations."""
        return np.asarray(np.clip((self.score - self.chance) / (1 - self.chance), 0, None))


@dataclass(frozen=True, eq=False)
class Similarity:
    """Two models' streams at the same words of the same text."""

    layers: tuple[tuple[str, ...], tuple[str, ...]]
    """Names of the states of A and of B."""
    words: int
    measured: tuple[SimilarityMaps, ...]

    def matched(self) -> list[tuple[int, int]]:
        """For each state of A the state of B at the same relative depth."""
        a, b = map(len, self.layers)
        return [(i, round(i * (b - 1) / max(1, a - 1))) for i in range(a)]

    def sentence(self) -> str:
        """'At the same depth, CKA beyond chance is 0.91 in the median layer, lowest at L6.resid_post (0.80); …'."""
        parts = []
        for entry in self.measured:
            values = [float(entry.calibrated[pair]) for pair in self.matched()]
            low = int(np.argmin(values))
            parts.append(
                f"{entry.name} {np.median(values):.2f} in the median layer, lowest {values[low]:.2f} at "
                f"{self.layers[0][low]}"
            )
        return f"Similarity beyond chance at the same depth ({self.words} words): {'; '.join(parts)}."

    def table(self) -> Table:
        """One row per pair of states."""
        names = [entry.name for entry in self.measured]
        columns = [Column("a", "state of A"), Column("b", "state of B")]
        for name in names:
            columns += [
                Column(name, "the score"),
                Column(f"{name}, by chance", "reached by 5 % of permutations"),
                Column(f"{name}, beyond chance", "0 at chance, 1 for identical representations"),
            ]
        rows = []
        for i, layer in enumerate(self.layers[0]):
            for j, other in enumerate(self.layers[1]):
                cells: list[Any] = [layer, other]
                for entry in self.measured:
                    cells += [float(m[i, j]) for m in (entry.score, entry.chance, entry.calibrated)]
                rows.append(tuple(cells))
        return Table(tuple(columns), tuple(rows))

    def quantities(self) -> tuple[Quantity, ...]:
        """One map per measure, calibrated."""
        coords = {"state of A": list(self.layers[0]), "state of B": list(self.layers[1])}
        return tuple(
            Quantity(
                f"{entry.name} beyond chance",
                f"{entry.meaning}; 0 for permuted words, 1 for equal streams",
                "share beyond chance",
                ("state of A", "state of B"),
                coords,
                entry.calibrated,
                label="beyond chance",
            )
            for entry in self.measured
        )
