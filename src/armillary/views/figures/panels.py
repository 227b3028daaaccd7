"""One quantity as a panel: with one axis a line with its band, with two a heat map, with three a row of heat maps.

A panel is a list of traces, two axes and labels; `figure` stacks panels. Heights are fixed in pixels, so that labels
can be kept apart; widths follow the window.
"""

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from armillary.results.numbers import interval, number
from armillary.results.quantity import Quantity
from armillary.views.figures.marks import LIGHT
from armillary.views.figures.scales import Floats, Labels, Numbers, is_ordered, label_axis, site_kinds
from armillary.views.figures.theme import DIVERGING, SEQUENTIAL
from armillary.views.text.quoting import html_text, in_html, show_text

LINE_HEIGHT = 15
GAPPED = 60
"""Most rows or columns of a map that have gaps between them."""
_LABEL_WIDTH = 20
# Letters of a colour bar's title per line.
_BAR_TITLE = 10
# Several controls differ by the shape of their marks; each label begins with it.
_SHAPES = (("diamond-open", "◇ "), ("square-open", "□ "), ("triangle-up-open", "△ "), ("circle-open", "○ "))
# More marks than this would hide their line; a long one has a mark at every eighth of it.
_MARKED, _FEW_MARKS = 24, 8
# Units that say nothing beside an axis.
_WORDS = {
    "°": "degrees",
    "‖x‖": "length ‖x‖",
    "√d": "multiples of √d",
    "%": "per cent",
    "cv": "coefficient of variation",
}


@dataclass
class LineLabel:
    """Text at the right edge, at the height (0 to 1) where its line ends."""

    text: str
    color: str
    at: float

    @property
    def lines(self) -> list[str]:
        return wrap(self.text, _LABEL_WIDTH) or [""]


@dataclass
class Cell:
    """One pair of axes with its traces; a heat map has one for the model and one per control."""

    traces: list[Any]
    xaxis: dict[str, Any]
    yaxis: dict[str, Any]
    title: str = ""


@dataclass
class Panel:
    title: str
    meaning: str
    height: int
    cells: list[Cell]
    depth: int = 0
    """Pixels that tilted tick labels need below."""
    labels: list[LineLabel] = field(default_factory=list)
    coloraxis: dict[str, Any] | None = None


def panel(quantity: Quantity) -> Panel:
    if len(quantity.axes) == 1:
        return _line_panel(quantity)
    if quantity.axes == ("sublayer", "station"):
        # Stations build on this module's panels.
        from armillary.views.figures.stations import station_panel

        return station_panel(quantity)
    if len(quantity.axes) in (2, 3):
        return _heat_panel(quantity)
    raise ValueError(f"{quantity.name} has the axes {quantity.axes}; a figure draws one axis, two or three.")


def spread(labels: list[LineLabel], height: int) -> list[float]:
    """Heights (0 to 1) for the labels, in their order, moved as little as possible so that none overlap."""
    order = sorted(range(len(labels)), key=lambda i: labels[i].at)
    sizes = [len(labels[i].lines) * LINE_HEIGHT / height for i in order]
    offsets = np.cumsum([0.0, *((a + b) / 2 for a, b in pairwise(sizes))])
    # Least squares with each label above the last: labels that would touch are pooled around their mean.
    pools: list[tuple[float, int]] = []
    for i, offset in zip(order, offsets, strict=False):
        pools.append((labels[i].at - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (b, m), (a, n) = pools.pop(), pools.pop()
            pools.append(((a * n + b * m) / (n + m), n + m))
    places = [middle for middle, size in pools for _ in range(size)]
    heights = [0.0] * len(labels)
    for i, place, offset in zip(order, places, offsets, strict=False):
        heights[i] = float(place + offset)
    return heights


def _line_panel(quantity: Quantity) -> Panel:
    axis = quantity.axes[0]
    around = [a for a in (quantity.low, quantity.high) if a is not None]
    others = [*quantity.controls.values(), *quantity.theory.values()]
    y = Numbers.of([quantity.values, *around, *others], "value" in quantity.logs)
    x, xaxis, depth = _across(quantity, axis)
    kinds = site_kinds([str(c) for c in quantity.coords[axis]]) or {quantity.label: list(range(len(x)))}
    hover = _hover(quantity, axis)
    traces, labels = [], []
    for label, values, symbol in _beside(quantity):
        traces += _others(x, values, y, label, symbol, kinds, symbol == "theory" or is_ordered(quantity, axis))
        labels.append(label)
    colours = [(LIGHT.accent, LIGHT.accent_band), (LIGHT.second, LIGHT.second_band)]
    for kind, places in kinds.items():
        colour, band = colours.pop(0) if len(places) > 1 and colours else (LIGHT.accent, LIGHT.accent_band)
        traces += _model(quantity, x, y, np.array(places, dtype=int), colour, band, hover)
        if len(places) > 1 and (labels or len(kinds) > 1):
            labels.append(LineLabel(kind, colour, _end(x[places], y, quantity.values[places])))
    yaxis = {**y.layout(), "title": {"text": html_text(_axis_title(quantity))}}
    return Panel(quantity.name, quantity.meaning, 250, [Cell(traces, xaxis, yaxis)], depth, labels)


def _axis_title(quantity: Quantity) -> str:
    """What is drawn, in words: 'angle to the next word, degrees' where the unit alone is a sign."""
    word = _WORDS.get(quantity.unit)
    if word is None:
        return quantity.unit or quantity.name
    title = f"{quantity.name}, {word}"
    return title if len(title) <= 42 else word


def _across(quantity: Quantity, axis: str) -> tuple[Floats, dict[str, Any], int]:
    coords = quantity.coords[axis]
    title = {"title": {"text": html_text(axis)}}
    if any(isinstance(label, str) for label in coords):
        names = label_axis([str(label) for label in coords], axis)
        return np.arange(len(coords), dtype=float), {**names.layout(), **title}, names.depth
    places = np.array(coords, dtype=float)
    scale = Numbers.of([places], axis in quantity.logs, 0.03)
    few = not scale.log and 0 < len(places) <= 13
    whole = {"dtick": 1} if few and np.all(places % 1 == 0) and np.ptp(places) <= 12 else {}
    return scale.place(places), {**scale.layout(), **whole, **title}, 0


def _beside(quantity: Quantity) -> list[tuple[LineLabel, Floats, str]]:
    """Theories as dotted lines, controls as grey dashes with a mark of their own where there are several."""
    lines = [(LineLabel(show_text(name), LIGHT.ink, 0), v, "theory") for name, v in quantity.theory.items()]
    for index, (name, values) in enumerate(quantity.controls.items()):
        symbol, sample = _SHAPES[index % len(_SHAPES)] if len(quantity.controls) > 1 else ("", "")
        lines.append((LineLabel(sample + show_text(name), LIGHT.control, 0), values, symbol))
    return lines


def _others(
    x: Floats, values: Floats, y: Numbers, label: LineLabel, symbol: str, kinds: dict[str, list[int]], joined: bool
) -> list[Any]:
    """A control's or a theory's lines, one per kind of site, with a single label."""
    placed = y.place(values)
    everywhere = list(range(len(x)))
    runs = [places for places in kinds.values() if len(places) > 1] or [everywhere]
    if len(x) and np.ptp(values) == 0:
        runs = [everywhere]
    label.at = _end(x[runs[-1]], y, values[runs[-1]])
    hover = [f"{in_html(label.text)}<br>{number(float(value))}" for value in values]
    is_theory = symbol == "theory"
    look = {"dash": "dot" if is_theory else "dash", "width": 1.3 if is_theory else 1.6, "color": label.color}
    line: dict[str, Any] = {"mode": "lines", "line": look}
    sizes = [7] * len(x)
    if symbol and not is_theory:
        step = 1 if len(x) <= _MARKED else -(-len(x) // _FEW_MARKS)
        sizes = [7 if place % step == step // 2 or step == 1 else 0 for place in range(len(x))]
        line |= {"mode": "lines+markers", "marker": {"symbol": symbol, "size": 7, "color": label.color}}
    tick: dict[str, Any] = {"symbol": "line-ew", "size": 10, "line": {"width": 1.6, "color": label.color}}
    # Single sites, words, and a theory about two points are drawn as short strokes instead of a line.
    strokes = sorted(set(everywhere) - {place for run in runs for place in run})
    if not joined or np.isfinite(values).sum() <= 2:
        runs, strokes, tick = [], everywhere, {**tick, "size": 18}
        if symbol and not is_theory:
            tick = {"symbol": symbol, "size": 9, "color": label.color}
    styles = [(run, line) for run in runs] + [(strokes, {"mode": "markers", "marker": tick})] * bool(strokes)
    return [
        go.Scatter(
            x=x[places],
            y=placed[places],
            hovertext=[hover[i] for i in places],
            hovertemplate="%{hovertext}<extra></extra>",
            **_sized(style, [sizes[i] for i in places]),
        )
        for places, style in styles
    ]


def _sized(style: dict[str, Any], sizes: list[int]) -> dict[str, Any]:
    """A line's marks at some of its points only."""
    if style["mode"] != "lines+markers" or all(sizes):
        return style
    return {**style, "marker": {**style["marker"], "size": sizes}}


def _model(
    quantity: Quantity, x: Floats, y: Numbers, places: Any, colour: str, band: str, hover: list[str]
) -> list[Any]:
    values = quantity.values[places]
    zeros = y.on_floor(values)
    joined = is_ordered(quantity, quantity.axes[0]) and len(places) > 1
    size = 0 if len(places) > 120 and joined else 5 if len(x) > 20 else 8
    traces: list[Any] = []
    if quantity.low is not None and quantity.high is not None:
        low, high = (np.where(zeros, np.nan, y.place(end[places])) for end in (quantity.low, quantity.high))
        traces.append(_band(x[places], low, high, band) if joined else _whiskers(x[places], low, high, colour))
    style = {"hovertext": [hover[i] for i in places], "hovertemplate": "%{hovertext}<extra></extra>"}
    style["name"] = html_text(quantity.name)
    mode = "lines+markers" if joined and size else "lines" if joined else "markers"
    line = {"color": colour, "width": 1.5 if size else 2}
    shown = np.where(zeros, np.nan, values)
    traces.append(
        go.Scatter(x=x[places], y=shown, mode=mode, line=line, marker={"color": colour, "size": size}, **style)
    )
    if zeros.any():
        # On a log scale a zero is infinitely far down, so no line leads to it.
        marker = {"symbol": "triangle-down-open", "size": 8, "color": colour}
        floor = np.where(zeros, y.place(values), np.nan)
        traces.append(go.Scatter(x=x[places], y=floor, mode="markers", marker=marker, **style))
    return traces


def _band(x: Floats, low: Floats, high: Floats, colour: str) -> Any:
    """The interval as one closed outline per unbroken run, because plotly's own fill bridges gaps."""
    outline: list[tuple[float | None, float | None]] = []
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff([0, *known, 0]))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        run = slice(start, stop)
        outline += list(zip(x[run], high[run], strict=True))
        outline += [*zip(x[run][::-1], low[run][::-1], strict=True), (None, None)]
    style = {"fill": "toself", "fillcolor": colour, "line": {"width": 1, "color": colour}, "mode": "lines"}
    return go.Scatter(x=[p for p, _ in outline], y=[p for _, p in outline], hoverinfo="skip", **style)


def _whiskers(x: Floats, low: Floats, high: Floats, colour: str) -> Any:
    line = {"x": np.repeat(x, 3), "y": np.stack([low, high, np.full_like(low, np.nan)], 1).ravel()}
    return go.Scatter(**line, mode="lines", line={"width": 1.5, "color": colour}, hoverinfo="skip")


def _hover(quantity: Quantity, axis: str) -> list[str]:
    coords = quantity.coords[axis]
    names = label_axis([c if isinstance(c, str) else number(c) for c in coords], axis).full
    if not any(isinstance(label, str) for label in coords):
        names = tuple(f"{html_text(axis)} {name}" for name in names)
    unit = f" {html_text(quantity.unit)}" if quantity.unit else ""
    lines = []
    for i, name in enumerate(names):
        low = np.nan if quantity.low is None else quantity.low[i]
        high = np.nan if quantity.high is None else quantity.high[i]
        parts = [f"<b>{name}</b>", interval(float(quantity.values[i]), float(low), float(high)) + unit]
        for other, values in {**quantity.controls, **quantity.theory}.items():
            if np.isfinite(values[i]):
                parts.append(f"{html_text(other)} {number(float(values[i]))}")
        lines.append("<br>".join(parts))
    return lines


def _end(x: Floats, y: Numbers, values: Floats) -> float:
    """Where a line ends on the right, for its label; a table may begin with the largest place."""
    finite = np.isfinite(values)
    return y.fraction(float(y.place(values)[finite][np.argmax(x[finite])])) if finite.any() else 0.5


def _heat_panel(quantity: Quantity) -> Panel:
    *apart, down, across = quantity.axes
    if apart:
        grids = {
            show_text(str(name)): grid for name, grid in zip(quantity.coords[apart[0]], quantity.values, strict=True)
        }
    else:
        grids = {quantity.label: quantity.values}
        grids |= {show_text(name): grid for name, grid in {**quantity.controls, **quantity.theory}.items()}
    colour = Numbers.of(list(grids.values()), "value" in quantity.logs, 0.0)
    ends = [colour.low, colour.high]
    diverging = re.search(r"difference|minus|Δ|ρ|correlation", quantity.name) is not None and not colour.log
    if diverging:
        ends = [-max(map(abs, ends)), max(map(abs, ends))]
    rows, columns = (_names(quantity, axis) for axis in (down, across))
    # Several maps side by side leave less room for ticks, and long names need more.
    room = 36 if max(map(len, columns.ticktext), default=0) < 4 else 18
    step = max(1, -(-len(grids) * len(columns.tickvals) // room)) if len(grids) > 1 else 1
    columns = replace(columns, tickvals=columns.tickvals[::step], ticktext=columns.ticktext[::step])
    cells = []
    for index, (name, grid) in enumerate(grids.items()):
        xaxis = {**columns.layout(), "title": {"text": html_text(across)}, "showline": False}
        yaxis = {**rows.layout(), "showgrid": False, "showline": False, "tickangle": 0}
        yaxis |= {"range": [len(rows.full) - 0.5, -0.5], "showticklabels": index == 0}
        yaxis |= {"title": {"text": html_text(down) if index == 0 else ""}}
        cells.append(Cell([_heat(quantity, grid, colour, rows, columns)], xaxis, yaxis, name if len(grids) > 1 else ""))
    # The bar stands in the margin, where a long unit needs lines.
    unit = "<br>".join(map(html_text, wrap(quantity.unit or "value", _BAR_TITLE)))
    bar = {"title": {"text": unit, "font": {"size": 12}}, "thickness": 12}
    if colour.log:
        bar |= {"tickvals": [float(np.log10(v)) for v in colour.ticks()], "ticktext": list(colour.ticks().values())}
    coloraxis = {
        "colorscale": DIVERGING if diverging else SEQUENTIAL,
        "cmin": ends[0],
        "cmax": ends[1],
        "colorbar": bar,
    }
    height = int(min(560, max(150, 15 * len(rows.full))))
    return Panel(quantity.name, quantity.meaning, height, cells, columns.depth, coloraxis=coloraxis)


def _names(quantity: Quantity, axis: str) -> Labels:
    return label_axis([c if isinstance(c, str) else number(c) for c in quantity.coords[axis]], axis)


def _heat(quantity: Quantity, grid: Floats, colour: Numbers, rows: Labels, columns: Labels) -> Any:
    down, across = (html_text(axis) for axis in quantity.axes[-2:])
    hover = [
        [f"<b>{down} {r} · {across} {c}</b><br>{number(float(grid[i, j]))}" for j, c in enumerate(columns.full)]
        for i, r in enumerate(rows.full)
    ]
    shown = colour.place(grid)
    # Between cells of a few pixels, gaps would hide the colours.
    across_gap, down_gap = (int(len(names.full) <= GAPPED) for names in (columns, rows))
    return go.Heatmap(
        z=np.log10(shown) if colour.log else shown,
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        text=np.where(colour.on_floor(grid), "0", ""),
        texttemplate="%{text}",
        xgap=across_gap,
        ygap=down_gap,
    )
