"""What is a measured number, fully said?

A `Quantity` is an array with named axes, a unit, a meaning, its spread, its controls and its theory. Views
choose the picture from the axes, so a probe that fills one in needs no drawing code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Quantity:
    """Values over one axis (drawn as a line), two (a heat map) or three (a heat map for each entry of the first).

    axes       names, in the order of `values`' dimensions: 'site', 'layer', 'head', 'eigenvalue index' …
    coords     for each axis its labels (strings) or positions (numbers)
    low, high  the interval, the shape of `values`
    controls   name → the same quantity under a control (grey dashes)
    theory     formula → its value(s) (thin dotted line)
    label      what the values themselves are called on the picture
    logs       axes drawn on a logarithmic scale; 'value' stands for the values themselves
    """

    name: str
    meaning: str
    unit: str
    axes: tuple[str, ...]
    coords: Mapping[str, Sequence[str] | Sequence[float]]
    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    controls: Mapping[str, Floats] = field(default_factory=dict)
    theory: Mapping[str, Floats] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    label: str = "this model"

    def __post_init__(self) -> None:
        shape = tuple(len(self.coords[axis]) for axis in self.axes)
        arrays = {"values": self.values, "low": self.low, "high": self.high, **self.controls, **self.theory}
        for what, array in arrays.items():
            if array is not None and array.shape != shape:
                raise ValueError(f"{self.name}: {what} has shape {array.shape}, its axes {self.axes} say {shape}")
