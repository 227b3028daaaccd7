"""Panels for a narrow screen: maps stacked, labels below the lines, colour bars below the maps."""

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from armillary.views.figures.marks import LIGHT
from armillary.views.figures.panels import Cell, Panel

TICKS = 20
"""Most ticks of names side by side."""
ROOM = 38
"""Characters that fit side by side below an axis."""
TITLE, TITLE_LINE = 46, 17
"""Characters of a panel's title that fit on a line, and the pixels of a line."""


def stacked(panels: Sequence[Panel]) -> list[Panel]:
    """One pair of axes per panel; the last map of a row has the row's colour bar and the first its meaning."""
    single = []
    for panel in panels:
        for at, cell in enumerate(panel.cells):
            cell, depth = _thinned(cell, panel.depth)
            last = at == len(panel.cells) - 1
            bar = None if panel.coloraxis is None else {**panel.coloraxis, "showscale": last}
            yaxis = {**cell.yaxis, "showticklabels": True}
            single.append(
                replace(
                    panel,
                    cells=[Cell(cell.traces, cell.xaxis, yaxis, cell.title)],
                    title=panel.title if at == 0 else "",
                    meaning=panel.meaning if at == 0 else "",
                    depth=depth,
                    coloraxis=bar,
                    labels=panel.labels if last else [],
                )
            )
    return single


def _thinned(cell: Cell, depth: int) -> tuple[Cell, int]:
    """Names below an axis: fewer of them, and tilted where they would touch; the depth that they need."""
    texts = cell.xaxis.get("ticktext")
    if not texts or "tickangle" not in cell.xaxis:
        return cell, depth
    values, texts = _outermost(list(cell.xaxis["tickvals"]), list(texts))
    step = max(1, -(-len(texts) // TICKS))
    values, texts = values[::step], texts[::step]
    tilted = sum(len(text) + 2 for text in texts) > ROOM
    xaxis = {**cell.xaxis, "tickvals": values, "ticktext": texts, "tickangle": -60 if tilted else 0}
    return replace(cell, xaxis=xaxis), round(5.4 * max(map(len, texts))) if tilted else 0


def _outermost(values: list[float], texts: list[str]) -> tuple[list[float], list[str]]:
    """Of labels on several lines (station, sublayer, layer) those of the lowest line: there is no room for others."""
    deepest = max(text.count("<br>") for text in texts)
    if not deepest:
        return values, texts
    deep = [i for i, text in enumerate(texts) if text.count("<br>") == deepest]
    return [values[i] for i in deep], [re.sub("<[^>]*>", "", texts[i]) for i in deep]


def bar_below(bar: dict[str, Any], bottom: float, pixels: float) -> dict[str, Any]:
    """A colour bar below its map instead of beside it; `bottom` is a share of the page, `pixels` its height."""
    title = {**bar.get("title", {}), "side": "bottom"}
    title["text"] = title.get("text", "").replace("<br>", " ")
    place = {"orientation": "h", "x": 0, "xanchor": "left", "len": 1, "yanchor": "top", "thickness": 9}
    rest = {name: value for name, value in bar.items() if name not in ("x", "xanchor", "y", "yanchor", "len")}
    return {**rest, **place, "title": title, "y": max(0.0, bottom - pixels), "outlinewidth": 0}


def panel_title(canvas: go.Figure, axis: str, title: str, pixels: float, left: int | None = None) -> None:
    """A title above the panel of axis '', '2' …; the panel, in a page of `pixels`, gives it the room of its lines.

    On a narrow screen titles start at the left edge of the figure, whose margin is `left`.
    """
    lines = wrap(title, 90 if left is None else TITLE)
    low, high = canvas.layout[f"yaxis{axis}"].domain
    high -= (9 + TITLE_LINE * len(lines)) / pixels
    canvas.layout[f"yaxis{axis}"].domain = [low, high]
    canvas.add_annotation(
        text="<br>".join(lines), x=0, y=high, xref=f"x{axis} domain", yref="paper", yshift=4, yanchor="bottom",
        xshift=0 if left is None else 6 - left, xanchor="left", align="left", showarrow=False,
        font={"size": 13, "color": LIGHT.ink},
    )  # fmt: skip
