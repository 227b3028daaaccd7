"""What changes when the model is edited? Next words and trajectories of a sentence, beside the untouched model."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.vocabulary import Vocabulary
from armillary.edits import Edit, edited
from armillary.errors import ModelError
from armillary.flow.capture import run, still
from armillary.probes.words.lens import reads
from armillary.readouts.sentence_states import body, first_window, sentence_states, token_text
from armillary.readouts.trajectory import about, check, drawn_words, moves, notes, plural, projected
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.sheets.trajectory import Trajectory

COLUMNS = (
    Column("word", "a next word, probable before or after the edit"),
    Column("untouched", "its probability in the untouched model"),
    Column("edited", "its probability in the edited model"),
    Column("change", "logarithm of edited over untouched", "nats"),
)


def edited_words(anatomy: Anatomy, sentence: str, edits: Sequence[Edit], what: str, top: int = 8) -> Sheet:
    """The next words after a sentence, and its loss, with edits and without."""
    check(sentence)
    if not reads(anatomy):
        raise ModelError(f"{anatomy.name} predicts no next word, so an edit changes no probability; see the sphere.")
    window, _ = first_window(anatomy, sentence)
    ids = torch.tensor([window.ids])
    sides = []
    for chosen in ((), tuple(edits)):
        with still(anatomy.model), edited(anatomy, *chosen) if chosen else nullcontext():
            sides.append(run(anatomy, ids, logits=True)[0].double().log_softmax(-1).cpu())
    before, after = sides
    leaders = [side[-1].topk(min(top, side.shape[-1])).indices.tolist() for side in sides]
    best = torch.tensor(sorted({token for tokens in leaders for token in tokens}))
    order = best[before[-1, best].argsort(descending=True)]
    vocabulary = Vocabulary.of(anatomy)
    words = [token_text(vocabulary, int(i)) for i in order]
    old, new = (side[-1, order].exp().numpy() for side in sides)
    change = (after[-1, order] - before[-1, order]).tolist()
    rows = zip(words, old.tolist(), new.tolist(), change, strict=True)
    first = token_text(vocabulary, int(before[-1].argmax()))
    chances = [float(side[-1].max() if side is before else side[-1, before[-1].argmax()]) for side in sides]
    losses = [_loss(side, ids[0]) for side in sides]
    shift = f"‘{first.strip() or first}’ goes from {np.exp(chances[0]):.1%} to {np.exp(chances[1]):.1%}"
    cost = "" if losses[0] is None else f"; a token of the sentence costs {losses[0]:.2f} → {losses[1]:.2f} nats"
    quantity = Quantity(
        "probability of the next word", "after the last token of the sentence", "probability", ("word",),
        {"word": words}, new, controls={"untouched": old}, label="edited",
    )  # fmt: skip
    return Sheet(
        name="edited",
        title=f"{what}: {shift}{cost}",
        caption=f"{anatomy.name} · {plural(len(window.ids), 'token')} · next words of either model",
        tables={"next words": Table(COLUMNS, tuple(rows))},
        quantities=(quantity,),
    )


def _loss(log_p: Tensor, ids: Tensor) -> float | None:
    if len(ids) < 2:
        return None
    return float(-log_p[:-1].gather(-1, ids[1:, None]).mean())


def edited_paths(anatomy: Anatomy, sentence: str, edits: Sequence[Edit], top: int = 5) -> tuple[Trajectory, Trajectory]:
    """A sentence's trajectories without and with edits, in one projection, so that they can be compared."""
    check(sentence)
    window, whole = first_window(anatomy, sentence)
    drawn = drawn_words(len(body(window)))
    seen, units, targets = [], [], []
    for chosen in ((), tuple(edits)):
        with edited(anatomy, *chosen) if chosen else nullcontext():
            fields, states, goals = sentence_states(anatomy, window, drawn, False, top)
        seen.append(fields)
        units.append(states)
        targets.append(goals)
    both = projected("pca", np.concatenate(units), np.concatenate(targets), 0)
    paths = []
    for at, fields in enumerate(seen):
        part = slice(at * len(drawn), (at + 1) * len(drawn))
        path = Trajectory(
            model=f"{anatomy.name}, {'edited' if at else 'untouched'}",
            sentence=sentence,
            about="",
            notes=(),
            space="after the final norm" if anatomy.ln_final is not None else "as the norms leave them",
            moves=tuple(moves(fields["states"])),
            drawn=drawn,
            word=None,
            projection="pca",
            seed=0,
            **fields,
            **{name: both[name][part] for name in ("points", "targets", "shown")},
            scores=both["scores"],
        )
        paths.append(replace(path, about=about(path), notes=(*notes(path, whole), "Both globes have the same axes.")))
    return paths[0], paths[1]
