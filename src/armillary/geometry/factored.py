"""What are the singular values and vectors of a matrix that is a product of two thin ones?

A head's d × d matrix has rank k at most and is never written out: thin QR of either factor, then the k × k core.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SVD:
    """M = left · diag(values) · rightᵀ, columns in order of falling value, for every matrix of the batch."""

    left: Float[Tensor, "*h m k"]
    values: Float[Tensor, "*h k"]
    right: Float[Tensor, "*h n k"]


@dataclass(frozen=True, eq=False)
class Factored:
    """M = left @ rightᵀ, one for every leading index."""

    left: Float[Tensor, "*h m k"]
    right: Float[Tensor, "*h n k"]

    def dense(self) -> Float[Tensor, "*h m n"]:
        """The whole matrix, for those who ask."""
        return self.left @ self.right.mT

    def scores(self, x: Float[Tensor, "*h a m"], y: Float[Tensor, "*h b n"]) -> Float[Tensor, "*h a b"]:
        """x M yᵀ for all rows of x and y."""
        return (x @ self.left) @ (y @ self.right).mT

    def apply(self, x: Float[Tensor, "*h a m"]) -> Float[Tensor, "*h a n"]:
        """x M."""
        return (x @ self.left) @ self.right.mT

    def svd(self) -> SVD:
        """Singular values and vectors; the sign of each pair is such that left's largest entry is positive."""
        q, r = torch.linalg.qr(self.left)
        p, s = torch.linalg.qr(self.right)
        u, values, vt = torch.linalg.svd(r @ s.mT)
        left, right = q @ u, p @ vt.mT
        largest = left.abs().argmax(-2, keepdim=True)
        sign = left.gather(-2, largest).sign()
        sign = torch.where(sign == 0, 1.0, sign)
        return SVD(left * sign, values, right * sign)
