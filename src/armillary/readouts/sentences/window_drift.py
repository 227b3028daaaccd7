"""Where does a token go when the window slides? The same token, with more and more of the text before it gone.

Positions restart at the window's first token, as in `stability.drift`. Special tokens that the tokenizer puts in front
stay in front.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.tokens import Window
from armillary.readouts.head_spectra import Progress
from armillary.readouts.sentence_states import body, first_window, sentence_states
from armillary.readouts.trajectory import about, check, moves, plural, projected
from armillary.results import Quantity
from armillary.results.sheets.sheet import Sheet
from armillary.results.sheets.trajectory import Floats, Trajectory

MOST = 24
"""Most windows that are read."""


def window_drift(
    anatomy: Anatomy, text: str, word: int | None, progress: Progress, top: int = 5
) -> tuple[Trajectory, Sheet]:
    """The states of one token (the last, or number `word` from 1) in windows that start later and later."""
    check(text)
    window, _ = first_window(anatomy, text)
    ids = body(window)
    chosen = len(ids) - 1 if word is None else word - 1
    if not 0 <= chosen < len(ids):
        raise TextError(f"word {word} was asked for, and the text has {plural(len(ids), 'token')}; name one of them.")
    if chosen < 1:
        raise TextError("the first token has nothing before it that could slide out; choose a later one, or type more.")
    slides = np.unique(np.linspace(0, chosen, min(MOST, chosen + 1)).round().astype(int)).tolist()
    seen: list[dict[str, Any]] = []
    states, goals = [], []
    for done, by in enumerate(slides):
        progress("sliding the window", done, len(slides))
        fields, units, targets = sentence_states(anatomy, _slid(window, by), (chosen - by,), False, top)
        seen.append(fields)
        states.append(units[0])
        goals.append(targets[0])
    path = _path(anatomy, text, chosen, slides, seen, np.stack(states), np.stack(goals))
    path = replace(path, about=about(path), notes=(_explanation(slides),))
    return path, _sheet(anatomy, path, slides, seen[0]["states"], np.stack(states))


def _slid(window: Window, by: int) -> Window:
    """The window without its first `by` tokens."""
    return replace(window, ids=(*window.ids[: window.prefix], *window.ids[window.prefix + by :]))


def _path(
    anatomy: Anatomy,
    text: str,
    chosen: int,
    slides: list[int],
    seen: list[dict[str, Any]],
    units: Floats,
    goals: Floats,
) -> Trajectory:
    """The token's last state in every window, as a trajectory whose steps are slides."""
    last = units[:, -1]
    spot = [chosen - by for by in slides]
    own = np.array([fields["own"][at, -1] for fields, at in zip(seen, spot, strict=True)])
    following = np.array([fields["following"][at, -1] for fields, at in zip(seen, spot, strict=True)])
    readings = tuple(fields["readings"][0][-1] for fields in seen)
    drawn = projected("pca", last[None], goals[:1], 0)
    return Trajectory(
        model=anatomy.name,
        sentence=text,
        about="",
        notes=(),
        space="after the final norm" if anatomy.ln_final is not None else "as the norms leave them",
        words=(seen[0]["words"][chosen],),
        next_words=(seen[0]["next_words"][chosen],),
        states=tuple(f"slid {by}" for by in slides),
        moves=tuple(str(by) for by in slides[1:]),
        along="tokens slid out",
        moved=np.degrees(_angles(last[:-1], last[1:]))[None],
        own=own[None],
        following=following[None],
        drawn=(0,),
        word=None,
        probability=np.array([[fields["probability"][0, -1] for fields in seen]]),
        readings=(readings,),
        projection="pca",
        seed=0,
        **drawn,
    )


def _angles(a: Floats, b: Floats) -> Floats:
    """Angles between unit vectors, in radians."""
    return np.asarray(2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1)))


def _explanation(slides: list[int]) -> str:
    return (
        f"Each step of the globe is a window that starts later: {len(slides)} windows, from none to {slides[-1]} "
        "tokens slid out. Positions restart at 0 in each."
    )


def _sheet(anatomy: Anatomy, path: Trajectory, slides: list[int], states: tuple[str, ...], units: Floats) -> Sheet:
    """How far the token has moved from where it was in the whole window, by state."""
    moved = np.degrees(_angles(units, units[:1]))
    coords: dict[str, Any] = {"tokens slid out": [float(by) for by in slides]}
    half = len(slides) // 2
    return Sheet(
        name="drift",
        title=f"‘{path.words[0].strip()}’ has moved by {moved[half, -1]:.1f}° when {slides[half]} tokens have slid "
        f"out, and by {moved[-1, -1]:.1f}° when all {slides[-1]} have",
        caption=f"{anatomy.name} · angle to the same token in the whole window",
        tables={},
        quantities=(
            Quantity("drift of the last state", "angle to where it was before the window slid", "angle, degrees",
                     ("tokens slid out",), coords, moved[:, -1], theory={"unrelated: 90°": np.full(len(slides), 90.0)}),
            Quantity("drift by state", "the same after every layer", "degrees", ("state", "tokens slid out"),
                     {"state": ["start", *moves(states)], **coords}, moved.T),
        ),
    )  # fmt: skip
