"""What becomes of a circle of directions on its way through a norm and a head, in numbers enough to draw it?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stage:
    """One picture of the way: the unit circle, c (a row of two), stands at c @ matrix + centre in a plane of this stage's own.

    `away`: how far the plane has moved off the origin besides, which no drawing in it can show.
    """

    name: str
    matrix: Floats
    centre: Floats
    away: float
    said: tuple[str, ...]
    """Its numbers, in a few short lines."""
    turned: tuple[float, ...] = ()
    """The two angles between its plane and that of the stage before, in degrees; none where they are in different spaces."""
    tips: tuple[str, ...] = ()
    """Words at the ends of the two axes: +1, −1, +2, −2; none where they are not read."""

    @property
    def axes(self) -> tuple[float, float]:
        """The ellipse's half axes, the longer first."""
        long, short = np.linalg.svd(self.matrix, compute_uv=False)
        return float(long), float(short)

    def curve(self, degrees: Floats) -> Floats:
        """[n, 2]: where the points of the circle at these angles stand now."""
        at = np.radians(degrees)
        return np.asarray(np.stack([np.cos(at), np.sin(at)], -1) @ self.matrix + self.centre)


@dataclass(frozen=True, eq=False)
class Row:
    """One head's way, from one plane."""

    layer: int
    head: str
    plane: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True, eq=False)
class Schematic:
    rows: tuple[Row, ...]
