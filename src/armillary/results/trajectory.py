"""What is kept of one sentence's way through the layers, to be drawn and read?"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.results.table import Cell, Column, Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """A word of the vocabulary as a state is read: its angle, and its probability where the model gives one."""

    text: str
    angle: float
    probability: float | None = None


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The ways of a sentence's words, t of them, through S states; n of them are drawn.

    All angles are in degrees and in one space, which `space` names.
    """

    model: str
    sentence: str
    about: str
    """What the drawing keeps of the truth and what it drops."""
    notes: tuple[str, ...]
    space: str
    words: tuple[str, ...]
    next_words: tuple[str | None, ...]
    """The true next word; of the last one the model's own choice; None where the model reads out none."""
    states: tuple[str, ...]
    moves: tuple[str, ...]
    """The sublayer or layer between two states."""
    moved: Floats
    """[t, S − 1]: the angle between two states."""
    own: Floats
    """[t, S]: the angle to the word's own vector."""
    following: Floats
    """[t, S]: the angle to the next word's vector; NaN where there is none."""
    drawn: tuple[int, ...]
    """Which of the words are drawn."""
    word: int | None
    """The one word that was asked for."""
    points: Floats
    """[n, S, 3]: states on the unit globe, or inside it under the projection `span`."""
    targets: Floats
    """[n, 3]: next words' vectors, or the words' own where there is no next word."""
    shown: Floats
    """[n, S]: how much of a state's unit length lies in the three axes; NaN for a projection that has none."""
    probability: Floats
    """[n, S]: the next word's, read off each state; NaN where the model reads out none."""
    readings: tuple[tuple[tuple[Reading, ...], ...], ...]
    """For every drawn word and state, the words it reads as, likeliest (or nearest) first."""
    projection: str
    seed: int
    scores: Mapping[str, float]
    """Trustworthiness, continuity, correlation and stability of the drawing; 1 keeps everything."""

    @property
    def reads(self) -> bool:
        """Does the model read out a next word?"""
        return any(word is not None for word in self.next_words)

    @property
    def travelled(self) -> tuple[int, int, float, float]:
        """How many words with a true next one end farther from themselves and nearer to it, of how many; and their mean
        angles to it at the start and at the end. The last word's next one is the model's choice, and is not counted."""
        own, following = self.own[:-1], self.following[:-1]
        both = (own[:, -1] > own[:, 0]) & (following[:, -1] < following[:, 0])
        start, end = (float(following[:, i].mean()) if len(both) else float("nan") for i in (0, -1))
        return int(both.sum()), len(both), start, end

    @property
    def labels(self) -> tuple[str, ...]:
        """The states in plain words."""
        return ("start", *(f"after {move}" for move in self.moves))

    def to_frame(self) -> "pandas.DataFrame":
        """A row for every word and state."""
        return self.table.to_frame()

    @property
    def table(self) -> Table:
        """A row for every word and state; what is drawn, and read in words, only of drawn words."""
        columns = [Column(name, meaning, unit) for name, meaning, unit in _COLUMNS]
        place = {word: i for i, word in enumerate(self.drawn)}
        rows: list[dict[str, Cell]] = []
        for t, word in enumerate(self.words):
            for s, state in enumerate(self.states):
                row: dict[str, Cell] = {name: None for name, _, _ in _COLUMNS}
                row |= {"position": t + 1, "word": word, "next word": self.next_words[t], "state": state}
                row |= {"itself": float(self.own[t, s]), "next": _known(self.following[t, s])}
                row["moved"] = float(self.moved[t, s - 1]) if s else None
                row |= self._drawn(place[t], s) if t in place else {}
                rows.append(row)
        return Table.of(columns, rows)

    def _drawn(self, i: int, s: int) -> dict[str, Cell]:
        first = self.readings[i][s][0] if self.readings[i][s] else None
        x, y, z = map(float, self.points[i, s])
        return {
            "probability": _known(self.probability[i, s]),
            "reads as": None if first is None else first.text,
            "x": x,
            "y": y,
            "z": z,
            "shown": _known(self.shown[i, s]),
        }

    def plot(self) -> "plotly.graph_objects.Figure":
        """A globe to turn and play in a notebook, with the angles beside it."""
        from armillary.views.travel.formats import trajectory_figure

        return trajectory_figure(self)

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), the picture (.svg .png), the table (.csv) or all of it (.json)."""
        from armillary.views.travel.formats import save_trajectory

        return save_trajectory(self, Path(path))

    def __str__(self) -> str:
        from armillary.views.travel.formats import trajectory_text

        return trajectory_text(self)

    def _repr_html_(self) -> str:
        from armillary.views.travel.formats import trajectory_html

        return trajectory_html(self)


_COLUMNS = (
    ("position", "of the word in the sentence, from 1", ""),
    ("word", "the token", ""),
    ("next word", "the true next token; of the last one the model's choice", ""),
    ("state", "of the stream", ""),
    ("moved", "angle moved since the state before", "°"),
    ("itself", "angle to the word's own vector", "°"),
    ("next", "angle to the next word's vector", "°"),
    ("probability", "the next word's, read off this state", ""),
    ("reads as", "the likeliest next word at this state, or the nearest word where the model reads out none", ""),
    ("x", "on the drawing", ""),
    ("y", "on the drawing", ""),
    ("z", "on the drawing", ""),
    ("shown", "share of the state's length that lies in the drawing's three axes", ""),
)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
