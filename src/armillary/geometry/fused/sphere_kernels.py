"""Triton kernels that read rows once for several purposes. `sphere_rows` says what they compute.

X0 to X15 are the rows of up to sixteen sites, as in `kernels`.
"""

import triton
import triton.language as tl


@triton.jit
def sphere_kernel(
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
    COUNTS,
    BOUND,
    SHIFT,
    STATS,
    OUT,
    SUMS,
    n,
    d,
    room,
    eps,
    CENTRED: tl.constexpr,
    R: tl.constexpr,
    B: tl.constexpr,
):
    """STATS [site, 7, n] as `row_kernel`'s, OUT [site, room, d] as `direction_kernel`'s for the rows that COUNTS marks,
    and SUMS [site, room / R, d] of R rows of OUT each."""
    block, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, B)
    inside = column < d
    first = tl.where(g < 2, tl.where(g == 0, X0, X1), tl.where(g == 2, X2, X3))
    second = tl.where(g < 6, tl.where(g == 4, X4, X5), tl.where(g == 6, X6, X7))
    third = tl.where(g < 10, tl.where(g == 8, X8, X9), tl.where(g == 10, X10, X11))
    fourth = tl.where(g < 14, tl.where(g == 12, X12, X13), tl.where(g == 14, X14, X15))
    X = tl.where(g < 8, tl.where(g < 4, first, second), tl.where(g < 12, third, fourth))
    shift = tl.load(SHIFT + g * d + column, mask=inside, other=0.0)
    bound = tl.load(BOUND + g)
    total = tl.zeros((B,), dtype=tl.float32)
    for i in range(R):
        r = block * R + i
        there = r < n
        x = tl.load(X + r * d + column, mask=inside & there, other=0.0).to(tl.float32)
        length2 = tl.sum(x * x, 0)
        mean = tl.sum(x, 0) / d
        power = length2 / d
        z = x
        if CENTRED:
            z = tl.where(inside, x - mean, 0.0)
            power = tl.sum(z * z, 0) / d
        z = z * tl.div_rn(1.0, tl.sqrt_rn(power + eps))
        peak, at = tl.max(tl.where(inside, tl.abs(x), -1.0), 0, return_indices=True)
        place = STATS + g.to(tl.int64) * 7 * n + r
        tl.store(place, length2, mask=there)
        tl.store(place + n, mean, mask=there)
        tl.store(place + 2 * n, power, mask=there)
        tl.store(place + 3 * n, tl.sum(z * z, 0), mask=there)
        tl.store(place + 4 * n, tl.sum(z, 0), mask=there)
        tl.store(place + 5 * n, peak, mask=there)
        tl.store(place + 6 * n, at.to(tl.float32), mask=there)
        counts = tl.load(COUNTS + r, mask=there, other=0) != 0
        # A NaN is no massive coordinate: it stays, and is found when the sums are read.
        ordinary = counts & ((peak < bound) | (peak != peak))
        directed = tl.where(ordinary, z - shift, 0.0).to(OUT.dtype.element_ty)
        tl.store(OUT + (g.to(tl.int64) * room + r) * d + column, directed, mask=inside & (r < room))
        total += directed.to(tl.float32)
    blocks = tl.num_programs(0)
    tl.store(SUMS + (g.to(tl.int64) * blocks + block) * d + column, total, mask=inside)


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
