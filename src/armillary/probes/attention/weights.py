"""What do all heads' matrices look like once the norm before them is folded in? Decomposed once for every claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.probes.evidence import MODEL, Evidence

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.anatomy.folded import Folded
    from armillary.geometry.factored import SVD


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """One layer: the folded heads, and the singular values and vectors of W_QK(0) and W_VO, batched over heads."""

    folded: "Folded"
    qk: "SVD"
    vo: "SVD"


def heads(evidence: Evidence, arm: str = MODEL) -> Sequence[LayerHeads]:
    """Every layer's heads, of the model or (arm RANDOM) of its twin; worked out once a survey."""
    from armillary.probes.evidence import RANDOM

    anatomy = evidence.twin if arm == RANDOM else evidence.anatomy
    assert anatomy is not None
    key = ("heads", arm == RANDOM)
    if key not in evidence.kept:
        evidence.kept[key] = [decompose(anatomy, layer) for layer in range(anatomy.layers)]
    return evidence.kept[key]


def decompose(anatomy: "Anatomy", layer: int) -> LayerHeads:
    from armillary.anatomy.folded import fold

    folded = fold(anatomy, layer)
    return LayerHeads(folded, folded.qk().svd(), folded.vo().svd())


def head_names(anatomy: "Anatomy") -> list[str]:
    """L0H0, L0H1 … in the order in which every [layer, head] array is flattened."""
    return [f"L{layer}H{head}" for layer in range(anatomy.layers) for head in range(anatomy.n_heads)]
