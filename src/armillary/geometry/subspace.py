"""How much do two subspaces share?

A subspace is given by any vectors that span it, as columns.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def orthonormal(columns: Float[Tensor, "*h d r"]) -> Float[Tensor, "*h d r"]:
    """An orthonormal basis of the span; refuses columns that do not span as many dimensions as there are."""
    d, r = columns.shape[-2:]
    q, s, _ = torch.linalg.svd(columns, full_matrices=False)
    least = torch.finfo(columns.dtype).eps * max(d, r)
    if r > d or r == 0 or bool((s[..., -1] <= least * s[..., 0]).any()):
        raise ValueError(
            f"{r} columns in {d} dimensions are linearly dependent (or none): pass a basis of the subspace"
        )
    return q


def principal_angles(a: Float[Tensor, "*a d r"], b: Float[Tensor, "*b d s"]) -> Float[Tensor, "*ab m"]:
    """The min(r, s) principal angles in radians, smallest first."""
    p, q = orthonormal(a), orthonormal(b)
    if p.shape[-1] < q.shape[-1]:
        p, q = q, p
    product = p.mT @ q
    cosines = torch.linalg.svdvals(product).clamp(max=1)
    # Near 0 the cosine is flat: its rounding 1e-16 would be an angle of 1e-8. There the sine tells it.
    sines = torch.linalg.svdvals(q - p @ product).clamp(max=1).flip(-1)
    return torch.where(cosines > 0.5**0.5, sines.asin(), cosines.acos())


def overlap(a: Float[Tensor, "*a d r"], b: Float[Tensor, "*b d s"]) -> Float[Tensor, "*ab"]:
    """Mean squared cosine of the principal angles: 1 if one contains the other, 0 if they are orthogonal."""
    shared = orthonormal(a).mT @ orthonormal(b)
    return shared.square().sum((-2, -1)) / min(shared.shape[-2:])
