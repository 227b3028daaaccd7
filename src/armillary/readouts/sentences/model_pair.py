"""Two models on one sentence: how do their words travel, and what do they predict? NumPy only."""

import numpy as np

from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.sheets.trajectory import Floats, Trajectory
from armillary.results.table import Cell

DEPTHS = 21
"""Points of relative depth, 0 at the embedding and 1 at the last state."""


def pair_sheet(first: Trajectory, second: Trajectory) -> Sheet:
    """Angles by relative depth, and the next words that either model predicts after the sentence."""
    depth = np.linspace(0, 1, DEPTHS)
    coords = {"relative depth": depth.tolist()}
    names = (first.model, second.model if second.model != first.model else f"{second.model} (second)")
    quantities = []
    for name, meaning in (("following", "the next word"), ("own", "itself")):
        curves = [_curve(getattr(path, name), depth) for path in (first, second)]
        if all(np.isfinite(curve).any() for curve in curves):
            quantities.append(
                Quantity(f"angle to {meaning}", "mean over the words of the sentence", "angle, degrees",
                         ("relative depth",), coords, curves[0], controls={names[1]: curves[1]}, label=names[0])
            )  # fmt: skip
    steps = [_travelled(path) for path in (first, second)]
    return Sheet(
        name="pair",
        title=f"A word's path over the sphere is {steps[0]:.0f}° long in {names[0]} and {steps[1]:.0f}° in {names[1]}",
        caption=f"{len(first.words)} and {len(second.words)} tokens · angles in each model's own space",
        tables={"next words": _predictions(first, second, names)},
        quantities=tuple(quantities),
        notes=("Models are aligned by relative depth; their tokens may differ.",),
    )


def _curve(angles: Floats, depth: Floats) -> Floats:
    """Mean over words at each state, read at relative depths."""
    rows = angles[np.isfinite(angles).all(1)]
    if not len(rows):
        return np.full(len(depth), np.nan)
    return np.interp(depth, np.linspace(0, 1, rows.shape[1]), rows.mean(0))


def _travelled(path: Trajectory) -> float:
    """The mean sum of a word's steps."""
    return float(path.moved.sum(1).mean()) if path.moved.size else 0.0


def _predictions(first: Trajectory, second: Trajectory, names: tuple[str, str]) -> Table:
    """What either model's last state reads as, rank by rank."""
    columns = [Column("place", "1 is most probable")]
    for name in names:
        columns += [Column(f"word, {name}", "the next word"), Column(f"probability, {name}", "of the next word")]
    lists = [path.readings[-1][-1] for path in (first, second)]
    rows: list[tuple[Cell, ...]] = []
    for rank in range(max(map(len, lists))):
        cells: list[Cell] = [rank + 1]
        for readings in lists:
            reading = readings[rank] if rank < len(readings) else None
            cells += [None, None] if reading is None else [reading.text, reading.probability]
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))
