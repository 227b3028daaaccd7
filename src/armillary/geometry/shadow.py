"""Where does the shadow of a sphere go when the sphere is sheared or turned? In closed form; NumPy only."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def sheared_shadow(x: Floats, y: Floats, strength: float, side: int = 1) -> tuple[Floats, Floats]:
    """S3's closed form: where the shadow (x, y) of a point of the unit sphere goes when the sphere is sheared along x
    by its height. `side` is 1 above the plane and −1 below.

    >>> [float(v) for v in sheared_shadow(np.array(0.0), np.array(0.6), 0.5)]
    [0.4, 0.6]
    """
    return np.asarray(x + side * strength * np.sqrt(np.maximum(1 - x**2 - y**2, 0))), y


def turned_shadow(x: Floats, y: Floats, angle: float, side: int = 1) -> tuple[Floats, Floats]:
    """The same for a rotation about the y axis: the same root, although a rotation bends nothing."""
    root = np.sqrt(np.maximum(1 - x**2 - y**2, 0))
    return np.asarray(math.cos(angle) * x + side * math.sin(angle) * root), y
