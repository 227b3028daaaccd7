"""What does a journey's picture say in words? Every word of a model or a sentence is shown by itself before it is joined.

A right-to-left word is isolated where it stands; were the whole line shown at once, it would turn the line around.
"""

from collections.abc import Sequence

import numpy as np

from armillary.results.table import Cell, Column, Table
from armillary.results.trajectory import Journey
from armillary.views.text.quoting import show_text, show_token
from armillary.views.travel.ink import by_layer

# With more words than this the flat panel shows a band, not every word's line.
ENOUGH = 9


def title(journey: Journey) -> str:
    """What was found, in a sentence with its number."""
    if journey.projection == "span" or (len(journey.words) == 1 and journey.reads):
        return _one(journey, journey.drawn[0])
    if not journey.reads:
        start, end = journey.own[:, 0].mean(), journey.own[:, -1].mean()
        return f"Words end {end:.0f}° from themselves on average, where they began {start:.0f}° away"
    both, count, start, end = journey.travelled
    turned = _turned(start, end)
    return f"{both:,} of {count:,} words end farther from themselves and nearer to the next word: {turned} on average"


def _one(journey: Journey, t: int) -> str:
    goal = journey.next_words[t]
    towards, away = ("itself", journey.own[t]) if goal is None else (f"‘{plain(goal)}’", journey.following[t])
    way = f"‘{plain(journey.words[t])}’ walks {journey.moved[t].sum():.0f}°"
    return f"{way} and ends {away[-1]:.0f}° from {towards}, where it began {away[0]:.0f}° away"


def _turned(start: float, end: float) -> str:
    """
    >>> _turned(92.1, 82.4), _turned(90.3, 89.8)
    ('92° → 82°', '90.3° → 89.8°')
    """
    digits = 0 if round(start) != round(end) else 1
    return f"{start:.{digits}f}° → {end:.{digits}f}°"


def caption(journey: Journey) -> str:
    """Model, sentence, n, and the space in which angles are measured."""
    count = len(journey.words)
    said = f"“{show_text(' '.join(journey.sentence.split()), 120)}” · {count:,} token{'' if count == 1 else 's'}"
    return f"{show_text(journey.model)} · {said}, {len(journey.states)} states each · directions {journey.space}"


def legend(journey: Journey) -> str:
    """What the flat panel's lines are."""
    count = len(journey.words)
    if journey.word is not None:
        strong = f"‘{plain(journey.words[journey.word])}’"
    else:
        strong = "mean of the words" if count > 1 else "the word"
    others = "" if count == 1 else ", band: 8 of 10 words" if count > ENOUGH else ", thin: each word"
    return f"Bold: {strong}{others}. Dotted: 90°, where unrelated directions are."


def told(journey: Journey) -> tuple[str, ...]:
    """What colour and strength say, what the drawing keeps, and what was done to the sentence."""
    said = "Colour runs with the layers, from faint to strong." if by_layer(journey) else "One colour a word."
    what = "slanted: its next word" if journey.reads else "a diamond is its own vector"
    marks = f"{said} Thin lines are early, pale ones behind the globe. Bold: a word at its end; {what}."
    return marks, journey.about, *journey.notes


def score_lines(journey: Journey) -> list[str]:
    """How far to believe the drawing."""
    if not journey.scores:
        return [f"{journey.projection}: too few points to be scored"]
    named = {
        "trustworthiness": "trustworthiness (near here, near in truth)",
        "continuity": "continuity (near in truth, near here)",
        "correlation": "rank correlation with true angles",
        "stability": "stability over seeds",
    }
    scores = [f"{journey.scores[name]:.2f} {said}" for name, said in named.items()]
    return [f"{journey.projection}: how far to believe it, of 1", *scores]


def marks(journey: Journey) -> Sequence[tuple[str, str]]:
    """The marks on the globe and what they are."""
    return ("○", "start"), ("●", "end"), ("★", "the next word") if journey.reads else ("◆", "the word's own vector")


def plain(text: str, limit: int = 16) -> str:
    """A word of the sentence as a label, without the space before it; tables and hover labels show that."""
    return show_token(text[1:] if text.startswith(" ") and text.strip() else text, limit)


def summary(journey: Journey) -> Table:
    """A row for every drawn word: where it began and ended, and what it reads as there."""
    columns = [
        Column("word", "the token"),
        Column("itself", "angle to the word's own vector, at the start and the end", "°"),
    ]
    if journey.reads:
        columns += [
            Column("next word", "the true next token; of the last one the model's choice"),
            Column("from it", "angle to the next word's vector, at the start and the end", "°"),
            Column("p", "probability of the next word, at the end"),
        ]
    said = "likeliest at the end" if journey.reads else "nearest at the end"
    columns += [Column(name, f"the word that is {said}") for name in ("1st word", "2nd word")]
    rows = []
    for i, t in enumerate(journey.drawn):
        row: list[Cell] = [journey.words[t], _ends(journey.own[t])]
        if journey.reads:
            chance = journey.probability[i, -1]
            row += [
                journey.next_words[t],
                _ends(journey.following[t]),
                f"{chance:.1%}" if chance >= 0.0005 else "<0.1%",
            ]
        found = [reading.text for reading in journey.readings[i][-1][:2]]
        rows.append((*row, *found, *[None] * (2 - len(found))))
    return Table(tuple(columns), tuple(rows))


def _ends(angles: np.ndarray) -> str:
    return f"{angles[0]:.0f} → {angles[-1]:.0f}"
