"""All heads' matrices with the norm before them folded in, and their singular vectors: decomposed once per survey."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from armillary.probes.machinery import MODEL, TWINS, Evidence, once, once_if_small

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.anatomy.folded import Folded
    from armillary.geometry.factored import SVD

ROOM = 2 << 30
# Weights of 16 or 8 bits leave a matrix known to about 1e-3 of σ1, and an error E rotates a singular vector by |E|/gap.
# Closer than this, in units of σ1, vectors are uncertain by a fifth of a radian or more: only their span has a meaning.
TIE = 0.005
TIE_MEANING = "numbers of the directions whose singular values nearly tie with this one: only their span has a meaning"


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """One layer: the folded heads, and the singular values and vectors of W_QK(0) and W_VO, batched over heads."""

    folded: "Folded"
    qk: "SVD"
    vo: "SVD"


class DecomposedHeads(Sequence[LayerHeads]):
    """Every layer's heads, decomposed on first use. Layers are cached while there is room and recomputed beyond it."""

    def __init__(self, anatomy: "Anatomy", twin: bool = False) -> None:
        self.anatomy, self.twin = anatomy, twin
        # Four folded matrices and four of singular vectors, eight bytes per number.
        size = 64 * anatomy.n_heads * anatomy.d * anatomy.k
        self._room = max(1, ROOM // size)
        self._cache: dict[int, LayerHeads] = {}

    def __len__(self) -> int:
        return self.anatomy.layers

    @overload
    def __getitem__(self, layer: int) -> LayerHeads: ...
    @overload
    def __getitem__(self, layer: slice) -> Sequence[LayerHeads]: ...
    def __getitem__(self, layer: int | slice) -> LayerHeads | Sequence[LayerHeads]:
        from armillary.anatomy.folded import fold

        if isinstance(layer, slice):
            return [self[i] for i in range(*layer.indices(len(self)))]
        if not 0 <= layer < len(self):
            raise IndexError(layer)
        if layer in self._cache:
            return self._cache[layer]
        folded = fold(self.anatomy, layer)
        heads = LayerHeads(folded, folded.qk().svd(), folded.vo().svd())
        if len(self._cache) < self._room:
            self._cache[layer] = heads
        return heads


def _size(heads: DecomposedHeads) -> int:
    """An untrained twin is held by nothing else; the model's own heads are always kept."""
    return heads.anatomy.weight_bytes if heads.twin else 0


@once_if_small(_size)
def decomposed(evidence: Evidence, arm: str = MODEL) -> DecomposedHeads:
    return DecomposedHeads(evidence.model(arm), arm in TWINS)


def ties(svd: "SVD") -> list[list[str]]:
    """For each head and singular value the run of near ties that contains it; empty where it stands alone.

    >>> import torch
    >>> from armillary.geometry.factored import Factored
    >>> diagonal = torch.diag(torch.tensor([3.0, 2.0, 1.999, 1.0]))[None]
    >>> ties(Factored(torch.eye(4)[None], diagonal).svd())
    [['', '2–3', '2–3', '']]
    """
    labels = []
    for groups in svd.clusters(TIE).cpu().numpy():
        runs = np.split(np.arange(len(groups)), np.flatnonzero(np.diff(groups)) + 1)
        labels.append([f"{run[0] + 1}–{run[-1] + 1}" if len(run) > 1 else "" for run in runs for _ in run])
    return labels


@once
def vo_ties(evidence: Evidence) -> list[list[str]]:
    """The ties of W_VO for every head, layer by layer."""
    return [labels for layer in decomposed(evidence) for labels in ties(layer.vo)]


@once
def qk_ties(evidence: Evidence) -> list[list[str]]:
    """The same of W_QK(0)."""
    return [labels for layer in decomposed(evidence) for labels in ties(layer.qk)]


def tie_note(evidence: Evidence, directions: int | None = None, qk: bool = False) -> str:
    """How many of the heads' (first so many) directions of W_VO, or W_QK, nearly tie with another."""
    heads = [labels[:directions] for labels in (qk_ties if qk else vo_ties)(evidence)]
    tied, total = sum(bool(label) for labels in heads for label in labels), sum(map(len, heads))
    firsts = sum(bool(labels[0]) for labels in heads)
    return (
        f"{tied} of {total} directions have singular values that nearly tie with a neighbour's (closer than {TIE:.1%} "
        f"of the largest); so does the first direction of {firsts} of {len(heads)} heads. Tied directions, listed "
        "under 'tie', are known only up to a rotation among them, and so are their tokens."
    )
