"""The share of a direction that a head cannot see, computed from q, k and v: no vector of width d is needed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy.folded import Folded

# A singular value of a factor below a millionth of its largest is rounding: float32 weights round at a tenth of that.
# The limit is squared because singular values are read from AᵀA.
NONZERO = 1e-12


@dataclass(frozen=True, eq=False)
class NullShare:
    """Computes from q, k or v the share of |z|² outside the span of the head's matrix."""

    constant: Tensor
    """a [h, k]: what the projection adds to z A."""
    root: Tensor
    """R [h, k, k] such that |(q − a) R|² is the squared length of z inside the span."""
    group: int = 1
    """How many consecutive heads share one constant and root."""
    matrix: Tensor | None = None
    """The projection itself, for models that round so much that q − a would be noise."""

    def of(self, projection: Tensor, z: Tensor) -> Tensor:
        """[b, h, t] for `projection` [b, t, h or groups, k] of z [b, t, d], in the precision of z."""
        root = self.root.to(z)
        if self.matrix is not None:
            bare = torch.einsum("btd,hdk->hbtk", z, self.matrix.to(z)).flatten(1, 2)
        else:
            each = projection.repeat_interleave(len(root) // projection.shape[2], 2)
            bare = (each.to(z) - self.constant.to(z)).flatten(0, 1).transpose(0, 1)
        seen = torch.bmm(bare, root).norm(dim=-1).reshape(len(root), *z.shape[:2]).transpose(0, 1)
        unseen = 1 - (seen / z.norm(dim=-1)[:, None].clamp_min(1e-30)).square_()
        return unseen.clamp(0, 1).repeat_interleave(self.group, 1)


@dataclass(frozen=True, eq=False)
class NullShares:
    """One layer: what its heads cannot see of queries, keys and values, and the length of their writes."""

    query: NullShare
    key: NullShare
    value: NullShare
    writes: Tensor
    """R [h, k, k] such that |result R| is the length of what a head writes."""


def null_shares(folded: Folded, rounded: bool = False) -> NullShares:
    """z A = q − a, so the part of z in A's span has the squared length (q − a)(AᵀA)⁻¹(q − a)ᵀ.

    Where the other factor of W_QK or W_VO has lost dimensions, what it no longer reads is null as well. `rounded`: the
    model's dtype has half precision.
    """
    factors = {"Q": folded.A_Q, "K": folded.A_K, "V": folded.A_V, "O": folded.W_O.mT}
    spectra = {name: torch.linalg.eigh(factor.mT @ factor) for name, factor in factors.items()}

    def of_side(name: str, other: str, constant: Tensor, group: int) -> NullShare:
        values, vectors = spectra[name]
        read = _nonzero(spectra[other][0])
        if not bool(read.all()):
            group = 1
            axes = spectra[other][1] * read[..., None, :]
            part = factors[name] @ axes @ axes.mT
            values, vectors = torch.linalg.eigh(part.mT @ part)
        inverse = torch.where(_nonzero(values), values, torch.inf).rsqrt()
        root, matrix = vectors * inverse[..., None, :], factors[name].float() if rounded else None
        return NullShare(constant[::group], root[::group], group, None if matrix is None else matrix[::group])

    values, vectors = spectra["O"]
    return NullShares(
        query=of_side("Q", "K", folded.a_Q, 1),
        key=of_side("K", "Q", folded.a_K, folded.attention.group),
        value=of_side("V", "O", folded.a_V, folded.attention.group),
        writes=vectors * values.clamp_min(0).sqrt()[..., None, :],
    )


def _nonzero(values: Tensor) -> Tensor:
    return values > NONZERO * values.amax(-1, keepdim=True)
