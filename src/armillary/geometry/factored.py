"""What are the singular values and vectors of a matrix that is a product of two thin ones?

A head's d × d matrix has rank k at most and is never written out: either factor is a triangle (k × k) seen through an
orthonormal frame, and the product of the triangles has all singular values. Nothing here keeps gradients.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Two singular values nearer than this, in units of the largest, have no vectors of their own. A disturbance E of the
# matrix turns a vector by |E| / gap (Wedin). Factors stored in float32 are off by 6e-8 of their norms, their product by
# up to 1e-6 of σ1 (|A|·|B| exceeds σ1 by a factor of a few), and a vector is good if it is known to 1 in 100.
# Weights that were trained or stored in bfloat16 are off by 1e-3: pass gap=0.1 for those.
GAP = 1e-4

_PIECE = 12  # heads worked on at once by one thread; with fewer the calls cost more than they do
_CACHED = 4  # heads whose vectors are still in a core's own cache when their signs are looked up


@dataclass(frozen=True, eq=False)
class SVD:
    """M = left · diag(values) · rightᵀ, columns in order of falling value, for every matrix of the batch.

    There are as many columns as M can have rank: k, or the smaller side of M where k is larger than that.
    """

    left: Float[Tensor, "*h m r"]
    values: Float[Tensor, "*h r"]
    right: Float[Tensor, "*h n r"]

    def clusters(self, gap: float = GAP) -> Int[Tensor, "*h r"]:
        """The number of the group each singular value belongs to: neighbours nearer than `gap`·σ1 share one.

        Within a group only the subspace means anything; its basis is as arbitrary as a sign. A last group that
        reaches below `gap`·σ1 is mixed with the null space besides.

        >>> tied = Factored(torch.eye(4)[:, :3], torch.tensor([[5.0, 0, 0], [0, 2, 0], [0, 0, 2], [0, 0, 0]])).svd()
        >>> tied.clusters()
        tensor([0, 1, 1])
        """
        apart = self.values[..., :-1] - self.values[..., 1:] > gap * self.values[..., :1]
        return torch.nn.functional.pad(apart.long(), (1, 0)).cumsum(-1)

    def oriented(self, rows: Float[Tensor, "n w"], side: Literal["left", "right"] = "left") -> "SVD":
        """The sign of each pair turned to where the data reach farthest: Σ (row · vector)³ ≥ 0 over the given rows.

        A pair that the rows do not decide (a sum of exactly 0) keeps its sign.
        """
        vectors = self.left if side == "left" else self.right
        if rows.shape[1] != vectors.shape[-2]:
            raise ValueError(f"rows of width {rows.shape[1]} cannot orient {side} vectors of width {vectors.shape[-2]}")
        third = torch.zeros_like(self.values)
        for part in torch.split(rows.to(vectors), 4096):
            third += (part @ vectors).pow(3).sum(-2)
        sign = torch.where(third < 0, -1.0, 1.0).to(vectors)[..., None, :]
        return SVD(self.left * sign, self.values, self.right * sign)


@dataclass(frozen=True, eq=False)
class Factored:
    """M = left @ rightᵀ, one for every leading index; float64 or float32, computed as given."""

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
        """Singular values and vectors; the sign of each pair is such that left's largest entry is positive.

        >>> found = Factored(torch.tensor([[-3.0], [-4.0]]), torch.tensor([[2.0], [0.0]])).svd()
        >>> found.values, (found.left * 10).round().mT, found.right[0]
        (tensor([10.]), tensor([[6., 8.]]), tensor([-1.]))
        """
        a, b, batch, rank = self._flat()
        # Vectors are rows while they are worked on: the largest entry of each is then found along memory.
        left, right = a.new_empty(len(a), rank, a.shape[1]), a.new_empty(len(a), rank, b.shape[1])
        values = a.new_empty(len(a), rank)

        def work(part: slice) -> None:
            _decompose(a[part], b[part], left[part], values[part], right[part])

        _over_heads(a, work)
        return SVD(
            left.reshape(*batch, *left.shape[1:]).mT,
            values.reshape(*batch, rank),
            right.reshape(*batch, *right.shape[1:]).mT,
        )

    def values(self) -> Float[Tensor, "*h r"]:
        """Singular values alone, in half the time.

        >>> Factored(torch.eye(3)[:, :2], torch.tensor([[2.0, 0.0], [0.0, 1.0]])).values()
        tensor([2., 1.])
        """
        a, b, batch, rank = self._flat()
        values = a.new_empty(len(a), rank)

        def work(part: slice) -> None:
            _values(a[part], b[part], values[part])

        _over_heads(a, work)
        return values.reshape(*batch, rank)

    def _flat(self) -> tuple[Tensor, Tensor, torch.Size, int]:
        """Factors with one leading axis, the shape it had, and the rank M can have."""
        a, b = self.left.detach(), self.right.detach()
        if a.dtype not in (torch.float32, torch.float64) or a.dtype != b.dtype:
            raise ValueError(f"factors of {a.dtype} and {b.dtype}: cast both to float64 (or both to float32) first")
        if 0 in a.shape[-2:] or 0 in b.shape[-2:]:
            raise ValueError(f"factors of shapes {tuple(a.shape)} and {tuple(b.shape)} make an empty matrix")
        rank = min(*a.shape[-2:], b.shape[-2])
        return a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), a.shape[:-2], rank


def n99(values: Float[Tensor, "*h r"]) -> Int[Tensor, "*h"]:
    """How many of the largest singular values make up 99 % of their sum; 0 for a matrix of zeros.

    >>> n99(torch.tensor([[9.0, 0.9, 0.1], [1.0, 1.0, 1.0]]))
    tensor([2, 3])
    """
    shares = values.cumsum(-1)
    # Rounding of the sums must not ask for one more: 198 of 200 equal values are 99 % on paper only.
    enough = 0.99 * shares[..., -1:] * (1 - values.shape[-1] * torch.finfo(values.dtype).eps)
    return (shares < enough).sum(-1) + (shares[..., -1] > 0)


def participation(values: Float[Tensor, "*h r"]) -> Float[Tensor, "*h"]:
    """(Σσ²)² / Σσ⁴: the number of equal singular values that would carry as much; NaN for a matrix of zeros.

    >>> participation(torch.tensor([2.0, 2.0, 0.0]))
    tensor(2.)
    """
    shares = (values / values.amax(-1, keepdim=True)).square()
    return shares.sum(-1).square() / shares.square().sum(-1)


def _decompose(a: Tensor, b: Tensor, left: Tensor, values: Tensor, right: Tensor) -> None:
    """Singular vectors (rows) and values of a few matrices, written into what is given."""
    done = _by_squares(a, b, left, values, right) if _thin(a, b) else torch.zeros(len(a), dtype=torch.bool)
    for head in (~done).nonzero()[:, 0].tolist():
        q, r = torch.linalg.qr(_finite(a[head]))
        p, s = torch.linalg.qr(_finite(b[head]))
        u, values[head], vh = torch.linalg.svd(r @ s.mT, full_matrices=False)
        left[head] = u.mT @ q.mT
        sign = _signs(left[head])
        left[head] *= sign
        right[head] = sign * vh @ p.mT


def _values(a: Tensor, b: Tensor, values: Tensor) -> None:
    done = torch.zeros(len(a), dtype=torch.bool)
    if _thin(a, b):
        squares = _Squares.of(a, b)
        squared = -torch.linalg.eigvalsh(-squares.form)
        values.copy_(squared.clamp(min=0).sqrt())
        done = squares.trusted(squared)
    for head in (~done).nonzero()[:, 0].tolist():
        r, s = (torch.linalg.qr(_finite(x[head]), mode="r").R for x in (a, b))
        values[head] = torch.linalg.svdvals(r @ s.mT)


def _thin(a: Tensor, b: Tensor) -> bool:
    return a.shape[-1] <= min(a.shape[-2], b.shape[-2])


def _by_squares(a: Tensor, b: Tensor, left: Tensor, values: Tensor, right: Tensor) -> Tensor:
    """The same by matrix products and one eigenvalue problem, in a third of the time; and which heads are accurate."""
    squares = _Squares.of(a, b)
    squared, vectors = torch.linalg.eigh(-squares.form)  # negative: the largest come first
    values.copy_((-squared).clamp(min=0).sqrt())
    to_left, to_right = vectors.mT @ squares.inverse, vectors.mT @ squares.lower.mT / values[..., None]
    for start in range(0, len(a), _CACHED):
        part = slice(start, start + _CACHED)
        torch.bmm(to_left[part], a[part].mT, out=left[part])
        sign = _signs(left[part])
        left[part] *= sign
        torch.bmm(sign * to_right[part], b[part].mT, out=right[part])
    return squares.trusted(-squared)


@dataclass(frozen=True, eq=False)
class _Squares:
    """With AᵀA = L Lᵀ the columns of A L⁻ᵀ are orthonormal and M Mᵀ, seen in that frame, is Lᵀ BᵀB L.

    The price of squares is that conditions are squared, so their results are taken only where that costs little.
    """

    lower: Tensor
    inverse: Tensor
    form: Tensor
    size: Tensor
    safe: Tensor

    @staticmethod
    def of(a: Tensor, b: Tensor) -> "_Squares":
        first, second = torch.bmm(a.mT, a), torch.bmm(b.mT, b)
        lower, failed = torch.linalg.cholesky_ex(first)
        identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand_as(lower)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
        form = lower.mT @ second @ lower
        a_squares, b_squares = (x.diagonal(dim1=-2, dim2=-1) for x in (first, second))
        safe = failed == 0
        for squares in (a_squares, b_squares):
            least, most = torch.finfo(a.dtype).tiny / torch.finfo(a.dtype).eps, torch.finfo(a.dtype).max
            safe &= (squares.amin(-1) > math.sqrt(least)) & (squares.sum(-1) < math.sqrt(most))
        if not safe.all():  # NaN is not safe; eigenvalue routines must not meet it
            form[~safe] = identity[~safe]
        return _Squares(lower, inverse, form, (a_squares * b_squares).sum(-1), safe)

    def trusted(self, squared: Tensor) -> Tensor:
        """Rounding in AᵀA is ε|aᵢ||aⱼ| and likewise in BᵀB: ε Σ|aᵢ|²|bᵢ|² in the form, ε σ1² in its eigenvalues.

        The smallest σ² must stand well above both. That covers a bad condition of A too: λ_min(AᵀA), columns scaled
        to length 1, is at least σ²_min / Σ|aᵢ|²|bᵢ|².
        """
        return self.safe & (torch.maximum(self.size, squared[:, 0]) < _limit(squared.dtype) * squared[:, -1])


def _limit(dtype: torch.dtype) -> float:
    """The largest squared condition that is worked with: errors stay near ε^⅔, 4e-11 in float64."""
    return torch.finfo(dtype).eps ** (-1 / 3)


def _signs(rows: Tensor) -> Tensor:
    """±1 [.., 1] for each row, such that its largest entry becomes positive; the first where several are as large."""
    most, least = rows.amax(-1, keepdim=True), rows.amin(-1, keepdim=True)
    balance = most + least
    sign = balance.sign()
    # (1, −1)/√2 must not owe its sign to rounding.
    rounding = math.sqrt(torch.finfo(rows.dtype).eps)
    tied = (balance.abs() <= rounding * (most - least))[..., 0]
    if tied.any():
        chosen = rows[tied]
        size = chosen.abs()
        first = (size >= (1 - 2 * rounding) * size.amax(-1, keepdim=True)).long().argmax(-1, keepdim=True)
        sign[tied] = chosen.gather(-1, first).sign()
    return sign


def _finite(x: Tensor) -> Tensor:
    if not bool(x.isfinite().all()):
        raise ValueError("a factor contains NaN or infinity; such a matrix has no singular values. Check the weights")
    return x


def _over_heads(a: Tensor, work: Callable[[slice], None]) -> None:
    """`work` on all heads, a few at a time, one thread each: small decompositions must not share threads."""
    threads, on_cpu = torch.get_num_threads(), a.device.type == "cpu"
    step = max(1, min(_PIECE, math.ceil(len(a) / threads)) if on_cpu else len(a))
    parts = [slice(start, start + step) for start in range(0, len(a), step)]
    if threads < 2 or len(parts) < 2:
        for part in parts:
            work(part)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(threads, len(parts))) as pool:
            list(pool.map(work, parts))
    finally:
        torch.set_num_threads(threads)
