"""The drawing of a circle's stages through norm and head, as SVG."""

import math
from html import escape

import numpy as np

from armillary.results.sheets.schematic import Row, Schematic, Stage
from armillary.views.text.quoting import show_text, show_token
from armillary.views.travel.colours import INKS, fill, stroke
from armillary.views.travel.scene import lines
from armillary.views.travel.svg import framed

WIDTH, MARGIN, GAP = 1100, 24, 20
PANEL = (WIDTH - 2 * MARGIN - 3 * GAP) / 4
HALF = 74
"""Pixels from a panel's middle to the end of its largest curve; words are outside."""
_PLANES = {
    "seen": "the plane that its queries see most: the first two left singular vectors of W_QK",
    "gain": "the plane where the gain differs most: the coordinates of its largest and its smallest entry",
}
_ENDS = (("accent", 0, 1), ("accent", 0, -1), ("second", 1, 1), ("second", 1, -1))


def schematic_svg(
    drawn: Schematic, title: str, caption: str, notes: tuple[str, ...], both: bool = True
) -> tuple[str, int]:
    """The document and its height; `both`: with styles for the light and the dark theme."""
    parts, y = [], 40.0
    # Bold letters are wider.
    for text, size, ink, weight, wide in ((title, 20, "ink", 650, 1.12), (caption, 13.5, "soft", 400, 1.0)):
        for line in lines(show_text(text), wide * size, WIDTH - 2 * MARGIN):
            parts.append(_text(line, MARGIN, y, size, ink, weight))
            y += size * 1.35
    for row in drawn.rows:
        drawing, height = _row(row)
        parts.append(f'<g transform="translate({MARGIN} {y + 8:.1f})">{drawing}</g>')
        y += height + 8
    for note in notes:
        for line in lines(show_text(note), 12.5, WIDTH - 2 * MARGIN):
            parts.append(_text(line, MARGIN, y + 20, 12.5, "soft"))
            y += 17
    height = round(y + 30)
    ground = f'<rect {fill("ground")} width="{WIDTH}" height="{height}"/>'
    return framed(ground + "".join(parts), WIDTH, height, show_text(title), both), height


def _text(text: str, x: float, y: float, size: float, ink: str, weight: int = 400, anchor: str = "start") -> str:
    look = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text {fill(ink)} x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'


def _row(row: Row) -> tuple[str, float]:
    """A head's four panels side by side; the first three share a scale, because they are in one space."""
    reach = [_reach(stage) for stage in row.stages]
    scales = [max(*reach[:3]), max(*reach[:3]), max(*reach[:3]), reach[3]]
    head = _text(row.head, 0, 14, 14, "ink", 650)
    head += _text(f"in {_PLANES[row.plane]}", 8 + 9 * len(row.head), 14, 12.5, "soft")
    parts, lowest = [head], 0.0
    for index, (stage, scale) in enumerate(zip(row.stages, scales, strict=True)):
        before = row.stages[index - 1] if index in (1, 2) else None
        drawing, height = _panel(stage, before, HALF / max(scale, 1e-300))
        parts.append(f'<g transform="translate({index * (PANEL + GAP):.1f} 28)">{drawing}</g>')
        lowest = max(lowest, height)
    return "".join(parts), lowest + 38


def _reach(stage: Stage) -> float:
    return float(np.abs(stage.curve(np.arange(0.0, 360.0, 5.0))).max())


def _panel(stage: Stage, before: Stage | None, scale: float) -> tuple[str, float]:
    x, y = PANEL / 2, HALF + 44
    parts = [_text(stage.name, 0, 16, 13, "ink", 600)]
    parts.append(
        f'<path {stroke("grid")} d="M{x - HALF - 18} {y}H{x + HALF + 18}M{x} {y - HALF - 14}V{y + HALF + 14}"/>'
    )
    if before is not None:
        parts.append(
            f'<path {stroke("control")} fill="none" stroke-dasharray="4 4" d="{_outline(before, x, y, scale)}"/>'
        )
    parts.append(f'<path {stroke("ink")} fill="none" stroke-width="1.8" d="{_outline(stage, x, y, scale)}"/>')
    parts += _axes(stage, x, y, scale)
    parts.append(_bar(scale, y + HALF + 30))
    at = y + HALF + 54
    for text in stage.facts:
        for line in lines(text, 12.5, PANEL):
            parts.append(_text(line, 0, at, 12.5, "soft"))
            at += 16
    return "".join(parts), at


def _outline(stage: Stage, x: float, y: float, scale: float) -> str:
    points = stage.curve(np.arange(0.0, 360.0, 3.0))
    return "M" + "L".join(f"{x + scale * a:.1f} {y - scale * b:.1f}" for a, b in points) + "Z"


def _axes(stage: Stage, x: float, y: float, scale: float) -> list[str]:
    """The plane's two axes in this stage, + solid and − hollow, with their words; and the shift of the centre."""
    parts = []
    middle = x + scale * stage.centre[0], y - scale * stage.centre[1]
    if math.dist(middle, (x, y)) > 1:
        parts.append(f'<path {stroke("control")} stroke-width="2" d="M{x} {y}L{middle[0]:.1f} {middle[1]:.1f}"/>')
    parts.append(f'<circle {fill("control")} cx="{x}" cy="{y}" r="2.2"/>')
    for place, (ink, axis, sign) in enumerate(_ENDS):
        point = stage.centre + sign * stage.matrix[axis]
        px, py = x + scale * point[0], y - scale * point[1]
        faint = "" if sign > 0 else ' opacity=".45"'
        parts.append(
            f'<path {stroke(ink)} stroke-width="1.6"{faint} d="M{middle[0]:.1f} {middle[1]:.1f}L{px:.1f} {py:.1f}"/>'
        )
        inside = ink if sign > 0 else "ground"
        look = f'class="f-{inside} s-{ink}" fill="{INKS[inside][0]}" stroke="{INKS[ink][0]}" stroke-width="1.6"'
        parts.append(f'<circle {look} cx="{px:.1f}" cy="{py:.1f}" r="3.6"/>')
        if stage.tips:
            parts.append(_tip(stage.tips[place], px - middle[0], py - middle[1], px, py, ink))
    return parts


def _tip(word: str, dx: float, dy: float, px: float, py: float, ink: str) -> str:
    """A word beside the end of an axis, outside the curve."""
    size = math.hypot(dx, dy) or 1.0
    dx, dy = dx / size, dy / size
    anchor = "start" if dx > 0.4 else "end" if dx < -0.4 else "middle"
    return _text(show_token(word, 8), px + 9 * dx, py + 4 + (14 if abs(dx) <= 0.4 else 8) * dy, 12, ink, 600, anchor)


def _bar(scale: float, y: float) -> str:
    """A scale bar whose length is a round number."""
    length = 50 / scale
    power = 10.0 ** math.floor(math.log10(length))
    round_ = max(step * power for step in (1, 2, 5) if step * power <= length)
    x = PANEL / 2 + HALF - scale * round_
    end = x + scale * round_
    ticks = f"M{x:.1f} {y - 3}V{y + 3}M{end:.1f} {y - 3}V{y + 3}M{x:.1f} {y}H{end:.1f}"
    return f'<path {stroke("soft")} d="{ticks}"/>' + _text(f"{round_:g}", x - 6, y + 4, 11.5, "soft", anchor="end")
