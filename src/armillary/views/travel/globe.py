"""The globe of a trajectory as SVG elements."""

from collections.abc import Iterator
from html import escape
from itertools import groupby

import numpy as np

from armillary.results.sheets.trajectory import Trajectory
from armillary.views.text.quoting import show_token
from armillary.views.travel.captions import marks, plain, score_lines
from armillary.views.travel.colours import INKS, by_layer, fill, ink, stop, stroke
from armillary.views.travel.scene import Box, Floats, Label, paths, place, rings, sides, view

WIDTH, HEIGHT, RADIUS = 600, 650, 272
_X, _Y = WIDTH / 2, RADIUS + 12
# Opacity of what lies behind the globe's centre.
_BEHIND = 0.3


def globe_svg(trajectory: Trajectory) -> str:
    """The globe in a frame of WIDTH × HEIGHT, with scores in one corner and a key to the marks in the other."""
    turn = view(trajectory)
    behind, before = _arcs(trajectory, turn)
    dots_behind, dots_before = _dots(trajectory, turn)
    shades = stop("lit", 0) + stop("body", 0.55) + stop("edge", 1)
    ball = f'cx="{_X}" cy="{_Y}" r="{RADIUS}"'
    parts = [
        f'<defs><radialGradient id="globe" cx=".36" cy=".3" r=".8">{shades}</radialGradient></defs>',
        f'<circle {ball} fill="url(#globe)"/>',
        *_rings(trajectory, turn, front=False),
        f'<g fill="none" opacity="{_BEHIND}" stroke-linecap="round">{"".join(behind)}</g>',
        f'<g opacity="{_BEHIND}">{"".join(dots_behind)}</g>',
        f'<circle {ball} {fill("ground")} opacity=".2"/>',
        *_rings(trajectory, turn, front=True),
        f'<circle {ball} {stroke("accent")} fill="none" stroke-width="1.2" opacity=".8"/>',
        f'<g fill="none" stroke-linecap="round">{"".join(before)}</g>',
        *dots_before,
        *_sides(trajectory, turn),
        *_labels(trajectory, turn),
        *_corners(trajectory),
    ]
    return "".join(parts)


def faded(trajectory: Trajectory, word: int) -> float:
    """Opacity of a drawn word: lower if another word was asked for."""
    return 1.0 if trajectory.word is None or trajectory.drawn[word] == trajectory.word else 0.22


def _at(p: Floats) -> tuple[float, float]:
    return round(_X + RADIUS * float(p[0]), 1), round(_Y - RADIUS * float(p[1]), 1)


def _path(line: Floats) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in map(_at, line))


def _halves(line: Floats) -> Iterator[tuple[bool, str]]:
    """(in front?, path) for each stretch of a line on one side of the globe."""
    front = (line[:-1, 2] + line[1:, 2]) >= 0
    for side, group in groupby(range(len(front)), key=lambda i: bool(front[i])):
        part = list(group)
        yield side, _path(line[part[0] : part[-1] + 2])


def _rings(trajectory: Trajectory, turn: Floats, front: bool) -> list[str]:
    look = f'{stroke("accent")} fill="none" opacity="{0.55 if front else 0.22}"'
    lines = [ring @ turn.T for ring in rings(trajectory)]
    return [f'<path {look} d="{path}"/>' for line in lines for side, path in _halves(line) if side == front]


def _arcs(trajectory: Trajectory, turn: Floats) -> tuple[list[str], list[str]]:
    """Arcs behind and in front; later steps are stronger."""
    sides: tuple[list[str], list[str]] = ([], [])
    for word, arcs in enumerate(paths(trajectory)):
        for step, line in enumerate(arcs @ turn.T, 1):
            depth = step / len(trajectory.moves)
            look = f'{stroke(ink(trajectory, word, step))} stroke-width="{1 + 1.4 * depth:.1f}"'
            look += f' opacity="{faded(trajectory, word) * (0.4 + 0.6 * depth):.2f}"'
            for front, path in _halves(line):
                sides[front].append(f'<path {look} d="{path}"/>')
    return sides


def _dots(trajectory: Trajectory, turn: Floats) -> tuple[list[str], list[str]]:
    sides: tuple[list[str], list[str]] = ([], [])
    last = len(trajectory.states) - 1
    for word, points in enumerate(trajectory.points @ turn.T):
        opacity = f'opacity="{faded(trajectory, word):.2f}"'
        for state, p in enumerate(points):
            # Nearer dots are larger.
            size = (0.86 + 0.14 * p[2]) * (4.8 if state in (0, last) else 2.0)
            x, y = _at(p)
            name = ink(trajectory, word, max(1, state))
            look = _hollow(name) if state == 0 else fill(name)
            sides[int(p[2] >= 0)].append(f'<circle cx="{x}" cy="{y}" r="{size:.1f}" {look} {opacity}/>')
        goal = trajectory.targets[word] @ turn.T
        name = "accent" if by_layer(trajectory) else ink(trajectory, word, last)
        sides[int(goal[2] >= 0)].append(f'<path {_edged(name)} {opacity} d="{_target(trajectory, goal)}"/>')
    return sides


def _hollow(name: str) -> str:
    return f'class="s-{name} f-ground" stroke="{INKS[name][0]}" fill="{INKS["ground"][0]}" stroke-width="1.9"'


def _edged(name: str) -> str:
    return f'class="s-ground f-{name}" stroke="{INKS["ground"][0]}" fill="{INKS[name][0]}"'


def _target(trajectory: Trajectory, p: Floats) -> str:
    """A star at the next word, or a diamond at the word's own vector."""
    count = 10 if trajectory.reads else 4
    angle = np.pi / 2 + 2 * np.pi * np.arange(count) / count
    reach = np.where(np.arange(count) % 2 == 0, 9.5, 4.0) if trajectory.reads else np.full(count, 6.5)
    reach = reach * (0.88 + 0.12 * p[2]) / RADIUS
    return _path(np.stack([p[0] + reach * np.cos(angle), p[1] + reach * np.sin(angle)], 1)) + "Z"


def _sides(trajectory: Trajectory, turn: Floats) -> list[str]:
    parts = []
    for side in sides(trajectory):
        for i, p in enumerate(side.marks @ turn.T, 1):
            x, y = _at(p)
            parts.append(f'<circle {fill("accent")} cx="{x}" cy="{y}" r="{3 if i % 3 == 0 else 1.7}" opacity=".85"/>')
        x, y = _at(side.middle @ turn.T)
        parts.append(_text(f"{side.degrees:.0f}°", x + 9, y - 8, "accent", ' font-size="14" font-weight="650"'))
    return parts


def _labels(trajectory: Trajectory, turn: Floats) -> list[str]:
    """Ends first, then stars, then what the chosen word reads as between."""
    ends, stars, between = [], {}, []
    last = len(trajectory.states) - 1
    for word, t in enumerate(trajectory.drawn):
        if faded(trajectory, word) < 1:
            continue
        name = "ink" if by_layer(trajectory) else ink(trajectory, word, last)
        ends += _label(trajectory.points[word, -1] @ turn.T, trajectory.words[t], 14, 10, name, ' font-weight="650"')
        # Words with the same next word share its star and its label.
        goal = trajectory.next_words[t]
        if goal is not None:
            stars[goal] = _label(trajectory.targets[word] @ turn.T, goal, 12.5, 11, name, ' font-style="italic"')
        if len(trajectory.drawn) == 1 or trajectory.word is not None:
            between = _readings(trajectory, word, turn)
    wanted = [*ends, *(label for labels in stars.values() for label in labels), *between]
    placed = place(wanted, (2, 2, WIDTH - 2, HEIGHT - 90), _taken(trajectory, turn))
    return [
        _text(p.label.text, p.x, p.y + p.label.size * 0.36, p.label.ink,
              f' font-size="{p.label.size}" text-anchor="{p.anchor}"{p.label.style}')
        for p in placed
    ]  # fmt: skip


def _label(p: Floats, text: str, size: float, gap: float, name: str, style: str) -> list[Label]:
    return [Label(plain(text), *_at(p), size, gap, name, style)] if p[2] >= -0.05 else []


def _readings(trajectory: Trajectory, word: int, turn: Floats) -> list[Label]:
    """What a state reads as, where that changes."""
    first = [words[0].text if words else "" for words in trajectory.readings[word]]
    labels = []
    for state, p in enumerate(trajectory.points[word] @ turn.T):
        if p[2] >= -0.05 and first[state] and (state == 0 or first[state] != first[state - 1]):
            labels.append(Label(show_token(first[state], 14), *_at(p), 11.5, 6, "soft"))
    return labels


def _taken(trajectory: Trajectory, turn: Floats) -> list[Box]:
    """Boxes that no label may cover: ends and stars."""
    spots = np.concatenate([trajectory.points[:, -1], trajectory.targets]) @ turn.T
    return [(x - 5, y - 5, x + 5, y + 5) for x, y in map(_at, spots[spots[:, 2] >= 0])]


def _text(text: str, x: float, y: float, name: str, more: str) -> str:
    """Text with a halo in the background colour, so that lines do not cross its letters."""
    look = f'class="f-{name} s-ground" fill="{INKS[name][0]}" stroke="{INKS["ground"][0]}" stroke-width="3.5"'
    look += ' stroke-opacity=".8" paint-order="stroke" stroke-linejoin="round"'
    return f'<text {look} x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _corners(trajectory: Trajectory) -> list[str]:
    parts = []
    scores, rows = score_lines(trajectory), marks(trajectory)
    for i, line in enumerate(scores):
        look = fill("soft") if i else f'{fill("ink")} font-weight="650"'
        parts.append(f'<text {look} x="8" y="{HEIGHT - 8 - 16 * (len(scores) - 1 - i)}">{escape(line)}</text>')
    for i, (mark, name) in enumerate(rows):
        y = HEIGHT - 8 - 16 * (len(rows) - 1 - i)
        parts.append(f'<text {fill("ink")} x="{WIDTH - 16}" y="{y}" text-anchor="middle">{mark}</text>')
        parts.append(f'<text {fill("soft")} x="{WIDTH - 28}" y="{y}" text-anchor="end">{escape(name)}</text>')
    return parts
