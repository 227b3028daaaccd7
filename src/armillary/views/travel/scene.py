"""Geometry of the globe: arcs, rings, the view, and where labels go.

The globe has radius 1. After rotation x points to the right, y up and z towards the viewer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from armillary.results.sheets.trajectory import Trajectory

Floats = NDArray[np.float64]
PIECES = 12
"""Straight pieces per arc."""


def view(trajectory: Trajectory) -> Floats:
    """The rotation [3, 3] that shows most ends, stars and states in front, with words moving to the right."""
    towards = _directions(400)
    # If one word was asked for, the view is chosen for it.
    chosen = [i for i, t in enumerate(trajectory.drawn) if trajectory.word in (None, t)]
    points, targets = trajectory.points[chosen], trajectory.targets[chosen]
    # tanh: what is in front counts fully wherever it is; all states of a word together count as one point.
    ends, stars, between = (np.tanh(2.5 * p @ towards.T) for p in (points[:, -1], targets, points))
    # Of many words most are shown; of one, both its end and its target.
    both = ends + stars if len(chosen) > 1 else 4 * np.minimum(ends, stars)
    z = towards[int((both + between.mean(1)).sum(0).argmax())]
    moved = (points[:, -1] - points[:, 0]).mean(0)
    x = moved - (moved @ z) * z
    if np.linalg.norm(x) < 1e-6:
        x = np.eye(3)[int(np.abs(z).argmin())]
        x = x - (x @ z) * z
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z])


def _directions(count: int) -> Floats:
    """Directions spread evenly over the sphere, along a spiral."""
    i = np.arange(count) + 0.5
    height, turn = 1 - 2 * i / count, i * np.pi * (3 - 5**0.5)
    across = np.sqrt(1 - height**2)
    return np.stack([across * np.cos(turn), across * np.sin(turn), height], 1)


def arc(a: Floats, b: Floats, angle: float | None = None) -> Floats:
    """Points of the great-circle arc from a to b [PIECES + 1, 3].

    `angle` (in radians) is the true angle if a and b are projections, inside the globe, of points in more dimensions:
    the result is then the projection of the true arc.

    >>> middle = arc(np.array([1.0, 0, 0]), np.array([0, 1.0, 0]))[PIECES // 2]
    >>> bool(np.allclose(middle, [0.5**0.5, 0.5**0.5, 0]))
    True
    """
    if angle is None:
        angle = float(2 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b)))
    t = np.linspace(0, 1, PIECES + 1)[:, None]
    if angle < 1e-6 or angle > np.pi - 1e-6:
        # The arc is a point, or it joins opposite points, for which no great circle is the shortest.
        return (1 - t) * a + t * b
    return (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)


def paths(trajectory: Trajectory) -> list[Floats]:
    """Arcs of every drawn word [S − 1, PIECES + 1, 3]."""
    true = np.radians(trajectory.moved[list(trajectory.drawn)])
    inside = trajectory.projection == "span"
    arcs = []
    for i, points in enumerate(trajectory.points):
        steps = [arc(a, b, float(true[i, s]) if inside else None) for s, (a, b) in enumerate(pairwise(points))]
        arcs.append(np.array(steps).reshape(-1, PIECES + 1, 3))
    return arcs


def corners(trajectory: Trajectory) -> Floats:
    """Points that the three rings run through in pairs: the axes, or for `span` the word's start, end and target."""
    if trajectory.projection != "span":
        return np.eye(3)
    return np.stack([trajectory.points[0, 0], trajectory.points[0, -1], trajectory.targets[0]])


def rings(trajectory: Trajectory) -> list[Floats]:
    """Three great circles [97, 3]; fewer where two corners coincide."""
    turn = np.linspace(0, 2 * np.pi, 97)[:, None]
    circles = []
    for a, b in combinations(corners(trajectory), 2):
        rest = b - (b @ a) * a
        size = float(np.linalg.norm(rest))
        if size > 1e-9:
            circles.append(np.cos(turn) * a + np.sin(turn) * rest / size)
    return circles


@dataclass(frozen=True)
class Side:
    """For `span`, the arc between two corners: its length, its middle, and a mark at every ten degrees."""

    degrees: float
    middle: Floats
    marks: Floats


def sides(trajectory: Trajectory) -> list[Side]:
    if trajectory.projection != "span":
        return []
    arcs = []
    for a, b in combinations(corners(trajectory), 2):
        degrees = float(np.degrees(2 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b))))
        if 1 < degrees < 179:
            at = np.concatenate([[degrees / 2], np.arange(10, degrees, 10)])[:, None]
            points = (np.sin(np.radians(degrees - at)) * a + np.sin(np.radians(at)) * b) / np.sin(np.radians(degrees))
            arcs.append(Side(degrees, points[0], points[1:]))
    return arcs


@dataclass(frozen=True)
class Label:
    """Text to be placed near a point."""

    text: str
    x: float
    y: float
    size: float
    gap: float
    ink: str
    style: str = ""


@dataclass(frozen=True)
class Placed:
    label: Label
    x: float
    y: float
    anchor: str


Box = tuple[float, float, float, float]


def place(labels: Sequence[Label], bounds: Box, taken: Iterable[Box] = ()) -> list[Placed]:
    """Each label beside its point, without overlap, in order of priority; labels without room are left out."""
    boxes = list(taken)
    placed = []
    for label in labels:
        width, height = text_width(label.text, label.size), label.size * 1.2
        for dx, dy in _AROUND:
            x = label.x + dx * label.gap
            y = label.y + dy * (label.gap + (height / 2 if dx == 0 else 0))
            left = x if dx > 0 else x - width if dx < 0 else x - width / 2
            box = (left - 2, y - height / 2, left + width + 2, y + height / 2)
            inside = bounds[0] <= box[0] and bounds[1] <= box[1] and box[2] <= bounds[2] and box[3] <= bounds[3]
            if inside and not any(_overlap(box, other) for other in boxes):
                boxes.append(box)
                anchor = "start" if dx > 0 else "end" if dx < 0 else "middle"
                placed.append(Placed(label, x, y, anchor))
                break
    return placed


# Positions that are tried in order: beside, above, below, then diagonal.
_AROUND: list[tuple[float, float]] = [(1, 0), (-1, 0), (0, -1), (0, 1)]
_AROUND += [(x, y) for y in (0.9, 1.8) for x, y in ((0.8, -y), (-0.8, -y), (0.8, y), (-0.8, y))]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def text_width(text: str, size: float) -> float:
    """The approximate width of a line of text without font metrics; rather too wide than too narrow."""
    narrow = sum(letter in "iljtfrI.,:;'|!()[] ·°" for letter in text)
    return size * (0.62 * cell_len(text) - 0.26 * narrow)


def lines(text: str, size: float, width: float) -> list[str]:
    """A paragraph broken into lines of at most that width."""
    rows = [""]
    for word in text.split(" "):
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if rows[-1] and text_width(longer, size) > width:
            rows.append(word)
        else:
            rows[-1] = longer
    return rows
