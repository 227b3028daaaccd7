"""A figure for a paper: SVG, PDF or PNG, one or two columns wide, without a browser.

SVG needs nothing. PDF and PNG are painted by matplotlib, which brings its own font; our SVG consists of paths, boxes,
discs and text alone.
"""

import io
import re
from collections.abc import Callable, Iterator
from html import unescape
from textwrap import wrap
from typing import Any
from xml.etree import ElementTree

from armillary.errors import OutputError
from armillary.views.figures.marks import FONT, LIGHT
from armillary.views.figures.print.static_svg import elements

Draw = Callable[[bool], Any]
"""From 'narrow or not' to a figure."""
# Columns → (pixels in which the figure is laid out, inches on paper): text of 12 pixels becomes 7 points.
SIZES = {1: (420, 3.4), 2: (860, 7.0)}
DPI = 300
_TAG, _TOKEN = re.compile(r"<[^>]*>"), re.compile(r"([MLHVmlhvz])|(-?\d+\.?\d*(?:e-?\d+)?)")
_RGBA = re.compile(r"rgba\((\d+),\s*(\d+),\s*(\d+),\s*([\d.]+)\)")
_RGB = re.compile(r"rgb\((\d+),\s*(\d+),\s*(\d+)\)")
MISSING = "a .{kind} needs matplotlib: pip install 'armillary[paper]', or save as .svg, which needs nothing."


def picture_svg(draw: Draw, columns: int = 2) -> str:
    """The figure with its title as one SVG document, in the light theme's colours and sized in inches."""
    if columns not in SIZES:
        raise OutputError(f"a figure is 1 or 2 columns wide, not {columns}.")
    width, inches = SIZES[columns]
    figure = draw(columns == 1)
    margin = figure.layout.margin
    # A figure of rows has labels in wide margins, and is laid out wider.
    width = max(width, int((margin.l or 0) + (margin.r or 0) + 240))
    parts, height = elements(figure, width)
    head, top = _heading(figure, width)
    scale = inches / width
    body = "".join(parts)
    for name in ("ground", "ink", "soft", "grid", "accent", "control"):
        body = body.replace(f"var(--{name})", getattr(LIGHT, name))
    # Programs that set papers know no rgba().
    body = _RGBA.sub(lambda m: f"#{int(m[1]):02x}{int(m[2]):02x}{int(m[3]):02x}{round(float(m[4]) * 255):02x}", body)
    body = re.sub(r"fill='(#[0-9a-f]{6})([0-9a-f]{2})'", _opacity, body)
    size = f"width='{inches:.3f}in' height='{(top + height) * scale:.3f}in' viewBox='0 0 {width} {top + height:.0f}'"
    ground = f"<rect x='0' y='0' width='{width}' height='{top + height:.0f}' fill='#ffffff'/>"
    family = FONT.replace("'", "")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} font-family='{family}' font-size='12'>{ground}{head}"
        f"<g transform='translate(0 {top})'>{body}</g></svg>\n"
    )


def _opacity(match: re.Match[str]) -> str:
    return f"fill='{match[1]}' fill-opacity='{int(match[2], 16) / 255:.2f}'"


def _heading(figure: Any, width: int) -> tuple[str, int]:
    """Title and subtitle, wrapped to the width."""
    title = figure.layout.title
    lines: list[tuple[str, int, str]] = []
    for text, size, colour in (
        (title.text, 15, LIGHT.ink),
        (title.subtitle.text if title.subtitle else "", 12, LIGHT.soft),
    ):
        plain = " ".join(unescape(_TAG.sub(" ", text or "")).split())
        lines += [(line, size, colour) for line in wrap(plain, int(width / (0.56 * size)))]
    parts, y = [], 8
    for text, size, colour in lines:
        y += size + 5
        safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"<text x='14' y='{y}' text-anchor='start' font-size='{size}' fill='{colour}'>{safe}</text>")
    return "".join(parts), y + 10


def picture(draw: Draw, kind: str, columns: int = 2) -> bytes:
    """The figure as 'svg', 'pdf' or 'png'."""
    svg = picture_svg(draw, columns)
    return svg.encode() if kind == "svg" else painted(svg, kind)


def painted(svg: str, kind: str) -> bytes:
    """An SVG of ours as PDF or PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OutputError(MISSING.format(kind=kind)) from error
    root = ElementTree.fromstring(svg)
    wide, high = (float(str(root.get(name)).removesuffix("in")) for name in ("width", "height"))
    width, height = (float(part) for part in str(root.get("viewBox")).split()[2:])
    figure = Figure(figsize=(wide, high))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    points = wide * 72 / width
    for element, shift, turn in _flat(root, 0.0, 0.0):
        _paint(axes, element, shift, turn, points)
    out = io.BytesIO()
    # Without a date the same figure has the same bytes.
    told = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(out, format=kind, dpi=DPI, metadata=told)
    return out.getvalue()


def _flat(
    element: ElementTree.Element, shift: float, turn: float
) -> Iterator[tuple[ElementTree.Element, float, float]]:
    """Every element with its vertical shift and its rotation in degrees."""
    for child in element:
        name = child.tag.rpartition("}")[2]
        moved, turned = shift, turn
        if name == "g":
            how = child.get("transform", "")
            numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", how)]
            if how.startswith("translate"):
                moved += numbers[1]
            elif how.startswith("rotate"):
                turned -= numbers[0]
            yield from _flat(child, moved, turned)
        else:
            yield child, moved, turned


def _paint(axes: Any, element: ElementTree.Element, shift: float, turn: float, points: float) -> None:
    from matplotlib.patches import Circle, PathPatch, Rectangle
    from matplotlib.path import Path

    kind = element.tag.rpartition("}")[2]

    def at(name: str) -> float:
        return float(element.get(name, 0))

    fill, stroke = _colour(element.get("fill", "none")), _colour(element.get("stroke", "none"))
    look: dict[str, Any] = {"facecolor": fill, "edgecolor": stroke, "linewidth": (at("stroke-width") or 1) * points}
    if element.get("fill-opacity"):
        look["facecolor"] = (*_channels(str(fill)), float(element.get("fill-opacity", 1)))
    if element.get("stroke-dasharray"):
        dashes = [float(part) * points / look["linewidth"] for part in str(element.get("stroke-dasharray")).split()]
        look["linestyle"] = (0, dashes)
    if kind == "text":
        style = {"start": "left", "middle": "center", "end": "right"}[element.get("text-anchor", "start")]
        weight = "bold" if element.get("font-weight") else "normal"
        where = (at("x"), at("y") + shift)
        how = {"ha": style, "va": "baseline", "rotation": turn, "rotation_mode": "anchor", "parse_math": False}
        size = (at("font-size") or 12) * points
        # matplotlib's font lacks this sign.
        words = "".join(element.itertext()).replace("⟂", "⊥")
        axes.text(*where, words, fontsize=size, color=fill, fontweight=weight, **how)
    elif kind == "rect":
        axes.add_patch(
            Rectangle((at("x"), at("y") + shift), at("width"), at("height"), **(look | {"edgecolor": "none"}))
        )
    elif kind == "circle":
        axes.add_patch(Circle((at("cx"), at("cy") + shift), at("r"), **look))
    elif kind == "path":
        vertices, codes = _path(element.get("d", ""), shift)
        if vertices:
            axes.add_patch(PathPatch(Path(vertices, codes), **look))


def _path(commands: str, shift: float) -> tuple[list[tuple[float, float]], list[int]]:
    """Vertices and codes of a path made of straight lines."""
    vertices: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0
    command = ""
    numbers: list[float] = []
    for letter, number in _TOKEN.findall(commands):
        if letter == "z":
            vertices.append(vertices[-1])
            codes.append(79)
            continue
        if letter:
            command, numbers = letter, []
            continue
        numbers.append(float(number))
        if len(numbers) < (1 if command in "HhVv" else 2):
            continue
        if command in "Hh":
            x = numbers[0] + (x if command == "h" else 0)
        elif command in "Vv":
            y = numbers[0] + (y if command == "v" else 0)
        else:
            own = command.islower()
            x, y = numbers[0] + x * own, numbers[1] + y * own
        vertices.append((x, y + shift))
        codes.append(1 if command in "Mm" else 2)
        numbers = []
    return vertices, codes


def _colour(colour: str) -> str:
    found = _RGB.fullmatch(colour)
    return f"#{int(found[1]):02x}{int(found[2]):02x}{int(found[3]):02x}" if found else colour


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
