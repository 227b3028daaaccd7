"""Compare: two models on one sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.serve.blocks import Block, sheet_blocks
from armillary.serve.room import SENTENCE, Ask, Opened, Room, RoomPart
from armillary.serve.rooms.sphere import plain_path

if TYPE_CHECKING:
    from armillary.results.sheets.trajectory import Trajectory


def travelled(opened: Opened, ask: Ask) -> "Trajectory":
    """What one model makes of the sentence; both are compared where no model is."""
    from armillary.readouts.trajectory import trajectory

    opened.progress("following the words", 0, 0)
    return trajectory(opened.anatomy, ask["sentence"], top=8)


def pair(both: "Sequence[Trajectory]", ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.model_pair import pair_sheet

    return sheet_blocks(pair_sheet(*both), ask["narrow"])


COMPARE = Room(
    "compare",
    "Compare",
    "Two models read one sentence: where their words go, and what they predict next.",
    (SENTENCE,),
    (
        RoomPart("pair", "Both", ("sentence",), pair, by="pair", raw=travelled, needs=("sentence", "second")),
        RoomPart("first", "", ("sentence",), plain_path, needs=("sentence", "second")),
        RoomPart(
            "second", "", ("sentence",), plain_path, model="second", needs=("sentence", "second"),
            beside="first",
        ),
    ),
)  # fmt: skip
