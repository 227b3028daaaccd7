"""How does a whole trajectory fit one picture: title, globe, angles by layer, notes? Plain SVG, written without a browser."""

from html import escape

from armillary.results.trajectory import Trajectory
from armillary.views.figures.marks import FONT
from armillary.views.travel import angle_panel, globe
from armillary.views.travel.colours import fill, night
from armillary.views.travel.scene import lines
from armillary.views.travel.captions import caption, legend, title, told

WIDTH = 1100
_MARGIN, _GAP = 24, 24


def picture_svg(trajectory: Trajectory, both: bool = True) -> tuple[str, int]:
    """The document and its height; `both`: for light ground and dark, as the reader has it."""
    top, head = _heading(trajectory)
    aside, end = _aside(trajectory, _MARGIN + globe.WIDTH + _GAP, top + 26)
    height = round(max(top + globe.HEIGHT, end) + 18)
    body = (
        f'<rect {fill("ground")} width="{WIDTH}" height="{height}"/>{head}'
        f'<g transform="translate({_MARGIN - 8} {top})">{globe.globe_svg(trajectory)}</g>{aside}'
    )
    return framed(body, WIDTH, height, title(trajectory), both), height


def framed(body: str, width: float, height: float, name: str, both: bool = True) -> str:
    """A whole SVG document around elements."""
    font = escape(FONT, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{font}" font-size="12" style="font-variant-numeric:tabular-nums" role="img">'
        f"<title>{escape(name)}</title>{night() if both else ''}{body}</svg>"
    )


def _heading(trajectory: Trajectory) -> tuple[float, str]:
    """Title and caption; and where they end."""
    made, y = [], 40.0
    room = WIDTH - 2 * _MARGIN
    # Bold letters are wider.
    for line in lines(title(trajectory), 1.12 * 20, room):
        made.append(f'<text {fill("ink")} x="{_MARGIN}" y="{y}" font-size="20" font-weight="650">{escape(line)}</text>')
        y += 26
    for line in lines(caption(trajectory), 13.5, room):
        made.append(f'<text {fill("soft")} x="{_MARGIN}" y="{y}" font-size="13.5">{escape(line)}</text>')
        y += 19
    return y, "".join(made)


def _aside(trajectory: Trajectory, x: float, y: float) -> tuple[str, float]:
    """The flat panel and the notes; and where they end."""
    made = [f'<text {fill("ink")} x="{x}" y="{y}" font-size="14" font-weight="650">Angle by layer</text>']
    y += 19
    for line in lines(legend(trajectory), 12.5, angle_panel.WIDTH - 12):
        made.append(f'<text {fill("soft")} x="{x}" y="{y}" font-size="12.5">{escape(line)}</text>')
        y += 17
    made.append(f'<g transform="translate({x - 6} {y - 6})">{angle_panel.flat_svg(trajectory)}</g>')
    y += angle_panel.HEIGHT + 22
    for paragraph in told(trajectory):
        for line in lines(paragraph, 12.5, angle_panel.WIDTH - 12):
            made.append(f'<text {fill("soft")} x="{x}" y="{y}" font-size="12.5">{escape(line)}</text>')
            y += 17
        y += 7
    return "".join(made), y
