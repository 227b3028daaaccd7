"""Filter: what the feed-forward layers keep of each token, and what they discard."""

from collections.abc import Sequence

from armillary.serve.blocks import Block, sheet_blocks
from armillary.serve.fields import Field
from armillary.serve.room import SENTENCE, Ask, Opened, Room, RoomPart

FIELDS = (SENTENCE, Field("layer", "whole", "Layer", 0, of="layers"))


def words(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.kept_words import kept_words

    opened.progress("reading the sentence", 0, 0)
    return sheet_blocks(kept_words(opened.anatomy, ask["sentence"], ask["layer"]), ask["narrow"])


def shares(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.kept_words import kept_map

    opened.progress("reading the sentence", 0, 0)
    return sheet_blocks(kept_map(opened.anatomy, ask["sentence"]), ask["narrow"], pick={"layer": "row"})


FILTER = Room(
    "filter",
    "Filter",
    "A feed-forward layer keeps the coordinates that its activation lets through, token by token. Click a layer.",
    FIELDS,
    (
        RoomPart("shares", "All layers", ("sentence",), shares, needs=("sentence",), quick=True),
        RoomPart("words", "One layer, token by token", ("sentence", "layer"), words, needs=("sentence",)),
    ),
)
