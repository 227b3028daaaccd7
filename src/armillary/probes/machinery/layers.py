"""Which layers stand for a whole model, and where is the stream between blocks seen?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy


@dataclass(frozen=True)
class StreamState:
    """A state of the stream and the norm it is seen at: what the norm receives, or, where norms rewrite the stream,
    what it gives."""

    name: str
    norm: str
    output: bool


def stream_states(anatomy: "Anatomy") -> tuple[StreamState, ...]:
    """`L0.resid_pre`, then `resid_post` of every block, where a norm receives or gives it."""
    names = ["L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(anatomy.layers))]
    if anatomy.order == "post":
        norms, output = ["ln_embed", *(f"L{layer}.ln2" for layer in range(anatomy.layers))], True
    else:
        norms, output = [*(f"L{layer}.ln1" for layer in range(anatomy.layers)), "ln_final"], False
    pairs = zip(names, norms, strict=True)
    return tuple(StreamState(name, norm, output) for name, norm in pairs if norm in anatomy.norms)


def spread_layers(anatomy: "Anatomy", most: int = 4) -> tuple[int, ...]:
    """At most `most` layers, evenly spread over the depth, the first and the last among them."""
    last = anatomy.layers - 1
    return tuple(sorted({round(i * last / (most - 1)) for i in range(most)}))
