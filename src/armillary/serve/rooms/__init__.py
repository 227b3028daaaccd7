"""The rooms, in the order of the page; a room is one file."""

from armillary.serve.room import Room
from armillary.serve.rooms.heads import HEADS
from armillary.serve.rooms.ledger import LEDGER
from armillary.serve.rooms.sphere import SPHERE

ROOMS: tuple[Room, ...] = (LEDGER, SPHERE, HEADS)


def room_named(name: str) -> Room:
    return next(room for room in ROOMS if room.name == name)
