"""Which layer of one model stands beside which layer of another? The one at the same relative depth."""

import re
from collections.abc import Mapping

from armillary.results.table import Cell

Key = tuple[Cell, ...]
Row = dict[str, Cell]
_LAYER = re.compile(r"\bL(\d+)\b")


def counterpart(layer: int, layers: int, others: int) -> int:
    """The layer of a model of `others` layers at the relative depth of `layer` of `layers`; first and last meet.

    >>> [counterpart(layer, 3, 7) for layer in range(3)], [counterpart(layer, 3, 8) for layer in range(3)]
    ([0, 3, 6], [0, 4, 7])
    """
    return round(layer * (others - 1) / max(1, layers - 1))


def aligned_rows(a: Mapping[Key, Row], b: Mapping[Key, Row], depths: tuple[int, int]) -> list[tuple[str, Row, Row]]:
    """Rows of the shallower model with those of the deeper one at the same relative depth, named by both."""
    shallow, deep = (a, b) if depths[0] <= depths[1] else (b, a)
    few, many = sorted(depths)
    matches = []
    for key, row in shallow.items():
        other = tuple(_moved(cell, few, many) for cell in key)
        if other in deep:
            pair = (key, other) if shallow is a else (other, key)
            rows = (row, deep[other]) if shallow is a else (deep[other], row)
            names = list(dict.fromkeys(" · ".join(map(str, side)) for side in pair))
            matches.append((" ↔ ".join(names), *rows))
    return matches


def _moved(cell: Cell, layers: int, others: int) -> Cell:
    if not isinstance(cell, str):
        return cell
    return _LAYER.sub(lambda match: f"L{counterpart(int(match[1]), layers, others)}", cell)
