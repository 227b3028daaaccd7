"""A figure for a paper: SVG, PDF or PNG, one or two columns wide, without a browser.

SVG needs nothing. PDF and PNG are painted by matplotlib (`paint.py`).
"""

import re
from collections.abc import Callable
from html import unescape
from textwrap import wrap
from typing import Any

from armillary.errors import OutputError
from armillary.views.figures.marks import DARK, FONT, LIGHT, Palette
from armillary.views.figures.paint import painted
from armillary.views.figures.print.static_svg import elements

Draw = Callable[[bool], Any]
"""From 'narrow or not' to a figure."""
# Columns → (pixels in which the figure is laid out, inches on paper): text of 12 pixels becomes 7 points.
SIZES = {1: (420, 3.4), 2: (860, 7.0)}
# What differs between the themes; the first six have these names in drawings, too.
_THEMED = ("ground", "ink", "soft", "grid", "accent", "control", "second", "accent_band", "second_band")
_TAG = re.compile(r"<[^>]*>")
_RGBA = re.compile(r"rgba\((\d+),\s*(\d+),\s*(\d+),\s*([\d.]+)\)")


def picture_svg(draw: Draw, columns: int = 2, both: bool = False) -> str:
    """The figure with its title as one SVG document sized in inches, on white for a paper; `both`: light and dark."""
    if columns not in SIZES:
        raise OutputError(f"a figure is 1 or 2 columns wide, not {columns}.")
    width, inches = SIZES[columns]
    figure = draw(columns == 1)
    margin = figure.layout.margin
    # A figure of rows has labels in wide margins, and is laid out wider.
    width = max(width, int((margin.l or 0) + (margin.r or 0) + 240))
    parts, height = elements(figure, width)
    head, top = _heading(figure, width, 6 if columns == 1 else 14)
    scale = inches / width
    body = "".join(parts)
    if both:
        return _framed(_in_both("".join((head, f"<g transform='translate(0 {top})'>{body}</g>"))), width, top + height)
    for name in _THEMED[:6]:
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


def _in_both(body: str) -> str:
    """The same in the reader's theme: colours by name, which a style sheet in the picture sets."""
    for name in _THEMED:
        body = body.replace(f"'{getattr(LIGHT, name)}'", f"'var(--{name})'")
    light, dark = (_variables(palette) for palette in (LIGHT, DARK))
    style = f"<style>svg{{{light}}}@media (prefers-color-scheme: dark){{svg{{{dark}}}}}</style>"
    return f"{style}<rect width='100%' height='100%' fill='var(--ground)'/>{body}"


def _variables(palette: Palette) -> str:
    return "".join(f"--{name}:{getattr(palette, name)};" for name in _THEMED)


def _framed(body: str, width: float, height: float) -> str:
    family = FONT.replace("'", "")
    size = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} font-family='{family}' font-size='12'>{body}</svg>\n"


def _opacity(match: re.Match[str]) -> str:
    return f"fill='{match[1]}' fill-opacity='{int(match[2], 16) / 255:.2f}'"


def _heading(figure: Any, width: int, left: int) -> tuple[str, int]:
    """Title and subtitle, wrapped to the width."""
    title = figure.layout.title
    lines: list[tuple[str, int, str]] = []
    for text, size, colour in (
        # The title was wrapped for a screen; lines of the subtitle are lines.
        ([title.text or ""], 15, LIGHT.ink),
        (((title.subtitle and title.subtitle.text) or "").split("<br>"), 12, LIGHT.soft),
    ):
        for given in text:
            plain = " ".join(unescape(_TAG.sub(" ", given)).split())
            lines += [(line, size, colour) for line in wrap(plain, int(width / (0.56 * size)))]
    parts, y = [], 8
    for text, size, colour in lines:
        y += size + 5
        safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"<text x='{left}' y='{y}' text-anchor='start' font-size='{size}' fill='{colour}'>{safe}</text>")
    return "".join(parts), y + 10


def picture(draw: Draw, kind: str, columns: int = 2) -> bytes:
    """The figure as 'svg', 'pdf' or 'png'."""
    svg = picture_svg(draw, columns)
    return svg.encode() if kind == "svg" else painted(svg, kind)
