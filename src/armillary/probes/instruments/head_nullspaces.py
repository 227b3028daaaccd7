"""How much of a direction does a head not see? From q, k and v alone: no vector of width d is needed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy.folded import Folded

# Singular values of a factor below a millionth of its largest: float32 weights round at a tenth of that, so what such
# directions hold is rounding. Squared, since they are read off AᵀA.
ALIVE = 1e-12


@dataclass(frozen=True, eq=False)
class Blind:
    """What turns q, k or v into the share of |z|² that the head's matrix sees: a constant and a k × k root."""

    constant: Tensor
    root: Tensor
    """R [h, k, k] with |(q − a) R|² the squared length of z inside the matrix's span."""
    group: int = 1
    """How many heads in a row share one constant and root."""
    matrix: Tensor | None = None
    """The projection itself, where the model rounds so much that taking the constant away would leave noise."""

    def share(self, projection: Tensor, z: Tensor) -> Tensor:
        """[b, h, t] that is lost: `projection` [b, t, h or groups, k] of z [b, t, d], in the precision of z."""
        root = self.root.to(z)
        if self.matrix is not None:
            bare = torch.einsum("btd,hdk->hbtk", z, self.matrix.to(z)).flatten(1, 2)
        else:
            each = projection.repeat_interleave(len(root) // projection.shape[2], 2)
            bare = (each.to(z) - self.constant.to(z)).flatten(0, 1).transpose(0, 1)
        seen = torch.bmm(bare, root).norm(dim=-1).reshape(len(root), *z.shape[:2]).transpose(0, 1)
        lost = 1 - (seen / z.norm(dim=-1)[:, None].clamp_min(1e-30)).square_()
        return lost.clamp(0, 1).repeat_interleave(self.group, 1)


@dataclass(frozen=True, eq=False)
class Senses:
    """One layer: what its heads do not see of queries, keys and values, and how long their writes are."""

    query: Blind
    key: Blind
    value: Blind
    writes: Tensor
    """R [h, k, k] with |result R| the length of what a head writes."""


def senses(folded: Folded, rounded: bool = False) -> Senses:
    """z A = q − a, so the part of z in A's span has the squared length (q − a)(AᵀA)⁻¹(q − a)ᵀ. Where the other factor of
    W_QK or W_VO has lost dimensions, what it no longer reads is null as well. `rounded`: the model's dtype is a half."""
    factors = {"Q": folded.A_Q, "K": folded.A_K, "V": folded.A_V, "O": folded.W_O.mT}
    spectra = {name: torch.linalg.eigh(factor.mT @ factor) for name, factor in factors.items()}

    def blind(name: str, other: str, constant: Tensor, group: int) -> Blind:
        values, vectors = spectra[name]
        reaches = _alive(spectra[other][0])
        if not bool(reaches.all()):
            group = 1
            kept = spectra[other][1] * reaches[..., None, :]
            part = factors[name] @ kept @ kept.mT
            values, vectors = torch.linalg.eigh(part.mT @ part)
        inverse = torch.where(_alive(values), values, torch.inf).rsqrt()
        root, matrix = vectors * inverse[..., None, :], factors[name].float() if rounded else None
        return Blind(constant[::group], root[::group], group, None if matrix is None else matrix[::group])

    values, vectors = spectra["O"]
    return Senses(
        query=blind("Q", "K", folded.a_Q, 1),
        key=blind("K", "Q", folded.a_K, folded.attention.group),
        value=blind("V", "O", folded.a_V, folded.attention.group),
        writes=vectors * values.clamp_min(0).sqrt()[..., None, :],
    )


def _alive(values: Tensor) -> Tensor:
    return values > ALIVE * values.amax(-1, keepdim=True)
