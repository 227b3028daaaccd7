"""Norms: one norm of the model; lengths before and after, its ellipsoid, its spectrum, massive tokens."""

from collections.abc import Sequence

from armillary.serve.blocks import Block, sheet_blocks
from armillary.serve.fields import Field
from armillary.serve.room import SENTENCE, Ask, Opened, Room, RoomPart

FIELDS = (SENTENCE, Field("norm", "choice", "Norm", "L0.ln1", of="norms"))


def lengths(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.norm_site import norm_lengths

    opened.progress("reading the sentence", 0, 0)
    return sheet_blocks(norm_lengths(opened.anatomy, ask["norm"], ask["sentence"]), ask["narrow"])


def shape(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.norm_site import covariances, norm_shape

    sums, tokens = opened.once("covariances", lambda: covariances(opened.anatomy, opened.progress))
    return sheet_blocks(norm_shape(opened.anatomy, ask["norm"], sums, tokens), ask["narrow"])


NORMS = Room(
    "norms",
    "Norms",
    "A norm puts every token on a sphere; its gain makes the sphere an ellipsoid, its shift moves the centre.",
    FIELDS,
    (
        RoomPart("lengths", "Lengths on the sentence, and massive tokens", ("sentence", "norm"), lengths,
             needs=("sentence", "norm"), quick=True),
        RoomPart("shape", "Its ellipsoid and its spectrum", ("norm",), shape, needs=("norm",)),
    ),
)  # fmt: skip
