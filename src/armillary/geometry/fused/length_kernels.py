"""A Triton kernel: one program per row and layer. `head_lengths` says what it computes.

X0 to X15 are the rows of up to sixteen layers, as in `kernels`.
"""

import triton
import triton.language as tl


@triton.jit
def head_length_kernel(
    X0,
    X1,
    X2,
    X3,
    X4,
    X5,
    X6,
    X7,
    X8,
    X9,
    X10,
    X11,
    X12,
    X13,
    X14,
    X15,
    OUT,
    n,
    heads,
    k,
    H: tl.constexpr,
    K: tl.constexpr,
):
    """OUT [site, n, heads]: lengths of a row's vectors of k numbers."""
    r, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head, axis = tl.arange(0, H), tl.arange(0, K)
    first = tl.where(g < 2, tl.where(g == 0, X0, X1), tl.where(g == 2, X2, X3))
    second = tl.where(g < 6, tl.where(g == 4, X4, X5), tl.where(g == 6, X6, X7))
    third = tl.where(g < 10, tl.where(g == 8, X8, X9), tl.where(g == 10, X10, X11))
    fourth = tl.where(g < 14, tl.where(g == 12, X12, X13), tl.where(g == 14, X14, X15))
    X = tl.where(g < 8, tl.where(g < 4, first, second), tl.where(g < 12, third, fourth))
    inside = (head[:, None] < heads) & (axis[None, :] < k)
    x = tl.load(X + (r * heads + head[:, None]) * k + axis[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + (g.to(tl.int64) * n + r) * heads + head, tl.sqrt_rn(tl.sum(x * x, 1)), mask=head < heads)
