"""Which way do one sentence's words take over the sphere, layer by layer?

Angles are measured in full dimension, of every word; what is drawn is three dimensions of it, with scores of how far the
drawing can be believed.
"""

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import ArmillaryError, TextError, nearest
from armillary.geometry.projection import check_installed, fidelity, globe, principal, span
from armillary.readouts.ask import Gauge
from armillary.results.quantity import Quantity
from armillary.results.sheet import Sheet
from armillary.results.trajectory import Floats, Journey, Reading

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

__all__ = ["Journey", "Reading", "check", "journey", "journey_sheet"]
# The paper's own.
SENTENCE = "To kill two birds with one stone"
PROJECTIONS = ("pca", "span", "pacmap", "umap")
MOST, SAMPLE = 40, 12
"""Words drawn at once; of a longer sentence, a sample of so many."""


def check(sentence: str, projection: str = "pca", top: int = 5, word: int | None = None) -> None:
    """Refuse, before a model is loaded, what no model could answer."""
    if not sentence.strip():
        raise TextError("the sentence is empty; give some words, such as 'To kill two birds with one stone'.")
    if any("\ud800" <= letter <= "\udfff" for letter in sentence):
        raise TextError("the sentence is no valid UTF-8 text; type or save it as UTF-8.")
    if projection not in PROJECTIONS:
        raise ArmillaryError(f"there is no projection {projection!r}; {nearest(projection, PROJECTIONS)}")
    check_installed(projection)
    if top < 1:
        raise ArmillaryError(f"--top {top} leaves no word to read; ask for 1 or more.")
    if word is not None and word < 1:
        raise ArmillaryError(f"--word {word} names no word; 1 is the first.")


def journey(
    anatomy: "Anatomy",
    sentence: str,
    projection: str = "pca",
    sublayers: bool = False,
    seed: int = 0,
    top: int = 5,
    word: int | None = None,
) -> Journey:
    """The sentence's words from state to state: angles in full dimension, what each state reads as, and a drawing.

    `projection` is pca, span (of one word: its start, its end and the next word, with true angles), pacmap or umap.
    `word` counts from 1; under span it is the last word by default.
    """
    check(sentence, projection, top, word)
    from armillary.readouts.trajectory_states import body, first_window, passage

    window, whole = first_window(anatomy, sentence)
    count = len(body(window))
    chosen = _chosen(word, count, projection)
    drawn = (chosen,) if projection == "span" and chosen is not None else _sample(count, chosen, seed)
    seen = passage(anatomy, window, drawn, sublayers, top)
    kept = ("words", "next_words", "states", "moved", "own", "following", "readings", "probability")
    made = Journey(
        model=anatomy.name,
        sentence=sentence,
        about="",
        notes=(),
        space="after the final norm" if anatomy.ln_final is not None else "as the norms leave them",
        moves=tuple(moves(seen.states)),
        drawn=drawn,
        word=chosen,
        projection=projection,
        seed=seed,
        **{name: getattr(seen, name) for name in kept},
        **_picture(projection, seen.units, seen.targets, seed),
    )
    return replace(made, about=_about(made), notes=tuple(_notes(made, whole)))


def journey_sheet(anatomy: "Anatomy", gauge: Gauge) -> Sheet:
    """E8: the paper's sentence through all layers, in one drawing that is fitted to all of its words."""
    made = journey(anatomy, SENTENCE, top=gauge.top)
    own, following = made.own.mean(0), made.following[:-1]
    after = {"after": ["start", *made.moves]}
    meaning = "mean over the sentence's words, in full dimension"
    lines = [Quantity("angle to the word itself", meaning, "°", ("after",), after, own)]
    title = f"The words of ‘{SENTENCE}’ end {own[-1]:.0f}° from themselves, where they began {own[0]:.0f}° away"
    if made.reads and len(following):
        both, count, start, end = made.travelled
        lines.append(Quantity("angle to the next word", meaning, "°", ("after",), after, following.mean(0)))
        title = (
            f"{both} of {count} words of ‘{SENTENCE}’ leave themselves and approach the next: {start:.0f}° → {end:.0f}°"
        )
    scores = ", ".join(f"{name} {score:.2f}" for name, score in made.scores.items())
    return Sheet(
        name="E8-journey",
        title=title,
        caption=f"{anatomy.name} · {_many(len(made.words))}, {len(made.states)} states each · directions {made.space}",
        tables={"way": made.table},
        quantities=tuple(lines),
        notes=(made.about, f"How far to believe the drawing, of 1: {scores or 'too few points'}.", *made.notes),
        about=gauge.about(anatomy),
        drawing=made,
    )


def moves(states: tuple[str, ...]) -> list[str]:
    """What lies between two states: a sublayer, or a whole layer where the states between its sublayers are left out.

    >>> moves(("L0.resid_pre", "L0.resid_mid", "L1.resid_pre", "L1.resid_post"))
    ['L0.attn', 'L0.mlp', 'L1']
    >>> moves(("L0.resid_pre", "L0.resid_post", "L1.resid_post"))
    ['L0', 'L1']
    """
    made = []
    for before, after in pairwise(states):
        (layer, place), (later, arrived) = before.split("."), after.split(".")
        if arrived == "resid_mid":
            made.append(f"{later}.attn")
        elif place == "resid_mid":
            made.append(f"{layer}.mlp")
        else:
            made.append(layer if arrived == "resid_pre" else later)
    return made


def _chosen(word: int | None, count: int, projection: str) -> int | None:
    if word is not None and word > count:
        raise ArmillaryError(
            f"--word {word} was asked for, and this model reads the sentence as {_many(count)}; name one of them."
        )
    if word is None:
        return count - 1 if projection == "span" else None
    return word - 1


def _sample(count: int, chosen: int | None, seed: int) -> tuple[int, ...]:
    """All words, or of a long sentence some at random, the last and the chosen one always among them."""
    if count <= MOST:
        return tuple(range(count))
    some = np.random.default_rng(seed).choice(count, SAMPLE, replace=False).tolist()
    kept = dict.fromkeys([count - 1, *([] if chosen is None else [chosen]), *some])
    return tuple(sorted(list(kept)[:SAMPLE]))


def _picture(projection: str, units: Floats, targets: Floats, seed: int) -> dict[str, Any]:
    """States [n, S, d] and vectors of words [n, d] drawn together: what is drawn is what was fitted, and scored."""
    count, steps, width = units.shape
    stacked = np.concatenate([units.reshape(-1, width), targets])
    again = None
    if projection in ("pca", "span"):
        axes = principal(stacked) if projection == "pca" else span(units[0, 0], units[0, -1], targets[0])
        shown = np.linalg.norm(units @ axes.T, axis=-1)
        drawn = globe("pca", stacked) if projection == "pca" else stacked @ axes.T
    else:
        shown = np.full((count, steps), np.nan)
        drawn, again = (globe(projection, stacked, chance) for chance in (seed, seed + 1))
    scores = dict(vars(fidelity(stacked, drawn, again))) if len(stacked) > 2 else {}
    points = drawn[: count * steps].reshape(count, steps, 3)
    return {"points": points, "targets": drawn[count * steps :], "shown": shown, "scores": scores}


def _about(made: Journey) -> str:
    if made.projection == "pca":
        return (
            "Seen from the sphere's centre along the three principal axes of all that is drawn: great circles stay great "
            f"circles, and {np.median(made.shown):.0%} of a state's length lies in these axes (median)."
        )
    if made.projection == "span":
        goal, between = "the next word" if made.reads else "its own vector", made.shown[:, 1:-1]
        kept = f", where {np.median(between):.0%} of their length lies (median)" if between.size else ""
        return (
            f"The space of the word's start, its end and {goal}. Angles with these three are true; the states between "
            f"lie inside the globe as far as they lie in this space{kept}."
        )
    return (
        f"Three coordinates of {made.projection} (seed {made.seed}), pushed out onto the globe from their middle: made to "
        "keep neighbours; angles and arcs are not to be read."
    )


def _notes(made: Journey, whole: int) -> list[str]:
    count, notes = len(made.words), []
    if whole > count:
        notes.append(f"Only the first {count:,} of {whole:,} tokens were read: what fits one window of this model.")
    if made.projection == "span":
        notes.append(f"Drawn: word {made.drawn[0] + 1} of {count:,}; the others are left out.")
    elif len(made.drawn) < count:
        notes.append(
            f"Drawn: {len(made.drawn)} of {count:,} words, chosen at random (seed {made.seed}); angles by layer are of all."
        )
    if not made.reads:
        notes.append("This model reads out no next word; drawn are the states and each word's own vector.")
    elif count - 1 in made.drawn:
        notes.append(
            "Nothing follows the last word: its next word is the model's own choice, and counts in no average."
        )
    return notes


def _many(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"
