"""The panel of exact angles: how far a word is from itself and from the next word, state by state."""

from html import escape

import numpy as np
from numpy.typing import NDArray

from armillary.results.sheets.trajectory import Trajectory
from armillary.views.travel.captions import MOST_LINES
from armillary.views.travel.colours import fill, stroke

Floats = NDArray[np.float64]
WIDTH, HEIGHT = 450, 290
LEFT, RIGHT, TOP, BOTTOM = 40, 104, 14, 42


def x_of(trajectory: Trajectory, state: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * state / max(1, len(trajectory.states) - 1), 1)


def y_of(trajectory: Trajectory, degrees: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - degrees / most(trajectory)), 1)


def most(trajectory: Trajectory) -> float:
    """The top of the axis, in degrees."""
    highest = np.nanmax(np.concatenate([trajectory.own.ravel(), trajectory.following.ravel()]))
    return float(max(100.0, 10 * np.ceil(highest / 10)))


def panel_svg(trajectory: Trajectory) -> str:
    """The panel's elements, in a frame of WIDTH × HEIGHT."""
    parts = _axes(trajectory)
    ends: list[tuple[float, str, str]] = []
    for name, colour, angles, strong in zip(*_CURVES, _words(trajectory), bold(trajectory), strict=True):
        if np.isnan(strong).all():
            continue
        if len(trajectory.words) > MOST_LINES:
            low, high = np.quantile(angles, [0.1, 0.9], axis=0)
            outline = [*enumerate(high), *reversed([*enumerate(low)])]
            parts.append(f'<path {fill(colour)} opacity=".16" d="{_line(trajectory, outline)}Z"/>')
        else:
            thin = f'{stroke(colour)} fill="none" opacity=".3"'
            parts += [f'<path {thin} d="{_line(trajectory, [*enumerate(row)])}"/>' for row in angles]
        look = f'{stroke(colour)} fill="none" stroke-width="2.6" stroke-linejoin="round"'
        parts.append(f'<path {look} d="{_line(trajectory, [*enumerate(strong)])}"/>')
        parts.append(_dots(trajectory, strong, colour))
        ends.append((y_of(trajectory, float(strong[-1])), name, colour))
    return "".join([*parts, *_names(ends)])


_CURVES = (("itself", "the next word"), ("second", "accent"))


def bold(trajectory: Trajectory) -> tuple[Floats, Floats]:
    """The bold lines [S], to itself and to the next word: the word asked for, or the mean; NaN if there is none."""
    if trajectory.word is not None:
        return trajectory.own[trajectory.word], trajectory.following[trajectory.word]
    own, following = _words(trajectory)
    return own.mean(0), following.mean(0)


def _words(trajectory: Trajectory) -> tuple[Floats, Floats]:
    # The last word's next word is the model's own prediction, which would bias the mean.
    return trajectory.own, trajectory.following[:-1] if len(trajectory.words) > 1 else trajectory.following


def _axes(trajectory: Trajectory) -> list[str]:
    parts = []
    right = WIDTH - RIGHT
    for degrees in range(0, int(most(trajectory)) + 1, 30):
        y = y_of(trajectory, degrees)
        look = f'{stroke("control")} stroke-dasharray="1 4" stroke-linecap="round"' if degrees == 90 else stroke("grid")
        parts.append(f'<path {look} d="M{LEFT} {y}H{right}"/>')
        parts.append(f'<text {fill("soft")} x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{degrees}°</text>')
    for state in ticks(trajectory):
        name = trajectory.moves[state - 1] if state else "start" if trajectory.along == "layer" else "0"
        place = f'x="{x_of(trajectory, state)}" y="{HEIGHT - BOTTOM + 18}"'
        parts.append(f'<text {fill("soft")} {place} text-anchor="middle">{escape(name)}</text>')
    middle = (LEFT + right) / 2
    below = "state after" if trajectory.along == "layer" else escape(trajectory.along)
    parts.append(f'<text {fill("soft")} x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{below}</text>')
    return parts


def ticks(trajectory: Trajectory) -> list[int]:
    """States that get a tick label: the first, the last, and as many between as fit."""
    last = len(trajectory.states) - 1
    room = 6 if any("." in move for move in trajectory.moves) else 8
    step = max(1, -(-last // (room - 1)))
    return sorted({*(s for s in range(0, last, step) if last - s >= step), last})


def _line(trajectory: Trajectory, points: list[tuple[int, float]]) -> str:
    return "M" + "L".join(f"{x_of(trajectory, state)} {y_of(trajectory, float(degrees))}" for state, degrees in points)


def _dots(trajectory: Trajectory, angles: Floats, colour: str) -> str:
    if len(angles) > 20:
        return ""
    spots = (
        f'<circle cx="{x_of(trajectory, s)}" cy="{y_of(trajectory, float(a))}" r="2.8"/>' for s, a in enumerate(angles)
    )
    return f"<g {fill(colour)}>{''.join(spots)}</g>"


def _names(ends: list[tuple[float, str, str]]) -> list[str]:
    """Direct labels at the right end, without overlap."""
    ends = sorted(ends)
    if len(ends) == 2 and ends[1][0] - ends[0][0] < 30:
        middle = (ends[0][0] + ends[1][0]) / 2
        ends = [(middle - 15, *ends[0][1:]), (middle + 15, *ends[1][1:])]
    x = WIDTH - RIGHT + 8
    labels = []
    for y, name, colour in ends:
        labels.append(f'<text {fill(colour)} x="{x}" y="{y - 2:.1f}">to</text>')
        labels.append(f'<text {fill(colour)} x="{x}" y="{y + 12:.1f}" font-weight="650">{name}</text>')
    return labels
