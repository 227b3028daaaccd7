"""Drift: slide the window over a text and see one of its tokens move."""

from collections.abc import Sequence

from armillary.serve.blocks import Block, sheet_blocks, travel_block
from armillary.serve.fields import Field
from armillary.serve.room import Ask, Opened, Room, RoomPart

TEXT = (
    "The old clock on the wall had stopped years ago, but nobody in the house ever thought of taking it down, because "
    "each of them believed that someone else was fond of it."
)
FIELDS = (
    Field("text", "sentence", "Text", TEXT),
    Field("position", "whole", "Word", 0, most=4000, about="the Nth token; 0: the last"),
)


def drift(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.window_drift import window_drift

    path, sheet = window_drift(opened.anatomy, ask["text"], ask["position"] or None, opened.progress)
    return [travel_block(path), *sheet_blocks(sheet, ask["narrow"])]


DRIFT = Room(
    "drift",
    "Drift",
    "A window slides over the text: what stood before a token is forgotten, and the token's last state moves. Play it, "
    "or slide.",
    FIELDS,
    (RoomPart("drift", "", ("text", "position"), drift, needs=("text",)),),
)
