"""Which parts has a feed-forward layer? A dense one has itself, a mixture of experts one per expert."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.anatomy import FeedForward

# An expert that gets fewer of the sampled tokens is listed without a number.
FEWEST = 16
NOTE = (
    "Mixture of experts: a token has the coordinates of the experts that it is routed to, and of shared ones; the "
    "table 'experts' lists every expert, measured on the tokens that are routed to it."
)


def parts_of(channels: Any) -> "dict[str, FeedForward]":
    """Every expert by its name, shared ones last; a dense layer is its only part."""
    from armillary.anatomy import Routed

    return channels.parts if isinstance(channels, Routed) else {"": channels}


def columns_of(channels: Any) -> dict[str, slice]:
    """Which of all units side by side belong to each part."""
    columns, start = {}, 0
    for name, part in parts_of(channels).items():
        columns[name] = slice(start, start + int(part.W_in.shape[1]))
        start = columns[name].stop
    return columns


def units_of(channels: Any) -> int:
    """How many hidden units a feed-forward layer has, of all experts together."""
    return sum(int(part.W_in.shape[1]) for part in parts_of(channels).values())


def units_per_token(channels: Any) -> int:
    """How many hidden units of a layer a token has."""
    from armillary.anatomy import Routed

    if not isinstance(channels, Routed):
        return int(channels.W_in.shape[1])
    shared = 0 if channels.shared is None else int(channels.shared.W_in.shape[1])
    return int(channels.router.top * channels.experts[0].W_in.shape[1]) + shared


def gates(channels: Any) -> bool:
    return next(iter(parts_of(channels).values())).W_gate is not None
