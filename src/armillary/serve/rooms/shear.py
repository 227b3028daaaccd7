"""Shear: S3's sphere under a shear, and its shadow. No model is needed."""

from collections.abc import Sequence

from armillary.serve.blocks import Block, figure_block
from armillary.serve.library import Library
from armillary.serve.room import Ask, Room, RoomPart


def shear(library: Library, ask: Ask) -> Sequence[Block]:
    from armillary.views.figures.shear import CAPTION, START, TITLE, shear_csv, shear_figure

    figure = shear_figure(ask["narrow"])
    return [figure_block(figure, "shear", TITLE, CAPTION, shear_csv(), slider="shear", start=START)]


SHEAR = Room(
    "shear",
    "Shear",
    "A linear map of space is not linear on the shadow that a sphere casts. Drag the strength of the shear.",
    (),
    (RoomPart("shear", "", (), shear, by="library"),),
)
