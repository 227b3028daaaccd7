"""Sphere: type a sentence and watch its words travel; a second sentence or a second model stands beside it."""

from collections.abc import Sequence

from armillary.serve.blocks import Block, travel_block
from armillary.serve.fields import Field
from armillary.serve.room import SENTENCE, Ask, Opened, Room, RoomPart

FIELDS = (
    SENTENCE,
    Field("other", "sentence", "Second sentence", about="next to the first, on the same model"),
    Field(
        "projection", "choice", "Projection", "pca",
        choices=(("pca", "principal axes"), ("span", "one word: start, end, target"), ("pacmap", "PaCMAP"),
                 ("umap", "UMAP")),
    ),
    Field("position", "whole", "Word", 0, most=4000, about="follow the Nth token; 0: all of them"),
    Field("sublayers", "flag", "Between sublayers", False, about="also the states between attention and feed-forward"),
)  # fmt: skip
SHARED = ("projection", "position", "sublayers")


def path(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.trajectory import trajectory

    opened.progress("following the words", 0, 0)
    word = ask["position"] or None
    travel = trajectory(opened.anatomy, ask["sentence"], ask["projection"], ask["sublayers"], word=word)
    return [travel_block(travel)]


def plain_path(opened: Opened, ask: Ask) -> Sequence[Block]:
    """The same with every setting at its default."""
    return path(opened, {"projection": "pca", "position": 0, "sublayers": False, **ask})


SPHERE = Room(
    "sphere",
    "Sphere",
    "Each word starts at its own vector and moves over the sphere, layer by layer, towards the word that follows.",
    FIELDS,
    (
        RoomPart("path", "", ("sentence", *SHARED), path, needs=("sentence",)),
        RoomPart(
            "other", "", SHARED, path, given={"sentence": "other"}, needs=("other",), beside="path",
        ),
        RoomPart(
            "second", "", ("sentence", *SHARED), path, model="second", needs=("sentence", "second"),
            beside="path",
        ),
    ),
)  # fmt: skip
