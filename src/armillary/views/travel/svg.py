"""A whole trajectory as one SVG picture: title, globe, angles by layer, notes."""

from html import escape

from armillary.results.sheets.trajectory import Trajectory
from armillary.views.figures.marks import FONT
from armillary.views.travel import angle_panel, globe
from armillary.views.travel.captions import caption, legend, notes, title
from armillary.views.travel.colours import dark_style, fill
from armillary.views.travel.scene import lines

WIDTH = 1100
_MARGIN, _GAP = 24, 24


def picture_svg(trajectory: Trajectory, both: bool = True, narrow: bool = False) -> tuple[str, int]:
    """The document and its height; `both`: with light and dark mode; `narrow`: the angles below the globe."""
    width = globe.WIDTH + 2 * _MARGIN if narrow else WIDTH
    top, head = _heading(trajectory, width)
    beside = (_MARGIN, top + globe.HEIGHT + 40) if narrow else (_MARGIN + globe.WIDTH + _GAP, top + 26)
    aside, end = _aside(trajectory, *beside)
    height = round(max(top + globe.HEIGHT, end) + 18)
    body = (
        f'<rect {fill("ground")} width="{width}" height="{height}"/>{head}'
        f'<g transform="translate({_MARGIN - 8} {top})">{globe.globe_svg(trajectory)}</g>{aside}'
    )
    return framed(body, width, height, title(trajectory), both), height


def framed(body: str, width: float, height: float, name: str, both: bool = True) -> str:
    """A whole SVG document around elements."""
    font = escape(FONT, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{font}" font-size="12" style="font-variant-numeric:tabular-nums" role="img">'
        f"<title>{escape(name)}</title>{dark_style() if both else ''}{body}</svg>"
    )


def _heading(trajectory: Trajectory, width: float) -> tuple[float, str]:
    """Title and caption; and where they end."""
    room = width - 2 * _MARGIN
    # Bold letters are wider.
    head, y = _paragraph(lines(title(trajectory), 1.12 * 20, room), _MARGIN, 40, "ink", 20, 26, ' font-weight="650"')
    text, y = _paragraph(lines(caption(trajectory), 13.5, room), _MARGIN, y, "soft", 13.5, 19)
    return y, head + text


def _aside(trajectory: Trajectory, x: float, y: float) -> tuple[str, float]:
    """The angle panel and the notes; and where they end."""
    head, y = _paragraph(["Angle by layer"], x, y, "ink", 14, 19, ' font-weight="650"')
    text, y = _paragraph(lines(legend(trajectory), 12.5, angle_panel.WIDTH - 12), x, y, "soft", 12.5, 17)
    parts = [head, text, f'<g transform="translate({x - 6} {y - 6})">{angle_panel.panel_svg(trajectory)}</g>']
    y += angle_panel.HEIGHT + 22
    for note in notes(trajectory):
        text, y = _paragraph(lines(note, 12.5, angle_panel.WIDTH - 12), x, y, "soft", 12.5, 17)
        parts.append(text)
        y += 7
    return "".join(parts), y


def _paragraph(
    rows: list[str], x: float, y: float, ink: str, size: float, height: float, style: str = ""
) -> tuple[str, float]:
    """Lines of text below each other; and where they end."""
    look = f'{fill(ink)} x="{x}" font-size="{size}"{style}'
    texts = [f'<text {look} y="{y + i * height}">{escape(row)}</text>' for i, row in enumerate(rows)]
    return "".join(texts), y + len(rows) * height
