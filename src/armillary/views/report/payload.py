"""The data of a report: figures and tables, and how much of them fits into the page.

Lines with more points than pixels are thinned for drawing; their CSV is complete. Tables are complete too, unless all
of them together would make the page too large: then the largest are cut to the same size, and the page says so.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.results.claim import Finding
from armillary.results.numbers import count
from armillary.results.quantity import Floats, Quantity
from armillary.results.store import file_name, table_csv
from armillary.results.table import Table
from armillary.views.figures.figure import figure
from armillary.views.page import finding_csv, inert
from armillary.views.text.quoting import are_numbers, show_cell, show_text

# A line is drawn about 800 pixels wide; each stretch of it keeps its ends and its extremes.
POINTS = 400
# A map is drawn with at least four pixels per cell.
CELLS = 200
# Bytes of a page: a report of a 135M model must stay under 15 MB, of which plotly takes 5. Tables get what the figures
# leave, and at least a million.
LIMIT, LEAST = 14_000_000, 1_000_000
_SAMPLE = 50


@dataclass(frozen=True)
class ClaimData:
    """The data of one claim: `figure` is a plotly figure without its template."""

    name: str
    """The stem of saved files."""
    figure: Mapping[str, Any] | None
    csv: str
    tables: Mapping[str, Table]
    files: Mapping[str, str]
    """The file of each table, beside the report."""
    narrow: Mapping[str, Any] | None = None
    """The figure for a narrow screen: its layout, and what differs in its traces."""

    @property
    def height(self) -> int:
        """Pixels of the figure without its title."""
        return 0 if self.figure is None else _height(self.figure)

    @property
    def heights(self) -> str:
        """The figure's heights as a style, for either width of the screen."""
        narrow = "" if self.narrow is None else f";--narrow:{_height(self.narrow)}px"
        return f"--wide:{self.height}px{narrow}"


# The margin above a figure whose title is in the page's HTML.
TOP = 10


def _height(record: Mapping[str, Any]) -> int:
    layout = record["layout"]
    return int(layout["height"] - layout["margin"]["t"] + TOP)


def finding_part(finding: Finding, forms: Sequence[Any] = ()) -> ClaimData:
    """`forms` are the finding's figure, wide and narrow, if it was drawn before."""
    drawn = replace(finding, quantities=tuple(map(thinned, finding.quantities)))
    if not forms or any(a is not b for a, b in zip(drawn.quantities, finding.quantities, strict=True)):
        forms = [figure(drawn, narrow) for narrow in (False, True)]
    tables = {"": finding.table} if finding.table.rows else {}
    tables |= {name: table for name, table in finding.more_tables.items() if table.rows}
    files = {name: file_name(f"{finding.id}.{name}" if name else finding.id) for name in tables}
    wide, narrow = map(bare, forms)
    return ClaimData(file_name(finding.id, ""), wide, finding_csv(finding), tables, files, changed(wide, narrow))


def changed(wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> dict[str, Any]:
    """A figure's form for a narrow screen without what the wide one holds: traces have the same numbers.

    >>> changed({"layout": {}, "data": [{"x": [1, 2], "xaxis": "x"}]}, {"layout": {}, "data": [{"x": [1, 2]}]})
    {'layout': {}, 'data': [{'xaxis': None}]}
    """
    narrow_traces, wide_traces = narrow["data"], wide["data"]
    if len(narrow_traces) != len(wide_traces):
        return {"layout": narrow["layout"], "data": narrow_traces, "whole": True}
    traces = [
        {key: a.get(key) for key in [*a, *(key for key in b if key not in a)] if a.get(key) != b.get(key)}
        for a, b in zip(narrow_traces, wide_traces, strict=True)
    ]
    return {"layout": narrow["layout"], "data": traces}


def bare(drawing: Any) -> dict[str, Any]:
    """A figure as a JSON record, with maps folded and without the template, which the page has once."""
    record: dict[str, Any] = json.loads(drawing.to_json(engine="json"))
    record["layout"].pop("template", None)
    for traces in (record["data"], *(frame["data"] for frame in record.get("frames", ()))):
        for trace in traces:
            if trace["type"] == "heatmap":
                _fold(trace)
    return record


def _fold(trace: dict[str, Any]) -> None:
    """Store the names of rows and columns once instead of in every cell's hover text, which is then a third as long."""
    if not any(any(row) for row in trace.get("text") or ()):
        trace.pop("text", None)
        trace.pop("texttemplate", None)
    cells = trace.get("hovertext") or []
    if not cells or not cells[0]:
        return
    rows = [row[0].partition(_BETWEEN)[0] for row in cells]
    columns = ["".join(cell.partition(_BETWEEN)[1:]).rpartition(_BREAK)[0] for cell in cells[0]]
    values = [[cell.rpartition(_BREAK)[2] for cell in row] for row in cells]
    again = [
        [r + c + _BREAK + s for c, s in zip(columns, line, strict=True)] for r, line in zip(rows, values, strict=True)
    ]
    if again == cells:
        trace["hovertext"] = {"rows": rows, "columns": columns, "cells": values}


_BETWEEN, _BREAK = " · ", "<br>"


def thinned(quantity: Quantity) -> Quantity:
    """The quantity at the points that a drawing can show; its meaning says that points were left out."""
    picks = [_picks(quantity, i) for i in range(len(quantity.axes))]
    if all(pick is None for pick in picks):
        return quantity
    indices = [
        np.arange(len(quantity.coords[a])) if p is None else p for a, p in zip(quantity.axes, picks, strict=True)
    ]
    places = np.ix_(*indices)

    def at(array: Floats | None) -> Any:
        return None if array is None else array[places]

    coords = {a: [quantity.coords[a][i] for i in pick] for a, pick in zip(quantity.axes, indices, strict=True)}
    drawn, all_of_it = (count(int(np.prod(shape))) for shape in ([len(k) for k in indices], quantity.values.shape))
    return replace(
        quantity,
        meaning=f"{quantity.meaning} (drawn at {drawn} of {all_of_it} points; the CSV has all)",
        coords=coords,
        values=at(quantity.values),
        low=at(quantity.low),
        high=at(quantity.high),
        controls={name: at(array) for name, array in quantity.controls.items()},
        theory={name: at(array) for name, array in quantity.theory.items()},
    )


def _picks(quantity: Quantity, axis: int) -> NDArray[np.int64] | None:
    """Indices along an axis that are drawn; None for all."""
    name, size = quantity.axes[axis], quantity.values.shape[axis]
    if len(quantity.axes) > 1:
        return None if size <= CELLS else np.linspace(0, size - 1, CELLS).round().astype(np.int64)
    if size <= POINTS:
        return None
    labels = quantity.coords[name]
    at = np.arange(size, dtype=float)
    if not any(isinstance(label, str) for label in labels):
        at = np.array(labels, dtype=float)
        if name in quantity.logs and at.min() > 0:
            at = np.log10(at)
    bucket = np.floor((at - at.min()) / (np.ptp(at) or 1.0) * (POINTS // 4 - 1)).astype(np.int64)
    picked: set[int] = set()
    for number in np.unique(bucket):
        inside = np.flatnonzero(bucket == number)
        picked |= {int(inside[0]), int(inside[-1])}
        finite = inside[np.isfinite(quantity.values[inside])]
        if finite.size:
            values = quantity.values[finite]
            picked |= {int(finite[values.argmin()]), int(finite[values.argmax()])}
    return np.array(sorted(picked), dtype=np.int64)


def blocks_html(parts: Sequence[ClaimData], common: Mapping[str, Any], limit: int = LIMIT, least: int = LEAST) -> str:
    """The parts as JSON in inert script elements `part-0`, `part-1` …, and `common` once, in at most `limit` bytes."""
    figures = [
        _json({"name": part.name, "figure": part.figure, "narrow": part.narrow, "csv": part.csv}) for part in parts
    ]
    room = max(least, limit - sum(len(text.encode()) for text in figures))
    sizes = [[_size(table) for table in part.tables.values()] for part in parts]
    level = fair_share([size for row in sizes for size in row], room)
    blocks = [_block("common", _json(common))]
    for index, (part, row, figure_json) in enumerate(zip(parts, sizes, figures, strict=True)):
        tables = []
        for (name, table), size in zip(part.tables.items(), row, strict=True):
            rows = len(table.rows) if size <= level else int(len(table.rows) * level / size)
            tables.append(_table_record(name, table, part.files.get(name, ""), rows))
        blocks.append(_block(f"part-{index}", f'{figure_json[:-1]},"tables":{_json(tables)}}}'))
    return "".join(blocks)


def part_record(part: ClaimData, rows: int = 2000) -> dict[str, Any]:
    """One claim's data for a page that asks for it alone; tables are cut to `rows`."""
    tables = [_table_record(name, table, part.files.get(name, ""), rows) for name, table in part.tables.items()]
    figures = {"figure": part.figure, "narrow": part.narrow}
    return {"name": part.name, **figures, "csv": part.csv, "tables": tables}


def fair_share(sizes: Sequence[float], room: float) -> float:
    """The size to which large tables are cut so that all fit into the room; small ones stay whole.

    >>> fair_share([1, 2, 30, 40], 23), fair_share([1, 2], 23)
    (10.0, inf)
    """
    left, waiting = float(room), sorted(sizes)
    if sum(waiting) <= left:
        return float("inf")
    while waiting and waiting[0] <= left / len(waiting):
        left -= waiting.pop(0)
    return left / len(waiting)


def _size(table: Table) -> float:
    """About how many bytes a table takes, estimated from some of its rows."""
    step = max(1, len(table.rows) // _SAMPLE)
    sample = table.rows[::step]
    record = _table_record("", Table(table.columns, sample), "", len(sample))
    return len(_json(record).encode()) * len(table.rows) / max(1, len(sample))


def _table_record(name: str, table: Table, file: str, limit: int) -> dict[str, Any]:
    rows = table.rows[:limit]
    columns = []
    for i, c in enumerate(table.columns):
        numeric = are_numbers([row[i] for row in rows])
        columns.append({"name": show_text(c.heading), "meaning": show_text(c.meaning), "number": numeric})
    shown = [[show_cell(cell, c.name) for cell, c in zip(row, table.columns, strict=True)] for row in rows]
    csv = table_csv(Table(table.columns, rows))
    return {"name": show_text(name), "file": file, "columns": columns, "rows": shown, "of": len(table.rows), "csv": csv}


def _json(record: Any) -> str:
    # A half character has no UTF-8 encoding, but JSON can escape it.
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace").decode()


def _block(name: str, text: str) -> str:
    return f'<script type="application/json" id="{name}">{inert(text)}</script>'
