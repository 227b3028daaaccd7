"""The trajectory of one sentence through the layers: its numbers, ready to be drawn and tabulated."""

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
    """A word that a state reads as: its angle, and its probability if the model predicts words."""

    text: str
    angle: float
    probability: float | None = None


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The paths of a sentence's t words through S states; n of the words are drawn.

    All angles are in degrees, in the space that `space` names.
    """

    model: str
    sentence: str
    about: str
    """What the projection preserves and what it loses."""
    notes: tuple[str, ...]
    space: str
    words: tuple[str, ...]
    next_words: tuple[str | None, ...]
    """The true next word; for the last word the model's prediction; None if the model predicts none."""
    states: tuple[str, ...]
    moves: tuple[str, ...]
    """The sublayer or layer between two states."""
    moved: Floats
    """[t, S − 1]: the angle between two states."""
    own: Floats
    """[t, S]: the angle to the word's own vector."""
    following: Floats
    """[t, S]: the angle to the next word's vector; NaN if there is none."""
    drawn: tuple[int, ...]
    """Indices of the words that are drawn."""
    word: int | None
    """The word that was asked for, if any."""
    points: Floats
    """[n, S, 3]: states on the unit globe, or inside it for the projection `span`."""
    targets: Floats
    """[n, 3]: vectors of the next words, or of the words themselves if there is no next word."""
    shown: Floats
    """[n, S]: share of a state's unit length in the three axes; NaN for a projection without axes."""
    probability: Floats
    """[n, S]: probability of the next word, read from each state; NaN if the model predicts none."""
    readings: tuple[tuple[tuple[Reading, ...], ...], ...]
    """For every drawn word and state, the words it reads as, most probable (or nearest) first."""
    projection: str
    seed: int
    scores: Mapping[str, float]
    """Trustworthiness, continuity, correlation and stability of the projection; 1 is best."""
    along: str = "layer"
    """What passes from state to state; if not layers, `moves` count it."""

    @property
    def reads(self) -> bool:
        """Does the model predict a next word?"""
        return any(word is not None for word in self.next_words)

    @property
    def travelled(self) -> tuple[int, int, float, float]:
        """How many words end farther from themselves and nearer to their next word, of how many, and the mean angles to
        the next word at the start and at the end. The last word has no true next word and is not counted."""
        own, following = self.own[:-1], self.following[:-1]
        both = (own[:, -1] > own[:, 0]) & (following[:, -1] < following[:, 0])
        start, end = (float(following[:, i].mean()) if len(both) else float("nan") for i in (0, -1))
        return int(both.sum()), len(both), start, end

    @property
    def labels(self) -> tuple[str, ...]:
        """The states in plain words: 'start', 'after L0', …"""
        if self.along != "layer":
            return tuple(f"{count} {self.along}" for count in ("0", *self.moves))
        return ("start", *(f"after {move}" for move in self.moves))

    def to_frame(self) -> "pandas.DataFrame":
        """One row per word and state."""
        return self.table.to_frame()

    @property
    def table(self) -> Table:
        """One row per word and state; points and readings only for words that are drawn."""
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
        reading = self.readings[i][s][0].text if self.readings[i][s] else None
        numbers = {"probability": _known(self.probability[i, s]), "shown": _known(self.shown[i, s])}
        return {"reads as": reading, **numbers, **dict(zip("xyz", map(float, self.points[i, s]), strict=True))}

    def plot(self) -> "plotly.graph_objects.Figure":
        """An interactive globe for a notebook, with the angles beside it."""
        from armillary.views.travel.interactive import figure

        return figure(self)

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), the picture (.svg .png), the table (.csv) or everything (.json)."""
        from armillary.views.save import save_trajectory

        return save_trajectory(self, Path(path))

    def __str__(self) -> str:
        from armillary.views.travel.formats import trajectory_text

        return trajectory_text(self)

    def _repr_html_(self) -> str:
        from armillary.views.travel.trajectory_page import notebook_html

        return notebook_html(self)


_COLUMNS = (
    ("position", "position of the word in the sentence, from 1", ""),
    ("word", "the token", ""),
    ("next word", "the true next token; for the last one the model's prediction", ""),
    ("state", "state of the stream", ""),
    ("moved", "angle between this state and the one before", "°"),
    ("itself", "angle to the word's own vector", "°"),
    ("next", "angle to the next word's vector", "°"),
    ("probability", "probability of the next word, read from this state", ""),
    ("reads as", "the most probable next word at this state, or the nearest word if the model predicts none", ""),
    ("x", "coordinate in the drawing", ""),
    ("y", "coordinate in the drawing", ""),
    ("z", "coordinate in the drawing", ""),
    ("shown", "share of the state's length in the three axes of the drawing", ""),
)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
