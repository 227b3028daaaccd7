"""Edits: change the model and see next words and the sphere at once, beside the untouched model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.errors import ArmillaryError
from armillary.serve.blocks import Block, sheet_blocks, travel_block
from armillary.serve.fields import Field
from armillary.serve.room import SENTENCE, Ask, Opened, Room, RoomPart

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.edits import Edit

FIELDS = (
    SENTENCE,
    Field("layer", "whole", "Layer", 0, of="layers"),
    Field("head", "whole", "Head", 0, of="heads"),
    Field("off", "flag", "Switch the head off", True),
    Field("shuffle", "choice", "Shuffle axes", "", choices=(
        ("", "no"), ("within", "within the layer's heads"), ("across", "across the layer's heads"))),
    Field("freeze", "choice", "Freeze a norm", "", of="norms", optional=True,
          about="it multiplies by the sentence's mean scale"),
    Field("factor", "number", "Scale the stream by", 1.0, least=0, most=4, step=0.05, slides=True,
          about="after the layer; 1: not at all"),
)  # fmt: skip
DECIDING = tuple(field.name for field in FIELDS)


def words(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.edited_words import edited_words

    opened.progress("reading the sentence twice", 0, 0)
    edits, what = chosen(opened.anatomy, ask)
    return sheet_blocks(edited_words(opened.anatomy, ask["sentence"], edits, what), ask["narrow"])


def paths(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.edited_words import edited_paths
    from armillary.views.travel.scene import view

    opened.progress("following the words", 0, 0)
    edits, _ = chosen(opened.anatomy, ask)
    before, after = edited_paths(opened.anatomy, ask["sentence"], edits)
    seen_from = view(before)
    return [{"kind": "pair", "blocks": [travel_block(before, seen_from), travel_block(after, seen_from)]}]


def chosen(anatomy: "Anatomy", ask: Ask) -> tuple[list["Edit"], str]:
    """The edits that were asked for, and what they are in words."""
    from armillary.edits import Freeze, Scale, Shuffle, Silence, across, within

    layer, head = ask["layer"], ask["head"]
    edits: list[Any] = []
    labels = []
    if ask["off"]:
        edits.append(Silence(layer, (head,)))
        labels.append(f"L{layer}H{head} off")
    if ask["shuffle"]:
        order = (within if ask["shuffle"] == "within" else across)(anatomy.n_heads, anatomy.k, 0)
        edits.append(Shuffle(layer, order))
        labels.append(f"axes of L{layer} shuffled {ask['shuffle']} heads")
    if ask["freeze"]:
        edits.append(Freeze(ask["freeze"], _scale(anatomy, ask["freeze"], ask["sentence"])))
        labels.append(f"{ask['freeze']} frozen")
    if ask["factor"] != 1:
        edits.append(Scale(layer, ask["factor"]))
        labels.append(f"stream after L{layer} × {ask['factor']:g}")
    if not edits:
        raise ArmillaryError("nothing is edited; switch a head off, shuffle, freeze or scale.")
    what = ", ".join(labels)
    return edits, what[0].upper() + what[1:]


def _scale(anatomy: "Anatomy", site: str, sentence: str) -> float:
    """What the norm multiplies the tokens of this sentence by, in the mean."""
    from armillary.readouts.sentences.norm_site import mean_scale

    return mean_scale(anatomy, site, sentence)


EDITS = Room(
    "edits",
    "Edits",
    "Change the running model; nothing is stored, and the unedited model is shown next to it.",
    FIELDS,
    (
        RoomPart("words", "The next word", DECIDING, words, needs=("sentence",), quick=True),
        RoomPart("paths", "The sphere, untouched and edited", DECIDING, paths, needs=("sentence",)),
    ),
)
