"""How a norm and a head transform a circle of directions, in the numbers that a drawing needs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage: the unit circle, c (a row of two), is at c @ matrix + centre in a plane of this stage.

    `away`: distance of the plane from the origin, which a drawing in the plane cannot show.
    """

    name: str
    matrix: Floats
    centre: Floats
    away: float
    facts: tuple[str, ...]
    """Its numbers, in a few short lines."""
    turned: tuple[float, ...] = ()
    """The two angles between its plane and the previous stage's, in degrees; none between different spaces."""
    tips: tuple[str, ...] = ()
    """Words at the ends of the two axes: +1, −1, +2, −2; empty where no words are read."""

    @property
    def axes(self) -> tuple[float, float]:
        """The ellipse's half axes, the longer first."""
        long, short = np.linalg.svd(self.matrix, compute_uv=False)
        return float(long), float(short)

    def curve(self, degrees: Floats) -> Floats:
        """[n, 2]: the points of the circle at these angles, in this stage."""
        at = np.radians(degrees)
        return np.asarray(np.stack([np.cos(at), np.sin(at)], -1) @ self.matrix + self.centre)


@dataclass(frozen=True, eq=False)
class Row:
    """One head's stages, from one plane."""

    layer: int
    head: str
    plane: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True, eq=False)
class Schematic:
    rows: tuple[Row, ...]
