"""The trajectory of a sentence's words over the sphere, layer by layer.

Angles of every word are measured in full dimension. The drawing is a projection to three dimensions, with scores of how
faithful it is.
"""

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import ArmillaryError, TextError, nearest
from armillary.geometry.projection import check_installed, fidelity, globe, principal, span
from armillary.results.sheets.trajectory import Floats, Reading, Trajectory

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

__all__ = ["Reading", "Trajectory", "check", "trajectory"]
PROJECTIONS = ("pca", "span", "pacmap", "umap")
MOST, SAMPLE = 40, 12
"""Most words drawn at once, and the size of the sample of a longer sentence."""


def check(sentence: str, projection: str = "pca", top: int = 5, word: int | None = None) -> None:
    """Refuse, before a model is loaded, what no model can answer."""
    if not sentence.strip():
        raise TextError("the sentence is empty; give some words, such as 'To kill two birds with one stone'.")
    if any("\ud800" <= letter <= "\udfff" for letter in sentence):
        raise TextError("the sentence is not valid UTF-8; type or save it as UTF-8.")
    if projection not in PROJECTIONS:
        raise ArmillaryError(f"there is no projection {projection!r}; {nearest(projection, PROJECTIONS)}")
    check_installed(projection)
    if top < 1:
        raise ArmillaryError(f"--top {top} leaves no word to read; ask for 1 or more.")
    if word is not None and word < 1:
        raise ArmillaryError(f"there is no token {word}; 1 is the first.")


def trajectory(
    anatomy: "Anatomy",
    sentence: str,
    projection: str = "pca",
    sublayers: bool = False,
    seed: int = 0,
    top: int = 5,
    word: int | None = None,
) -> Trajectory:
    """A sentence's words from state to state: angles in full dimension, what each state reads as, and a projection.

    `projection` is pca, span (for one word: its start, its end and the next word, with true angles), pacmap or umap.
    `word` counts from 1; for span it is the last word by default.
    """
    check(sentence, projection, top, word)
    from armillary.readouts.sentence_states import body, first_window, sentence_states

    window, whole = first_window(anatomy, sentence)
    count = len(body(window))
    chosen = _chosen(word, count, projection)
    drawn = (chosen,) if projection == "span" and chosen is not None else drawn_words(count, chosen, seed)
    seen, units, targets = sentence_states(anatomy, window, drawn, sublayers, top)
    path = Trajectory(
        model=anatomy.name,
        sentence=sentence,
        about="",
        notes=(),
        space="after the final norm" if anatomy.ln_final is not None else "as the norms leave them",
        moves=tuple(moves(seen["states"])),
        drawn=drawn,
        word=chosen,
        projection=projection,
        seed=seed,
        **seen,
        **projected(projection, units, targets, seed),
    )
    return replace(path, about=about(path), notes=tuple(notes(path, whole)))


def moves(states: tuple[str, ...]) -> list[str]:
    """What lies between two states: a sublayer, or a whole layer if the states between its sublayers are left out.

    >>> moves(("L0.resid_pre", "L0.resid_mid", "L1.resid_pre", "L1.resid_post"))
    ['L0.attn', 'L0.mlp', 'L1']
    >>> moves(("L0.resid_pre", "L0.resid_post", "L1.resid_post"))
    ['L0', 'L1']
    """
    names = []
    for before, after in pairwise(states):
        (layer, place), (later, arrived) = before.split("."), after.split(".")
        if arrived == "resid_mid":
            names.append(f"{later}.attn")
        elif place == "resid_mid":
            names.append(f"{layer}.mlp")
        else:
            names.append(layer if arrived == "resid_pre" else later)
    return names


def _chosen(word: int | None, count: int, projection: str) -> int | None:
    if word is not None and word > count:
        raise ArmillaryError(
            f"there is no token {word}: this model reads the sentence as {plural(count, 'token')}; name one of them."
        )
    if word is None:
        return count - 1 if projection == "span" else None
    return word - 1


def drawn_words(count: int, chosen: int | None = None, seed: int = 0) -> tuple[int, ...]:
    """All words, or a random sample of a long sentence that always contains the last and the chosen word."""
    if count <= MOST:
        return tuple(range(count))
    random = np.random.default_rng(seed).choice(count, SAMPLE, replace=False).tolist()
    sample = dict.fromkeys([count - 1, *([] if chosen is None else [chosen]), *random])
    return tuple(sorted(list(sample)[:SAMPLE]))


def projected(projection: str, units: Floats, targets: Floats, seed: int) -> dict[str, Any]:
    """States [n, S, d] and vectors of words [n, d] projected together: exactly what is fitted is drawn and scored."""
    count, steps, width = units.shape
    stacked = np.concatenate([units.reshape(-1, width), targets])
    second = None
    if projection in ("pca", "span"):
        axes = principal(stacked) if projection == "pca" else span(units[0, 0], units[0, -1], targets[0])
        shown = np.linalg.norm(units @ axes.T, axis=-1)
        drawn = globe("pca", stacked) if projection == "pca" else stacked @ axes.T
    else:
        shown = np.full((count, steps), np.nan)
        drawn, second = (globe(projection, stacked, s) for s in (seed, seed + 1))
    scores = dict(vars(fidelity(stacked, drawn, second))) if len(stacked) > 2 else {}
    points = drawn[: count * steps].reshape(count, steps, 3)
    return {"points": points, "targets": drawn[count * steps :], "shown": shown, "scores": scores}


def about(path: Trajectory) -> str:
    """What the projection preserves and what it loses."""
    if path.projection == "pca":
        return (
            "Projection from the sphere's centre onto the three principal axes of everything drawn: great circles "
            f"stay great circles, and the axes hold {np.median(path.shown):.0%} of a state's length (median)."
        )
    if path.projection == "span":
        goal, between = "the next word" if path.reads else "its own vector", path.shown[:, 1:-1]
        share = f", which holds {np.median(between):.0%} of their length (median)" if between.size else ""
        return (
            f"The space of the word's start, its end and {goal}. Angles with these three are true; the states between "
            f"are projected into this space{share}, so they lie inside the globe."
        )
    return (
        f"Three coordinates of {path.projection} (seed {path.seed}), projected onto the globe from their mean. The "
        "method preserves neighbours; angles and arcs have no meaning."
    )


def notes(path: Trajectory, whole: int) -> list[str]:
    """What a reader must know of the words that are drawn; `whole` counts the tokens that were given."""
    count, lines = len(path.words), list[str]()
    if whole > count:
        lines.append(f"Only the first {count:,} of {whole:,} tokens were read: one window of this model.")
    if path.projection == "span":
        lines.append(f"Drawn: word {path.drawn[0] + 1} of {count:,}; the others are left out.")
    elif len(path.drawn) < count:
        sample = f"{len(path.drawn)} of {count:,} words, chosen at random (seed {path.seed})"
        lines.append(f"Drawn: {sample}; angles by layer are those of all words.")
    if not path.reads:
        lines.append("This model does not predict a next word; the drawing shows states and each word's own vector.")
    elif count - 1 in path.drawn:
        lines.append("The last word has no true next word: the model's prediction is shown, and counts in no average.")
    return lines


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "token"), plural(1200, "token")
    ('1 token', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
