"""What does it cost the model when its stream is made shorter or longer?

The edited passes of `sphere.direction`: the stream after a block is multiplied by ½ or by 2 and the loss compared,
document by document, with the untouched model's. After the last block of a pre-norm model the final norm undoes any
scale, so that row is the exact-zero control.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench, Trials

FACTORS = (0.5, 2.0)
LAYERS = 4


def layers_of(anatomy: "Anatomy", most: int = LAYERS) -> tuple[int, ...]:
    """A few layers spread over the depth, the first and the last among them."""
    last = anatomy.layers - 1
    return tuple(sorted({round(i * last / (most - 1)) for i in range(most)}))


def scalings(anatomy: "Anatomy") -> dict[str, tuple[int, float]]:
    return {f"L{layer} × {factor:g}": (layer, factor) for layer in layers_of(anatomy) for factor in FACTORS}


def measure_scaling(bench: "Bench") -> "Trials | None":
    """Every scaling on the evaluation text; None where the model gives no next-token logits."""
    from armillary.edits import Scale

    if not bench.scored:
        return None
    return bench.compare({name: (Scale(*edit),) for name, edit in scalings(bench.anatomy).items()})
