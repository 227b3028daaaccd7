"""What do all heads' matrices look like once the norm before them is folded in? Decomposed once for every claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.anatomy.folded import Folded
    from armillary.geometry.factored import SVD

ROOM = 2 << 30


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """One layer: the folded heads, and the singular values and vectors of W_QK(0) and W_VO, batched over heads."""

    folded: "Folded"
    qk: "SVD"
    vo: "SVD"


class Heads(Sequence[LayerHeads]):
    """Every layer's heads, decomposed when first asked for; kept while there is room, worked out again where not."""

    def __init__(self, anatomy: "Anatomy") -> None:
        self.anatomy = anatomy
        # Four folded matrices and four of singular vectors, of eight bytes a number.
        size = 64 * anatomy.n_heads * anatomy.d * anatomy.k
        self._room = max(1, ROOM // size)
        self._kept: dict[int, LayerHeads] = {}

    def __len__(self) -> int:
        return self.anatomy.layers

    @overload
    def __getitem__(self, layer: int) -> LayerHeads: ...
    @overload
    def __getitem__(self, layer: slice) -> Sequence[LayerHeads]: ...
    def __getitem__(self, layer: int | slice) -> LayerHeads | Sequence[LayerHeads]:
        if isinstance(layer, slice):
            return [self[i] for i in range(*layer.indices(len(self)))]
        if not 0 <= layer < len(self):
            raise IndexError(layer)
        found = self._kept.get(layer) or decompose(self.anatomy, layer)
        if len(self._kept) < self._room:
            self._kept[layer] = found
        return found


def heads(evidence: Evidence, arm: str = MODEL) -> Heads:
    """Every layer's heads, of the model or (arm RANDOM) of its twin; worked out once a survey."""
    anatomy = evidence.twin if arm == RANDOM else evidence.anatomy
    assert anatomy is not None
    return evidence.kept.setdefault(("heads", arm == RANDOM), Heads(anatomy))


def decompose(anatomy: "Anatomy", layer: int) -> LayerHeads:
    from armillary.anatomy.folded import fold

    folded = fold(anatomy, layer)
    return LayerHeads(folded, folded.qk().svd(), folded.vo().svd())


def head_names(anatomy: "Anatomy") -> list[str]:
    """L0H0, L0H1 … in the order in which every [layer, head] array is flattened."""
    return [f"L{layer}H{head}" for layer in range(anatomy.layers) for head in range(anatomy.n_heads)]
