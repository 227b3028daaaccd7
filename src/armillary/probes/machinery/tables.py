"""How do arrays become the tables and figures of a finding? By site, head or layer; each column with its meaning."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.results import Column, Quantity, Table
from armillary.results.table import Cell

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cells:
    """One column of a table with its values."""

    column: Column
    values: tuple[Cell, ...]


def cells(name: str, meaning: str, values: Iterable[Any], unit: str = "") -> Cells:
    """A column. Arrays are flattened in their order; NaN and None become empty cells.

    >>> cells("radius", "mean length", np.array([1.0, np.nan]), "√d").values
    (1.0, None)
    """
    return Cells(Column(name, meaning, unit), tuple(map(cell, np.asarray(values, dtype=object).ravel().tolist())))


def interval_cells(
    name: str, meaning: str, values: Floats, unit: str = "", ends: str | None = None, level: float = 0.95
) -> tuple[Cells, Cells, Cells]:
    """Three columns, `name`, `name_low` and `name_high`, from [row, (value, low, high)].

    `ends` stands before `low` and `high` in place of `name_`.
    """
    value, low, high = np.moveaxis(values, -1, 0)
    ends, level_text = f"{name}_" if ends is None else ends, f"its {100 * level:.3g} % interval over documents"
    return (
        cells(name, meaning, value, unit),
        cells(f"{ends}low", f"{level_text}, low end", low, unit),
        cells(f"{ends}high", f"{level_text}, high end", high, unit),
    )


def cell(value: Any) -> Cell:
    """A plain Python value; None for what could not be measured."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and value != value else value


def table(*columns: Cells | Iterable[Cells]) -> Table:
    """Columns side by side; a tuple of columns counts as its members."""
    flat = [part for item in columns for part in ((item,) if isinstance(item, Cells) else item)]
    lengths = {part.column.name: len(part.values) for part in flat}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of one table have different lengths: {lengths}")
    return Table(tuple(part.column for part in flat), tuple(zip(*(part.values for part in flat), strict=True)))


def site_table(sites: Sequence[str], *columns: Cells | Iterable[Cells]) -> Table:
    """One row per norm site."""
    return table(cells("site", "norm site", sites), *columns)


def head_table(anatomy: "Anatomy", *columns: Cells | Iterable[Cells]) -> Table:
    """One row per head, from arrays [layer, head]."""
    return table(cells("head", "attention head", head_names(anatomy.layers, anatomy.n_heads)), *columns)


def layer_table(layers: int, *columns: Cells | Iterable[Cells]) -> Table:
    """One row per layer."""
    return table(cells("layer", "block, from 0", [f"L{i}" for i in range(layers)]), *columns)


def head_names(layers: int, heads: int) -> list[str]:
    """
    >>> head_names(1, 2)
    ['L0H0', 'L0H1']
    """
    return [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]


def line(
    name: str,
    meaning: str,
    unit: str,
    axis: str,
    labels: Sequence[str] | Sequence[float],
    values: Floats,
    controls: Mapping[str, Floats] | None = None,
    theory: Mapping[str, Floats] | None = None,
    logs: tuple[str, ...] = (),
    label: str = "this model",
) -> Quantity:
    """A quantity over one axis: values [n], or [n, (value, low, high)] with their band."""
    value, low, high = (values, None, None) if values.ndim == 1 else np.moveaxis(values, -1, 0)
    controls, theory = dict(controls or {}), dict(theory or {})
    return Quantity(name, meaning, unit, (axis,), {axis: labels}, value, low, high, controls, theory, logs, label)


def head_map(
    name: str, meaning: str, unit: str, values: Floats, controls: Mapping[str, Floats] | None = None, log: bool = False
) -> Quantity:
    """A quantity over layers (down) and heads (across)."""
    coords = {
        "layer": [f"L{layer}" for layer in range(values.shape[0])],
        "head": [f"H{head}" for head in range(values.shape[1])],
    }
    logs = ("value",) if log else ()
    return Quantity(name, meaning, unit, ("layer", "head"), coords, values, controls=dict(controls or {}), logs=logs)
