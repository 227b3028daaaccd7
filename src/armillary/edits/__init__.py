"""Edits of a running model, always undone on exit."""

from armillary.edits.ablate import Ablate, Silence
from armillary.edits.edit import Edit, edited
from armillary.edits.freeze import Freeze
from armillary.edits.scale import Scale
from armillary.edits.shuffle import Shuffle, across, within
from armillary.edits.slide import Slide
from armillary.edits.turn import Turn

EDITS: tuple[type[Edit], ...] = (Scale, Freeze, Turn, Slide, Shuffle, Silence, Ablate)

__all__ = [
    "EDITS",
    "Ablate",
    "Edit",
    "Freeze",
    "Scale",
    "Shuffle",
    "Silence",
    "Slide",
    "Turn",
    "across",
    "edited",
    "within",
]
