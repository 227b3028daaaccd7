"""A quantity at several stations of every sublayer, drawn as one small path each: what rises, what falls?

All stations but the last belong to the norm that a sublayer reads, the last is what it writes: the two have colours of
their own.
"""

import re
from typing import Any

import numpy as np
import plotly.graph_objects as go

from armillary.results.numbers import interval, number
from armillary.results.quantity import Quantity
from armillary.views.figures.marks import LIGHT
from armillary.views.figures.panels import Cell, LineLabel, Panel
from armillary.views.figures.scales import Floats, Numbers
from armillary.views.figures.theme import CATEGORIES
from armillary.views.text.quoting import html_text, in_html, show_label, show_text

AXES = ("sublayer", "station")
# How far the stations of a sublayer reach to either side of its middle; sublayers are 1 apart.
REACH = 0.36
# Up to so many sublayers there is room for the name of every station.
NAMED = 18
# The write of the first kind of sublayer, of the second, …: colour and shape.
WRITES = ((LIGHT.second, "square"), (CATEGORIES[2], "diamond"))
_SUBLAYER = re.compile(r"(L\d+) (.+)")


def station_panel(quantity: Quantity) -> Panel:
    """Sublayers across, in the order of the computation; every second layer on a band."""
    names, stations = ([str(c) for c in quantity.coords[axis]] for axis in AXES)
    around = [a for a in (quantity.low, quantity.high) if a is not None]
    y = Numbers.of([quantity.values, *around, *quantity.controls.values()], "value" in quantity.logs)
    at = np.arange(len(names))[:, None] + np.linspace(-REACH, REACH, len(stations))
    layers, kinds = zip(*(_split(name) for name in names), strict=True)
    values, width = y.place(quantity.values), 3 if len(names) <= NAMED else 2
    traces = [_bands(layers, y)]
    for control in quantity.controls.values():
        traces.append(_path(at, y.place(control), LIGHT.control, {"dash": "dot", "width": 1.4}))
    if quantity.low is not None and quantity.high is not None:
        traces.append(_whiskers(at, y.place(quantity.low), y.place(quantity.high)))
    traces.append(_path(at[:, :-1], values[:, :-1], LIGHT.accent, {"width": width}))
    for index, kind in enumerate(dict.fromkeys(kinds)):
        rows = [i for i, other in enumerate(kinds) if other == kind]
        colour = WRITES[index % len(WRITES)][0]
        traces.append(_path(at[rows, -2:], values[rows, -2:], colour, {"width": width}))
    traces.append(_points(quantity, at, values, kinds))
    yaxis = {**y.layout(), "title": {"text": html_text(quantity.unit or quantity.name)}}
    cell = Cell(traces, _across(layers, kinds, stations, at), yaxis)
    return Panel(quantity.name, quantity.meaning, 330, [cell], 26, _labels(quantity, y, kinds))


def _split(name: str) -> tuple[str, str]:
    """Layer and kind: ('L3', 'attention')."""
    match = _SUBLAYER.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


def _bands(layers: tuple[str, ...], y: Numbers) -> Any:
    """A ground under every second layer."""
    low, high = (10**end if y.log else end for end in (y.low, y.high))
    outline: list[tuple[float | None, float | None]] = []
    for layer in list(dict.fromkeys(layers))[::2]:
        rows = [i for i, other in enumerate(layers) if other == layer]
        left, right = rows[0] - 0.5, rows[-1] + 0.5
        outline += [(left, low), (left, high), (right, high), (right, low), (None, None)]
    style = {"fill": "toself", "fillcolor": LIGHT.grid, "opacity": 0.35, "line": {"width": 0}, "hoverinfo": "skip"}
    return go.Scatter(x=[x for x, _ in outline], y=[v for _, v in outline], mode="lines", **style)


def _path(x: Floats, y: Floats, colour: str, line: dict[str, Any]) -> Any:
    """One line per sublayer, in one trace: empty points keep them apart."""
    gap = np.full((len(x), 1), np.nan)
    joined = {"x": np.hstack([x, gap]).ravel(), "y": np.hstack([y, gap]).ravel()}
    return go.Scatter(**joined, mode="lines", line={**line, "color": colour}, hoverinfo="skip")


def _whiskers(x: Floats, low: Floats, high: Floats) -> Any:
    gap = np.full(x.shape, np.nan)
    joined = {"x": np.repeat(x.ravel(), 3), "y": np.stack([low, high, gap], -1).ravel()}
    return go.Scatter(**joined, mode="lines", line={"width": 1, "color": LIGHT.soft}, hoverinfo="skip")


def _points(quantity: Quantity, at: Floats, values: Floats, kinds: tuple[str, ...]) -> Any:
    """The first station is a ring, the last has the shape and colour of its kind."""
    size = 8 if len(kinds) <= NAMED else 6 if len(kinds) <= 3 * NAMED else 4
    order = list(dict.fromkeys(kinds))
    colour = np.full(at.shape, LIGHT.accent, dtype=object)
    symbol = np.full(at.shape, "circle", dtype=object)
    for row, kind in enumerate(kinds):
        colour[row, -1], symbol[row, -1] = WRITES[order.index(kind) % len(WRITES)]
    fill = colour.copy()
    fill[:, 0] = LIGHT.ground
    marker = {"symbol": symbol.ravel(), "size": size, "color": fill.ravel(), "opacity": 1.0}
    marker["line"] = {"width": 1.8, "color": colour.ravel()}
    style = {"hovertemplate": "%{hovertext}<extra></extra>", "name": html_text(quantity.name), "marker": marker}
    return go.Scatter(x=at.ravel(), y=values.ravel(), mode="markers", hovertext=_hover(quantity), **style)


def _hover(quantity: Quantity) -> list[str]:
    names, stations = ([in_html(show_label(str(c), axis, 120)) for c in quantity.coords[axis]] for axis in AXES)
    nothing = np.full(quantity.values.shape, np.nan)
    low, high = (nothing if end is None else end for end in (quantity.low, quantity.high))
    lines = []
    for i, name in enumerate(names):
        for j, station in enumerate(stations):
            ends = float(quantity.values[i, j]), float(low[i, j]), float(high[i, j])
            others = [f"<br>{html_text(n)} {number(float(v[i, j]))}" for n, v in quantity.controls.items()]
            lines.append(f"<b>{name}, {station}</b><br>{interval(*ends)}{''.join(others)}")
    return lines


def _across(layers: tuple[str, ...], kinds: tuple[str, ...], stations: list[str], at: Floats) -> dict[str, Any]:
    """Every station by its first letter, kinds and layers below; layers alone where there is no room."""
    # On a narrow page a mark is wider than the gap between it and the next sublayer.
    axis: dict[str, Any] = {"range": [-0.7, len(layers) - 0.3], "tickangle": 0, "ticks": "", "title": {"text": ""}}
    spans = {layer: [i for i, other in enumerate(layers) if other == layer] for layer in dict.fromkeys(layers)}
    middle = {in_html(layer): float(np.mean(rows)) for layer, rows in spans.items()}
    if len(layers) > NAMED:
        step = -(-len(middle) // 16)
        return {**axis, "tickvals": list(middle.values())[::step], "ticktext": list(middle)[::step]}
    short = {"attention": "attn", "feed-forward": "ffn"}
    places = [*at.ravel().tolist(), *range(len(layers)), *middle.values()]
    texts = [in_html(station[:1]) for _ in layers for station in stations]
    texts += [f"<br>{in_html(short.get(kind, kind))}" for kind in kinds]
    texts += [f"<br><br><b>{layer}</b>" for layer in middle]
    return {**axis, "tickvals": places, "ticktext": texts}


def _labels(quantity: Quantity, y: Numbers, kinds: tuple[str, ...]) -> list[LineLabel]:
    """Direct labels, at the heights of the last paths."""
    names = [show_text(str(c)) for c in quantity.coords[AXES[1]]]
    entries = [(f"norm, {' → '.join(names[:-1])}: should rise", LIGHT.accent, quantity.values[-1, -2])]
    for index, kind in enumerate(dict.fromkeys(kinds)):
        last = max(i for i, other in enumerate(kinds) if other == kind)
        text = f"{show_text(kind)}, {' → '.join(names[-2:])}: should fall"
        entries.append((text, WRITES[index % len(WRITES)][0], quantity.values[last, -1]))
    entries += [(f"┄ {show_text(name)}", LIGHT.control, v[-1, -1]) for name, v in quantity.controls.items()]
    ends = [y.fraction(float(y.place(np.array(v)))) if np.isfinite(v) else 0.5 for _, _, v in entries]
    return [LineLabel(in_html(text), colour, end) for (text, colour, _), end in zip(entries, ends, strict=True)]
