"""Which layers stand for a whole model where every layer would cost too much?"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy


def spread_layers(anatomy: "Anatomy", most: int = 4) -> tuple[int, ...]:
    """At most `most` layers, evenly spread over the depth, the first and the last among them."""
    last = anatomy.layers - 1
    return tuple(sorted({round(i * last / (most - 1)) for i in range(most)}))
