"""Training: a model's geometry over the steps of its training."""

from collections.abc import Sequence
from typing import Any

from armillary.errors import ArmillaryError, nearest
from armillary.serve.blocks import Block, choices_block, figure_block
from armillary.serve.fields import Field
from armillary.serve.library import Library
from armillary.serve.room import Ask, Room, RoomPart

FIELDS = (Field("training", "choice", "Training"),)


def curves(library: Library, ask: Ask) -> Sequence[Block]:
    from armillary.views.figures.lab.training import training_caption, training_csv, training_figure, training_headline

    name, looks = _chosen(library, ask["training"])
    choices = choices_block("training", [(training, training) for training in library.trainings])
    figure = training_figure(looks, name, ask["narrow"])
    return [
        choices,
        figure_block(figure, "training", training_headline(looks), training_caption(name), training_csv(looks)),
    ]


def steps(library: Library, ask: Ask) -> Sequence[Block]:
    from armillary.views.figures.lab.training import training_csv
    from armillary.views.figures.lab.training_steps import steps_figure, title

    name, looks = _chosen(library, ask["training"])
    figure = steps_figure(looks, name, ask["narrow"])
    last = len(figure.frames) - 1
    return [figure_block(figure, "steps", title(looks[-1]), name, training_csv(looks), slider="step", start=last)]


def _chosen(library: Library, name: str) -> tuple[str, list[dict[str, Any]]]:
    if not library.trainings:
        raise ArmillaryError("no training run was given; start armillary explore with --training DIR.")
    if name and name not in library.trainings:
        raise ArmillaryError(f"there is no training {name!r} here; {nearest(name, library.trainings)}")
    name = name or next(iter(library.trainings))
    return name, library.trainings[name]


TRAINING = Room(
    "training",
    "Training",
    "How rank, length and attention change while a model learns. Play the steps, or slide.",
    FIELDS,
    (
        RoomPart("steps", "Step by step", ("training",), steps, by="library"),
        RoomPart("curves", "All steps", ("training",), curves, by="library"),
    ),
)
