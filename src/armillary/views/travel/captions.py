"""The texts of a trajectory's picture: title, caption, legend, notes, scores and summary table.

Every word of a model or a sentence is escaped before it is joined: a right-to-left word is isolated, so that it cannot
reverse the whole line.
"""

from collections.abc import Sequence

import numpy as np

from armillary.results.sheets.trajectory import Trajectory
from armillary.results.table import Cell, Column, Table
from armillary.views.text.quoting import show_text, show_token
from armillary.views.travel.colours import by_layer

# With more words than this the angle panel shows a band instead of a line per word.
MOST_LINES = 9


def title(trajectory: Trajectory) -> str:
    """The finding, in one sentence with its number."""
    if trajectory.projection == "span" or (len(trajectory.words) == 1 and trajectory.reads):
        return _word_sentence(trajectory, trajectory.drawn[0])
    if not trajectory.reads:
        start, end = trajectory.own[:, 0].mean(), trajectory.own[:, -1].mean()
        return f"On average, words start {start:.0f}° and end {end:.0f}° away from themselves"
    both, count, start, end = trajectory.travelled
    angles = _change(start, end)
    return f"{both:,} of {count:,} words end farther from themselves and nearer to the next word: {angles} on average"


def _word_sentence(trajectory: Trajectory, t: int) -> str:
    goal = trajectory.next_words[t]
    target, angles = ("itself", trajectory.own[t]) if goal is None else (f"‘{plain(goal)}’", trajectory.following[t])
    moved = f"‘{plain(trajectory.words[t])}’ moves {trajectory.moved[t].sum():.0f}° in total"
    return f"{moved}; it starts {angles[0]:.0f}° and ends {angles[-1]:.0f}° away from {target}"


def _change(start: float, end: float) -> str:
    """
    >>> _change(92.1, 82.4), _change(90.3, 89.8)
    ('92° → 82°', '90.3° → 89.8°')
    """
    digits = 0 if round(start) != round(end) else 1
    return f"{start:.{digits}f}° → {end:.{digits}f}°"


def caption(trajectory: Trajectory) -> str:
    """Model, sentence, number of tokens, and the space in which angles are measured."""
    count, sentence = len(trajectory.words), show_text(" ".join(trajectory.sentence.split()), 120)
    tokens = f"{count:,} token{'' if count == 1 else 's'}, {len(trajectory.states)} states each"
    return f"{show_text(trajectory.model)} · “{sentence}” · {tokens} · directions {trajectory.space}"


def legend(trajectory: Trajectory) -> str:
    """What the lines of the angle panel are."""
    count = len(trajectory.words)
    if trajectory.word is not None:
        strong = f"‘{plain(trajectory.words[trajectory.word])}’"
    else:
        strong = "mean of the words" if count > 1 else "the word"
    others = "" if count == 1 else ", band: 80 % of words" if count > MOST_LINES else ", thin: each word"
    return f"Bold: {strong}{others}. Dotted: 90°, the angle of unrelated directions."


def notes(trajectory: Trajectory) -> tuple[str, ...]:
    """What the colours mean, what the projection preserves, and what was done to the sentence."""
    colours = "Colour shows the layer, from faint to strong." if by_layer(trajectory) else "One colour per word."
    target = "italic: its next word" if trajectory.reads else "diamond: its own vector"
    step = "layer" if trajectory.along == "layer" else "step"
    marks = (
        f"{colours} Thin lines are early {step}s, pale ones lie behind the globe. Bold: a word at its end; {target}."
    )
    return marks, trajectory.about, *trajectory.notes


def score_lines(trajectory: Trajectory) -> list[str]:
    """Scores of how faithful the projection is."""
    if not trajectory.scores:
        return [f"{trajectory.projection}: too few points to score"]
    named = {
        "trustworthiness": "trustworthiness (near here, near in full dimension)",
        "continuity": "continuity (near in full dimension, near here)",
        "correlation": "rank correlation with true angles",
        "stability": "stability over seeds",
    }
    scores = [f"{trajectory.scores[name]:.2f} {meaning}" for name, meaning in named.items()]
    return [f"{trajectory.projection}: how faithful it is (1 is best)", *scores]


def marks(trajectory: Trajectory) -> Sequence[tuple[str, str]]:
    """The marks on the globe and their meanings."""
    return ("○", "start"), ("●", "end"), ("★", "the next word") if trajectory.reads else ("◆", "the word's own vector")


def plain(text: str, limit: int = 16) -> str:
    """A word of the sentence as a label, without its leading space, which only tables and hover labels show."""
    return show_token(text[1:] if text.startswith(" ") and text.strip() else text, limit)


def summary(trajectory: Trajectory) -> Table:
    """One row per drawn word: angles at its start and end, and what it reads as at the end."""
    columns = [
        Column("word", "the token"),
        Column("itself", "angle to the word's own vector, at the start and the end", "°"),
    ]
    if trajectory.reads:
        columns += [
            Column("next word", "the true next token; for the last one the model's prediction"),
            Column("from it", "angle to the next word's vector, at the start and the end", "°"),
            Column("p", "probability of the next word, at the end"),
        ]
    meaning = f"the {'most probable' if trajectory.reads else 'nearest'} word at the end"
    columns += [Column("1st word", meaning), Column("2nd word", f"{meaning}, after the first")]
    rows = []
    for i, t in enumerate(trajectory.drawn):
        row: list[Cell] = [trajectory.words[t], _ends(trajectory.own[t])]
        if trajectory.reads:
            p = trajectory.probability[i, -1]
            probability = f"{p:.1%}" if p >= 0.0005 else "<0.1%"
            row += [trajectory.next_words[t], _ends(trajectory.following[t]), probability]
        words = [reading.text for reading in trajectory.readings[i][-1][:2]]
        rows.append((*row, *words, *[None] * (2 - len(words))))
    return Table(tuple(columns), tuple(rows))


def _ends(angles: np.ndarray) -> str:
    return f"{angles[0]:.0f} → {angles[-1]:.0f}"
