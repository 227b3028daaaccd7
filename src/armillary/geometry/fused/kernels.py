"""Triton kernels: one program per row. `rows` and `paths` say what they compute.

X0 to X15 are the rows of up to sixteen sites. Each kernel picks its own by five lines: Triton's interpreter would not
find a helper of ours where tests instrument this module.
"""

import triton
import triton.language as tl


@triton.jit
def row_kernel(
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
    d,
    eps,
    CENTRED: tl.constexpr,
    B: tl.constexpr,
):
    """OUT [site, 7, n] of rows: what `rows.FIELDS` names."""
    r, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, B)
    inside = column < d
    first = tl.where(g < 2, tl.where(g == 0, X0, X1), tl.where(g == 2, X2, X3))
    second = tl.where(g < 6, tl.where(g == 4, X4, X5), tl.where(g == 6, X6, X7))
    third = tl.where(g < 10, tl.where(g == 8, X8, X9), tl.where(g == 10, X10, X11))
    fourth = tl.where(g < 14, tl.where(g == 12, X12, X13), tl.where(g == 14, X14, X15))
    X = tl.where(g < 8, tl.where(g < 4, first, second), tl.where(g < 12, third, fourth))
    x = tl.load(X + r * d + column, mask=inside, other=0.0).to(tl.float32)
    length2 = tl.sum(x * x, 0)
    mean = tl.sum(x, 0) / d
    power = length2 / d
    z = x
    if CENTRED:
        z = tl.where(inside, x - mean, 0.0)
        power = tl.sum(z * z, 0) / d
    z = z * tl.div_rn(1.0, tl.sqrt_rn(power + eps))
    size = tl.where(inside, tl.abs(x), -1.0)
    place = OUT + g.to(tl.int64) * 7 * n + r
    tl.store(place, length2)
    tl.store(place + n, mean)
    tl.store(place + 2 * n, power)
    tl.store(place + 3 * n, tl.sum(z * z, 0))
    tl.store(place + 4 * n, tl.sum(z, 0))
    tl.store(place + 5 * n, tl.max(size, 0))
    tl.store(place + 6 * n, tl.argmax(size, 0).to(tl.float32))


@triton.jit
def direction_kernel(
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
    STATS,
    CHOSEN,
    BOUND,
    SHIFT,
    OUT,
    n,
    d,
    count,
    room,
    eps,
    CENTRED: tl.constexpr,
    B: tl.constexpr,
):
    """OUT [site, room, d]: z − shift of the chosen rows that are not massive, else 0. A row of −1 is none."""
    i, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r = tl.load(CHOSEN + i, mask=i < count, other=-1)
    there = r >= 0
    r = tl.maximum(r, 0)
    column = tl.arange(0, B)
    inside = column < d
    first = tl.where(g < 2, tl.where(g == 0, X0, X1), tl.where(g == 2, X2, X3))
    second = tl.where(g < 6, tl.where(g == 4, X4, X5), tl.where(g == 6, X6, X7))
    third = tl.where(g < 10, tl.where(g == 8, X8, X9), tl.where(g == 10, X10, X11))
    fourth = tl.where(g < 14, tl.where(g == 12, X12, X13), tl.where(g == 14, X14, X15))
    X = tl.where(g < 8, tl.where(g < 4, first, second), tl.where(g < 12, third, fourth))
    x = tl.load(X + r * d + column, mask=inside & there, other=0.0)
    x = x.to(tl.float32)
    stats = STATS + g.to(tl.int64) * 7 * n + r
    if CENTRED:
        x -= tl.load(stats + n)
    scale = tl.div_rn(1.0, tl.sqrt_rn(tl.load(stats + 2 * n) + eps))
    z = x * scale - tl.load(SHIFT + g * d + column, mask=inside, other=0.0)
    peak = tl.load(stats + 5 * n)
    # A NaN is no massive coordinate: it stays, and is found when the sums are read.
    ordinary = there & ((peak < tl.load(BOUND + g)) | (peak != peak))
    place = OUT + (g.to(tl.int64) * room + i) * d + column
    tl.store(place, tl.where(ordinary, z, 0.0).to(OUT.dtype.element_ty), mask=inside)


@triton.jit
def gather_kernel(
    X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15, ROWS, OUT, d, count, B: tl.constexpr
):
    """OUT [site, count, d]: copies of the given rows."""
    i, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r = tl.load(ROWS + i)
    column = tl.arange(0, B)
    inside = column < d
    first = tl.where(g < 2, tl.where(g == 0, X0, X1), tl.where(g == 2, X2, X3))
    second = tl.where(g < 6, tl.where(g == 4, X4, X5), tl.where(g == 6, X6, X7))
    third = tl.where(g < 10, tl.where(g == 8, X8, X9), tl.where(g == 10, X10, X11))
    fourth = tl.where(g < 14, tl.where(g == 12, X12, X13), tl.where(g == 14, X14, X15))
    X = tl.where(g < 8, tl.where(g < 4, first, second), tl.where(g < 12, third, fourth))
    x = tl.load(X + r * d + column, mask=inside, other=0.0)
    tl.store(OUT + (g.to(tl.int64) * count + i) * d + column, x, mask=inside)


@triton.jit
def path_kernel(
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
    ROWS,
    CARRIED,
    WORDS,
    OWN,
    NEXT,
    OTHER,
    GAIN,
    TILT,
    OUT,
    ENDS,
    n,
    d,
    words_stride,
    eps,
    COUNT: tl.constexpr,
    CENTRED: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    B: tl.constexpr,
):
    """OUT [state, 7, n]: products of a state's step with words and with the step before, as `paths.PRODUCTS` names
    them. ROWS [state, 7, n] are the rows' statistics. CARRIED [3, n, d] has the last state, the last step and the first
    state of the groups before."""
    r = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, B)
    inside = column < d
    own = tl.load(WORDS + tl.load(OWN + r) * words_stride + column, mask=inside, other=0.0).to(tl.float32)
    following = tl.load(WORDS + tl.load(NEXT + r) * words_stride + column, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(WORDS + tl.load(OTHER + r) * words_stride + column, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(GAIN + column, mask=inside, other=0.0)
    tilt = tl.load(TILT + column, mask=inside, other=0.0)
    carried = CARRIED + r * d + column
    size = n.to(tl.int64) * d
    # Before the first state there is nothing: its step is the state itself.
    state = tl.zeros((B,), dtype=tl.float32)
    step = tl.zeros((B,), dtype=tl.float32)
    if not FIRST:
        state = tl.load(carried, mask=inside, other=0.0)
        step = tl.load(carried + size, mask=inside, other=0.0)
    rows, out = ROWS + r, OUT + r
    for g in range(COUNT):
        first = tl.where(g < 2, tl.where(g == 0, X0, X1), tl.where(g == 2, X2, X3))
        second = tl.where(g < 6, tl.where(g == 4, X4, X5), tl.where(g == 6, X6, X7))
        third = tl.where(g < 10, tl.where(g == 8, X8, X9), tl.where(g == 10, X10, X11))
        fourth = tl.where(g < 14, tl.where(g == 12, X12, X13), tl.where(g == 14, X14, X15))
        X = tl.where(g < 8, tl.where(g < 4, first, second), tl.where(g < 12, third, fourth))
        z = tl.load(X + r * d + column, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            z = tl.where(inside, z - tl.load(rows + n), 0.0)
        z *= tl.div_rn(1.0, tl.sqrt_rn(tl.load(rows + 2 * n) + eps))
        new = z - state
        bend = tl.sum(new * step, 0)
        state, step = z, new
        if FIRST and g == 0:
            tl.store(carried + 2 * size, z, mask=inside)
        warped = step * gain
        tl.store(out, tl.sum(warped * own, 0))
        tl.store(out + n, tl.sum(warped * following, 0))
        tl.store(out + 2 * n, tl.sum(warped * other, 0))
        tl.store(out + 3 * n, tl.sum(step * tilt, 0))
        tl.store(out + 4 * n, tl.sum(step * step, 0))
        tl.store(out + 5 * n, bend)
        tl.store(out + 6 * n, tl.sum(z * z * gain * gain, 0))
        rows += 7 * n
        out += 7 * n
    if LAST:
        moved = state - tl.load(carried + 2 * size, mask=inside, other=0.0)
        tl.store(ENDS + r, tl.sum(moved * moved, 0))
    else:
        tl.store(carried, state, mask=inside)
        tl.store(carried + size, step, mask=inside)


@triton.jit
def fold_kernel(
    PRODUCTS, OUT, site_stride, part_stride, row_stride, rows, columns, PARTS: tl.constexpr, B: tl.constexpr
):
    """OUT [site, rows, columns] in float64: add PRODUCTS [site, part, rows, columns], one part after another."""
    site, row = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    column = tl.program_id(2) * B + tl.arange(0, B)
    inside = column < columns
    place = OUT + (site * rows + row) * columns + column
    source = PRODUCTS + site * site_stride + row * row_stride + column
    total = tl.load(place, mask=inside, other=0.0)
    for part in range(PARTS):
        total += tl.load(source + part * part_stride, mask=inside, other=0.0).to(tl.float64)
    tl.store(place, total, mask=inside)
