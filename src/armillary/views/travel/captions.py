"""What does a trajectory's picture say in words? Every word of a model or a sentence is shown by itself before it is joined.

A right-to-left word is isolated where it stands; were the whole line shown at once, it would turn the line around.
"""

from collections.abc import Sequence

import numpy as np

from armillary.results.table import Cell, Column, Table
from armillary.results.trajectory import Trajectory
from armillary.views.text.quoting import show_text, show_token
from armillary.views.travel.colours import by_layer

# With more words than this the flat panel shows a band, not every word's line.
ENOUGH = 9


def title(trajectory: Trajectory) -> str:
    """What was found, in a sentence with its number."""
    if trajectory.projection == "span" or (len(trajectory.words) == 1 and trajectory.reads):
        return _one(trajectory, trajectory.drawn[0])
    if not trajectory.reads:
        start, end = trajectory.own[:, 0].mean(), trajectory.own[:, -1].mean()
        return f"Words end {end:.0f}° from themselves on average, where they began {start:.0f}° away"
    both, count, start, end = trajectory.travelled
    turned = _turned(start, end)
    return f"{both:,} of {count:,} words end farther from themselves and nearer to the next word: {turned} on average"


def _one(trajectory: Trajectory, t: int) -> str:
    goal = trajectory.next_words[t]
    towards, away = ("itself", trajectory.own[t]) if goal is None else (f"‘{plain(goal)}’", trajectory.following[t])
    way = f"‘{plain(trajectory.words[t])}’ walks {trajectory.moved[t].sum():.0f}°"
    return f"{way} and ends {away[-1]:.0f}° from {towards}, where it began {away[0]:.0f}° away"


def _turned(start: float, end: float) -> str:
    """
    >>> _turned(92.1, 82.4), _turned(90.3, 89.8)
    ('92° → 82°', '90.3° → 89.8°')
    """
    digits = 0 if round(start) != round(end) else 1
    return f"{start:.{digits}f}° → {end:.{digits}f}°"


def caption(trajectory: Trajectory) -> str:
    """Model, sentence, n, and the space in which angles are measured."""
    count = len(trajectory.words)
    said = f"“{show_text(' '.join(trajectory.sentence.split()), 120)}” · {count:,} token{'' if count == 1 else 's'}"
    return f"{show_text(trajectory.model)} · {said}, {len(trajectory.states)} states each · directions {trajectory.space}"


def legend(trajectory: Trajectory) -> str:
    """What the flat panel's lines are."""
    count = len(trajectory.words)
    if trajectory.word is not None:
        strong = f"‘{plain(trajectory.words[trajectory.word])}’"
    else:
        strong = "mean of the words" if count > 1 else "the word"
    others = "" if count == 1 else ", band: 8 of 10 words" if count > ENOUGH else ", thin: each word"
    return f"Bold: {strong}{others}. Dotted: 90°, where unrelated directions are."


def told(trajectory: Trajectory) -> tuple[str, ...]:
    """What colour and strength say, what the drawing keeps, and what was done to the sentence."""
    said = "Colour runs with the layers, from faint to strong." if by_layer(trajectory) else "One colour a word."
    what = "slanted: its next word" if trajectory.reads else "a diamond is its own vector"
    marks = f"{said} Thin lines are early, pale ones behind the globe. Bold: a word at its end; {what}."
    return marks, trajectory.about, *trajectory.notes


def score_lines(trajectory: Trajectory) -> list[str]:
    """How far to believe the drawing."""
    if not trajectory.scores:
        return [f"{trajectory.projection}: too few points to be scored"]
    named = {
        "trustworthiness": "trustworthiness (near here, near in truth)",
        "continuity": "continuity (near in truth, near here)",
        "correlation": "rank correlation with true angles",
        "stability": "stability over seeds",
    }
    scores = [f"{trajectory.scores[name]:.2f} {said}" for name, said in named.items()]
    return [f"{trajectory.projection}: how far to believe it, of 1", *scores]


def marks(trajectory: Trajectory) -> Sequence[tuple[str, str]]:
    """The marks on the globe and what they are."""
    return ("○", "start"), ("●", "end"), ("★", "the next word") if trajectory.reads else ("◆", "the word's own vector")


def plain(text: str, limit: int = 16) -> str:
    """A word of the sentence as a label, without the space before it; tables and hover labels show that."""
    return show_token(text[1:] if text.startswith(" ") and text.strip() else text, limit)


def summary(trajectory: Trajectory) -> Table:
    """A row for every drawn word: where it began and ended, and what it reads as there."""
    columns = [
        Column("word", "the token"),
        Column("itself", "angle to the word's own vector, at the start and the end", "°"),
    ]
    if trajectory.reads:
        columns += [
            Column("next word", "the true next token; of the last one the model's choice"),
            Column("from it", "angle to the next word's vector, at the start and the end", "°"),
            Column("p", "probability of the next word, at the end"),
        ]
    said = "likeliest at the end" if trajectory.reads else "nearest at the end"
    columns += [Column(name, f"the word that is {said}") for name in ("1st word", "2nd word")]
    rows = []
    for i, t in enumerate(trajectory.drawn):
        row: list[Cell] = [trajectory.words[t], _ends(trajectory.own[t])]
        if trajectory.reads:
            chance = trajectory.probability[i, -1]
            row += [
                trajectory.next_words[t],
                _ends(trajectory.following[t]),
                f"{chance:.1%}" if chance >= 0.0005 else "<0.1%",
            ]
        found = [reading.text for reading in trajectory.readings[i][-1][:2]]
        rows.append((*row, *found, *[None] * (2 - len(found))))
    return Table(tuple(columns), tuple(rows))


def _ends(angles: np.ndarray) -> str:
    return f"{angles[0]:.0f} → {angles[-1]:.0f}"
