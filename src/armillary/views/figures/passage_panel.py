"""Passages of text as a panel: what a model wrote, escaped, one passage per line."""

from collections.abc import Iterator
from textwrap import wrap

import plotly.graph_objects as go

from armillary.results.claim import Finding
from armillary.results.table import Table
from armillary.views.figures.marks import LIGHT
from armillary.views.figures.panels import Cell, Panel
from armillary.views.text.quoting import html_text, in_html, show_cell, show_text

COLUMN = "passage"
"""A table with a column of this name is drawn; its other columns say where the passage stands."""
_LINE, _WIDE, _NARROW = 20, 84, 46
_LETTERS = 2 * _NARROW


def passage_panels(finding: Finding, narrow: bool = False) -> list[Panel]:
    tables = [(name, table) for name, table in finding.more_tables.items() if COLUMN in table.names and table.rows]
    return [_panel(name, table, _NARROW if narrow else _WIDE) for name, table in tables]


def _panel(name: str, table: Table, width: int) -> Panel:
    place = list(table.names).index(COLUMN)
    lines = list(_lines(table, place, width))
    marks = [
        go.Scatter(
            x=[0] * len(lines),
            y=list(range(len(lines))),
            mode="text",
            text=[line for line, _ in lines],
            textposition="middle right",
            textfont={"size": 12, "color": LIGHT.ink},
            hovertext=[whole for _, whole in lines],
            hovertemplate="%{hovertext}<extra></extra>",
            cliponaxis=False,
        )
    ]
    xaxis = {"visible": False, "range": [0, 1], "fixedrange": True}
    yaxis = {"visible": False, "range": [len(lines) - 0.5, -0.5], "fixedrange": True}
    meaning = table.columns[place].meaning
    return Panel(name, meaning, _LINE * len(lines), [Cell(marks, xaxis, yaxis)])


def _lines(table: Table, place: int, width: int) -> Iterator[tuple[str, str]]:
    """Where a passage stands, then its beginning in lines of `width` letters; each with the whole passage."""
    for row in table.rows:
        where = []
        for name, cell in zip(table.names, row, strict=True):
            if name != COLUMN:
                where.append(show_cell(cell, name) if isinstance(cell, str) else f"{name} {show_cell(cell, name)}")
        text = str(row[place])
        yield f"<b>{in_html(', '.join(where))}</b>", html_text(text)
        for line in wrap(show_text(text, _LETTERS), width, drop_whitespace=False):
            yield in_html(line), html_text(text)
