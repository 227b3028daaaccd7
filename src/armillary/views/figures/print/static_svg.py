"""A figure of ours as static SVG, without a browser: for notebooks in the reader's theme, and for papers.

Only what our own figures contain is drawn: lines, marks, filled outlines, maps, axes and notes.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from armillary.views.figures.marks import LIGHT

WIDTH = 860
# Colours that the page's style knows by name follow the reader's theme.
_NAMED = {getattr(LIGHT, name): f"var(--{name})" for name in ("ground", "ink", "soft", "grid", "accent", "control")}
_DASHES = {"dash": "7 4", "dot": "2 3", "longdash": "11 4", "dashdot": "7 3 2 3"}
_TAG, _RAISED = re.compile(r"</?[a-z][^>]*>"), re.compile("<sup>(.*?)</sup>")
_SMALL = str.maketrans("0123456789−-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")


def figure_svg(figure: go.Figure, label: str) -> str:
    """The figure without its title, which stands above it as text; `label` is escaped already."""
    parts, height = elements(figure, WIDTH)
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    style = "max-width:100%;height:auto"
    return f"<svg {size} style='{style}' role='img' aria-label='{label}' font-size='12'>{''.join(parts)}</svg>"


def elements(figure: go.Figure, width: float) -> tuple[list[str], float]:
    """The parts of the figure without its title, and the height that they need."""
    page = _Page(figure, width)
    return [*page.axes(), *page.traces(), *page.notes(), *page.bars()], page.height


class _Scale(NamedTuple):
    """An axis: the values at its ends, where on the page it begins and ends, and whether it is logarithmic."""

    low: float
    high: float
    first: float
    last: float
    log: bool


class _Page:
    """A figure's layout in pixels."""

    def __init__(self, figure: go.Figure, width: float) -> None:
        self.figure, self.layout, self.width = figure, figure.layout, width
        margin = self.layout.margin
        self.left, self.right, self.top = margin.l or 76, margin.r or 90, 12
        self.height = self.layout.height - (margin.t or 0) + self.top
        self.inner = self.height - self.top - (margin.b or 6)
        self._scales: dict[str, _Scale] = {}

    def across(self, share: float) -> float:
        return self.left + share * (self.width - self.left - self.right)

    def down(self, share: float) -> float:
        return self.top + (1 - share) * self.inner

    def place(self, axis: str, value: Any) -> float | None:
        """Where a value of an axis such as 'x2' is, in pixels; None for what has no place."""
        low, high, first, last, log = self._scale(axis)
        if value is None or not math.isfinite(float(value)) or (log and float(value) <= 0):
            return None
        number = math.log10(float(value)) if log else float(value)
        share = (number - low) / (high - low or 1.0)
        at = first + share * (last - first)
        return self.across(at) if axis[0] == "x" else self.down(at)

    def _scale(self, axis: str) -> "_Scale":
        """Read once per axis: every look into a layout of plotly's costs as much as hundreds of points."""
        if axis not in self._scales:
            record = self.layout[f"{axis[0]}axis{axis[1:]}"]
            first, last = record.domain or (0, 1)
            self._scales[axis] = _Scale(*self.ends(axis), first, last, record.type == "log")
        return self._scales[axis]

    def ends(self, axis: str) -> tuple[float, float]:
        record = self.layout[f"{axis[0]}axis{axis[1:]}"]
        if record.range is not None:
            return float(record.range[0]), float(record.range[1])
        names = [t for t in self.figure.data if (t[f"{axis[0]}axis"] or axis[0]) == axis]
        values = np.concatenate([np.asarray(t[axis[0]], dtype=float).ravel() for t in names]) if names else np.zeros(1)
        values = values[np.isfinite(values)]
        return (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)

    def axes(self) -> Iterator[str]:
        # Plotly's order differs from run to run.
        for key in sorted(self.layout):
            if not re.fullmatch(r"[xy]axis\d*", key) or self.layout[key].visible is False:
                continue
            yield from self._axis(key[0] + key[5:], self.layout[key])

    def _axis(self, axis: str, record: Any) -> Iterator[str]:
        other = record.anchor or ("y" if axis[0] == "x" else "x")
        across = self.layout[f"{other[0]}axis{other[1:]}"].domain or (0, 1)
        first, last = record.domain or (0, 1)
        shown = record.showticklabels is not False
        for value, text in self._ticks(axis, record):
            at = self.place(axis, value)
            if at is None:
                continue
            if axis[0] == "x":
                yield from _below(text, at, self.down(across[0]) + 16, record.tickangle or 0) if shown else ()
            else:
                if record.showgrid is not False:
                    line = f"M{self.across(across[0]):.1f} {at:.1f}H{self.across(across[1]):.1f}"
                    yield f"<path d='{line}' stroke='var(--grid)' fill='none'/>"
                yield _text(text, self.across(across[0]) - 6, at + 4, LIGHT.soft, "end") if shown else ""
        title = record.title.text if record.title else None
        if title and axis[0] == "x":
            # Below the tick labels, tilted ones included.
            longest = max((len(text) for _, text in self._ticks(axis, record)), default=0)
            below = 34 + 6.2 * longest * math.sin(math.radians(abs(record.tickangle or 0)))
            yield _text(title, self.across((first + last) / 2), self.down(across[0]) + below, LIGHT.soft, "middle")
        elif title:
            # Beside the tick labels, however long they are.
            x, y = self.across(across[0]) - (self.left - 16), self.down((first + last) / 2)
            yield f"<g transform='rotate(-90 {x:.1f} {y:.1f})'>{_text(title, x, y, LIGHT.soft, 'middle')}</g>"

    def _ticks(self, axis: str, record: Any) -> list[tuple[float, str]]:
        if record.tickvals is not None:
            texts = record.ticktext if record.ticktext is not None else [f"{v:g}" for v in record.tickvals]
            return list(zip(record.tickvals, texts, strict=False))
        low, high = sorted(self.ends(axis))
        step = 10 ** math.floor(math.log10(max(high - low, 1e-12) / 4))
        step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= 6)
        step = float(record.dtick) if isinstance(record.dtick, int | float) else step
        first = math.ceil(low / step)
        return [(i * step, f"{i * step:.6g}".replace("-", "−")) for i in range(first, math.floor(high / step) + 1)]

    def traces(self) -> Iterator[str]:
        for trace in self.figure.data:
            yield from self._map(trace) if trace.type == "heatmap" else self._scatter(trace)

    def _scatter(self, trace: Any) -> Iterator[str]:
        x, y = trace.xaxis or "x", trace.yaxis or "y"
        spots = [(self.place(x, a), self.place(y, b)) for a, b in zip(trace.x, trace.y, strict=True)]
        mode, look = trace.mode or "lines", trace.line
        if "lines" in mode:
            path = "".join(_pieces(spots))
            dash = f" stroke-dasharray='{_DASHES[look.dash]}'" if look.dash in _DASHES else ""
            fill = _colour(trace.fillcolor) if trace.fill else "none"
            stroke = f"stroke='{_colour(look.color)}' stroke-width='{look.width or 1.5}'{dash}"
            stroke = "stroke='none'" if look.width == 0 else stroke
            faint = "" if trace.opacity is None or trace.opacity == 1 else f" opacity='{trace.opacity:g}'"
            yield f"<path d='{path}' fill='{fill}' {stroke}{faint}/>"
        if "markers" in mode:
            yield from _marks(trace.marker, spots)
        if "text" in mode:
            texts = _each(trace.text, len(spots))
            for (a, b), text in zip(spots, texts, strict=True):
                if a is not None and b is not None:
                    yield _text(str(text or ""), a, b + 4, trace.textfont.color or LIGHT.ink, "start")

    def _map(self, trace: Any) -> Iterator[str]:
        x, y, scale = trace.xaxis or "x", trace.yaxis or "y", self.layout[trace.coloraxis or "coloraxis"]
        grid = np.asarray(trace.z, dtype=float)
        span = (scale.cmax - scale.cmin) or 1.0
        for (row, column), value in np.ndenumerate(grid):
            ends = [self.place(x, column - 0.5), self.place(x, column + 0.5)]
            sides = [self.place(y, row - 0.5), self.place(y, row + 0.5)]
            if not math.isfinite(value) or None in ends or None in sides:
                continue
            (a, b), (c, d) = (sorted(float(end or 0) for end in pair) for pair in (ends, sides))
            share = min(1.0, max(0.0, (value - scale.cmin) / span))
            colour = sample_colorscale(_scale(scale), [share])[0]
            box = f"x='{a + 0.5:.1f}' y='{c + 0.5:.1f}' width='{b - a - 1:.1f}' height='{d - c - 1:.1f}'"
            yield f"<rect {box} fill='{colour}'/>"
            # On a log scale zeros are marked.
            if trace.text is not None and trace.text[row][column]:
                ink = LIGHT.ground if share < 0.5 else LIGHT.ink
                yield _text(str(trace.text[row][column]), (a + b) / 2, (c + d) / 2 + 4, ink, "middle", 11)

    def bars(self) -> Iterator[str]:
        for key in sorted(self.layout):
            if not re.fullmatch(r"coloraxis\d*", key) or self.layout[key].cmin is None:
                continue
            scale, bar = self.layout[key], self.layout[key].colorbar
            if scale.showscale is False:
                continue
            if bar.orientation == "h":
                yield from self._flat_bar(scale, bar)
                continue
            x, foot, high = self.width - self.right + 16, self.down(bar.y or 0), (bar.len or 1) * self.inner
            high = min(high, 110)
            for i in range(24):
                colour = sample_colorscale(_scale(scale), [i / 23])[0]
                box = f"x='{x}' y='{foot - high * (i + 1) / 24:.1f}' width='11' height='{high / 24 + 0.5:.1f}'"
                yield f"<rect {box} fill='{colour}'/>"
            if bar.title and bar.title.text and bar.title.text != "value":
                for i, line in enumerate(reversed(bar.title.text.split("<br>"))):
                    yield _text(line, x, foot - high - 12 - 13 * i, LIGHT.soft, "start", 11)
            texts = list(zip(bar.tickvals, bar.ticktext, strict=True)) if bar.tickvals else []
            for value in (scale.cmin, scale.cmax):
                at = foot - high * (value - scale.cmin) / ((scale.cmax - scale.cmin) or 1.0)
                label = f"{10**value:.3g}" if texts else f"{value:.3g}"
                yield _text(label.replace("-", "−"), x + 15, at + 4, LIGHT.soft, "start")

    def _flat_bar(self, scale: Any, bar: Any) -> Iterator[str]:
        """A colour bar below its map, with its ends and its title."""
        left, top, wide = self.across(0), self.down(bar.y or 0), (self.across(1) - self.across(0)) / 24
        for i in range(24):
            colour = sample_colorscale(_scale(scale), [i / 23])[0]
            box = f"x='{left + wide * i:.1f}' y='{top:.1f}' width='{wide + 0.5:.1f}' height='9'"
            yield f"<rect {box} fill='{colour}'/>"
        for value, x, anchor in ((scale.cmin, left, "start"), (scale.cmax, left + 24 * wide, "end")):
            label = f"{10**value:.3g}" if bar.tickvals else f"{value:.3g}"
            yield _text(label.replace("-", "−"), x, top + 22, LIGHT.soft, anchor)
        if bar.title and bar.title.text:
            yield _text(bar.title.text, left + 12 * wide, top + 22, LIGHT.soft, "middle")

    def notes(self) -> Iterator[str]:
        for note in self.layout.annotations:
            x, y = self._corner(note)
            lines = note.text.split("<br>")
            size = note.font.size or 12
            first = {"bottom": -(len(lines) - 1) * 15.0, "top": 12.0}.get(note.yanchor, 4 - (len(lines) - 1) * 7.5)
            anchor = {"right": "end", "center": "middle"}.get(note.xanchor, "start")
            for i, line in enumerate(lines):
                yield _text(line, x, y + first + 15 * i, note.font.color or LIGHT.ink, anchor, size)

    def _corner(self, note: Any) -> tuple[float, float]:
        x = self.across(note.x) if (note.xref or "paper") == "paper" else self.place(note.xref.split()[0], note.x)
        y = self.down(note.y) if (note.yref or "paper") == "paper" else self.place(note.yref.split()[0], note.y)
        return (x or 0.0) + (note.xshift or 0), (y or 0.0) - (note.yshift or 0)


def _each(value: Any, count: int) -> list[Any]:
    """One value for every point; numbers that stand for colours are drawn in one colour."""
    if value is None or isinstance(value, str | int | float):
        return [value] * count
    return [item if isinstance(item, str) else float(item) for item in value]


def _marks(marker: Any, spots: Sequence[tuple[float | None, float | None]]) -> Iterator[str]:
    fills = _each(marker.color if marker.color is not None else marker.line.color, len(spots))
    edges = _each(marker.line.color, len(spots))
    sizes, symbols = _each(marker.size, len(spots)), _each(marker.symbol, len(spots))
    for (a, b), fill, edge, size, symbol in zip(spots, fills, edges, sizes, symbols, strict=True):
        if a is None or b is None or size == 0:
            continue
        shape = str(symbol or "circle")
        if fill == LIGHT.ground and isinstance(edge, str) and edge != fill:
            # A disc in the colour of the ground is a ring by its edge.
            shape, fill = f"{shape}-open", edge
        yield _mark(shape, a, b, (size or 6) / 2, _colour(fill))


def _pieces(spots: Sequence[tuple[float | None, float | None]]) -> Iterator[str]:
    start = True
    for a, b in spots:
        if a is None or b is None:
            start = True
            continue
        yield f"{'M' if start else 'L'}{a:.1f} {b:.1f}"
        start = False


def _mark(symbol: str, x: float, y: float, r: float, colour: str) -> str:
    hollow = f"fill='var(--ground)' stroke='{colour}' stroke-width='1.6'"
    look = hollow if symbol.endswith("open") else f"fill='{colour}' stroke='{colour}'"
    if symbol.startswith("diamond"):
        return f"<path d='M{x:.1f} {y - r:.1f}l{r} {r}l{-r} {r}l{-r} {-r}z' {look}/>"
    if symbol.startswith("square"):
        return f"<path d='M{x - r:.1f} {y - r:.1f}h{2 * r}l0 {2 * r}h{-2 * r}z' {look}/>"
    if symbol.startswith("triangle-up"):
        return f"<path d='M{x - r:.1f} {y + r:.1f}h{2 * r}l{-r} {-2 * r}z' {look}/>"
    if symbol.startswith("triangle-down"):
        return f"<path d='M{x - r:.1f} {y - r:.1f}h{2 * r}l{-r} {2 * r}z' {look}/>"
    if symbol == "line-ew":
        return f"<path d='M{x - r:.1f} {y:.1f}h{2 * r}' stroke='{colour}' stroke-width='1.6'/>"
    if symbol == "x":
        cross = f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}"
        return f"<path d='{cross}' stroke='{colour}' stroke-width='2.4'/>"
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{r}' {look}/>"


def _text(text: str, x: float, y: float, colour: str, anchor: str, size: float = 12) -> str:
    """A line of plotly's text: its tags are dropped, what it escaped stays escaped."""
    weight = " font-weight='650'" if text.lstrip().startswith("<b>") else ""
    plain = _TAG.sub("", _RAISED.sub(lambda raised: raised[1].translate(_SMALL), text))
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}'"
    return f"<text {place} fill='{_colour(colour)}'{weight}>{plain}</text>"


def _below(text: str, x: float, y: float, angle: float) -> Iterator[str]:
    """A tick's label; further lines of it stand below the first."""
    if angle:
        yield f"<g transform='rotate({angle:g} {x:.1f} {y:.1f})'>{_text(text, x, y, LIGHT.soft, 'end')}</g>"
        return
    for at, line in enumerate(text.split("<br>")):
        if line:
            yield _text(line, x, y + 15 * at, LIGHT.soft, "middle")


def _colour(colour: Any) -> str:
    return _NAMED.get(colour, colour) if isinstance(colour, str) else "var(--accent)"


def _scale(scale: Any) -> Any:
    return [list(stop) for stop in scale.colorscale] if not isinstance(scale.colorscale, str) else scale.colorscale
