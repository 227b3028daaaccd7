"""Our own SVG as PDF or PNG: painted by matplotlib, which brings its own font; no browser is needed.

Our SVG consists of paths of straight lines, boxes, discs, text and, on the globe, one radial gradient.
"""

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np

from armillary.errors import OutputError

DPI = 300
MISSING = "a .{kind} needs matplotlib: pip install 'armillary[paper]', or save as .svg, which needs no extra."
_TOKEN = re.compile(r"([MLHVZmlhvz])|(-?\d*\.?\d+(?:e-?\d+)?)")
_RGB = re.compile(r"rgb\((\d+),\s*(\d+),\s*(\d+)\)")
_NUMBER = re.compile(r"-?\d+\.?\d*")
# What an element has from the groups around it; opacities multiply.
_INHERITED = ("fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-style")
_SHADES = 200
Style = Mapping[str, str]


def painted(svg: str, kind: str, inches: float | None = None) -> bytes:
    """An SVG of ours as 'pdf' or 'png'; `inches` is its width, where the document gives pixels."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OutputError(MISSING.format(kind=kind)) from error
    root = ElementTree.fromstring(svg)
    width, height = (float(part) for part in str(root.get("viewBox")).split()[2:])
    wide = float(str(root.get("width")).removesuffix("in")) if inches is None else inches
    figure = Figure(figsize=(wide, wide * height / width))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    points = wide * 72 / width
    shades = {f"url(#{node.get('id')})": node for node in root.iter() if node.tag.endswith("radialGradient")}
    for element, shift, turn, style in _flat(root, (0.0, 0.0), 0.0, {}):
        if style.get("fill") in shades:
            _shade(axes, element, shift, shades[style["fill"]])
            style = {**style, "fill": "none"}
        _paint(axes, element, shift, turn, points, style)
    # A picture inside sets its own limits.
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_aspect("auto")
    out = io.BytesIO()
    # Without a date the same figure has the same bytes.
    metadata = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(out, format=kind, dpi=DPI, metadata=metadata)
    return out.getvalue()


def _flat(
    element: ElementTree.Element, shift: tuple[float, float], turn: float, style: Style
) -> Iterator[tuple[ElementTree.Element, tuple[float, float], float, Style]]:
    """Every element that is drawn, with its shift, its rotation in degrees and its style."""
    for child in element:
        name = child.tag.rpartition("}")[2]
        if name in ("defs", "title", "style"):
            continue
        own = {**style, **{key: str(child.get(key)) for key in _INHERITED if child.get(key)}}
        own["opacity"] = str(float(style.get("opacity", 1)) * float(child.get("opacity", 1)))
        if name != "g":
            yield child, shift, turn, own
            continue
        how = child.get("transform", "")
        numbers = [float(number) for number in _NUMBER.findall(how)]
        moved, turned = shift, turn
        if how.startswith("translate"):
            moved = (shift[0] + numbers[0], shift[1] + numbers[1])
        elif how.startswith("rotate"):
            turned -= numbers[0]
        yield from _flat(child, moved, turned, own)


def _paint(
    axes: Any, element: ElementTree.Element, shift: tuple[float, float], turn: float, points: float, style: Style
) -> None:
    from matplotlib.patches import Circle, PathPatch, Rectangle
    from matplotlib.path import Path

    kind = element.tag.rpartition("}")[2]

    def at(name: str, along: int | None = None) -> float:
        return float(element.get(name, 0)) + (0 if along is None else shift[along])

    if kind == "text":
        _write(axes, element, (at("x", 0), at("y", 1)), turn, points, style)
        return
    look = _look(element, points, style)
    if kind == "rect":
        box = Rectangle((at("x", 0), at("y", 1)), at("width"), at("height"), **(look | {"edgecolor": "none"}))
        axes.add_patch(box)
    elif kind == "circle":
        axes.add_patch(Circle((at("cx", 0), at("cy", 1)), at("r"), **look))
    elif kind == "path":
        vertices, codes = _path(element.get("d", ""), shift)
        if vertices:
            axes.add_patch(PathPatch(Path(vertices, codes), **look))


def _look(element: ElementTree.Element, points: float, style: Style) -> dict[str, Any]:
    opacity = float(style["opacity"])
    colours = {
        "facecolor": _tinted(style.get("fill", "none"), opacity * float(element.get("fill-opacity", 1))),
        "edgecolor": _tinted(style.get("stroke", "none"), opacity * float(element.get("stroke-opacity", 1))),
    }
    look: dict[str, Any] = {**colours, "linewidth": float(style.get("stroke-width", 1)) * points}
    if style.get("stroke-dasharray"):
        dashes = [float(part) * points / look["linewidth"] for part in style["stroke-dasharray"].split()]
        look["linestyle"] = (0, dashes)
    return look


def _write(
    axes: Any, element: ElementTree.Element, place: tuple[float, float], turn: float, points: float, style: Style
) -> None:
    from matplotlib.patheffects import withStroke

    how = {
        "ha": {"start": "left", "middle": "center", "end": "right"}[element.get("text-anchor", "start")],
        "va": "baseline",
        "rotation": turn,
        "rotation_mode": "anchor",
        "parse_math": False,
        "fontsize": float(style.get("font-size", 12)) * points,
        "fontweight": "bold" if style.get("font-weight") else "normal",
        "fontstyle": style.get("font-style", "normal"),
        "color": _tinted(style.get("fill", "#000000"), float(style["opacity"])),
    }
    # matplotlib's font lacks this sign.
    words = "".join(element.itertext()).replace("⟂", "⊥")
    text = axes.text(*place, words, **how)
    if style.get("stroke", "none") != "none":
        halo = _tinted(style["stroke"], float(element.get("stroke-opacity", 1)))
        text.set_path_effects([withStroke(linewidth=float(style.get("stroke-width", 1)) * points, foreground=halo)])


def _shade(axes: Any, element: ElementTree.Element, shift: tuple[float, float], gradient: ElementTree.Element) -> None:
    """A disc filled by a radial gradient, whose centre and radius are shares of the disc's box."""
    from matplotlib.patches import Circle

    x, y, radius = (float(element.get(name, 0)) for name in ("cx", "cy", "r"))
    x, y = x + shift[0], y + shift[1]
    centre = [float(gradient.get(name, 0.5)) for name in ("cx", "cy", "r")]
    grid = (np.arange(_SHADES) + 0.5) / _SHADES
    away = np.hypot(grid[None, :] - centre[0], grid[:, None] - centre[1]) / centre[2]
    offsets = [float(stop.get("offset", 0)) for stop in gradient]
    channels = np.array([(*_channels(str(stop.get("stop-color"))), float(stop.get("stop-opacity", 1)))
                         for stop in gradient])  # fmt: skip
    colours = np.stack([np.interp(away, offsets, channels[:, i]) for i in range(4)], axis=-1)
    extent = (x - radius, x + radius, y + radius, y - radius)
    drawn = axes.imshow(colours, extent=extent, interpolation="bilinear", zorder=1)
    drawn.set_clip_path(Circle((x, y), radius, transform=axes.transData))


def _path(commands: str, shift: tuple[float, float]) -> tuple[list[tuple[float, float]], list[int]]:
    """Vertices and codes of a path made of straight lines."""
    vertices: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0
    command = ""
    numbers: list[float] = []
    for letter, number in _TOKEN.findall(commands):
        if letter in ("z", "Z"):
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
        vertices.append((x + shift[0], y + shift[1]))
        codes.append(1 if command in "Mm" else 2)
        numbers = []
    return vertices, codes


def _tinted(colour: str, opacity: float) -> Any:
    """As matplotlib takes it; fully opaque colours stay as they are."""
    channels = _RGB.fullmatch(colour)
    plain = f"#{int(channels[1]):02x}{int(channels[2]):02x}{int(channels[3]):02x}" if channels else colour
    return plain if plain == "none" or opacity >= 1 else (*_channels(plain), opacity)


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
