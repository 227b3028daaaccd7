"""The rooms, in the order of the page; a room is one file."""

from armillary.serve.room import Room
from armillary.serve.rooms.compare import COMPARE
from armillary.serve.rooms.drift import DRIFT
from armillary.serve.rooms.edits import EDITS
from armillary.serve.rooms.filter import FILTER
from armillary.serve.rooms.heads import HEADS
from armillary.serve.rooms.laboratory import LABORATORY
from armillary.serve.rooms.ledger import LEDGER
from armillary.serve.rooms.norms import NORMS
from armillary.serve.rooms.shear import SHEAR
from armillary.serve.rooms.sphere import SPHERE
from armillary.serve.rooms.training import TRAINING

ROOMS: tuple[Room, ...] = (
    LEDGER, SPHERE, HEADS, NORMS, FILTER, EDITS, DRIFT, SHEAR, TRAINING, LABORATORY, COMPARE
)  # fmt: skip


def room_named(name: str) -> Room:
    return next(room for room in ROOMS if room.name == name)
