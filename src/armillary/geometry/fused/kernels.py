"""Triton kernels: one program per row, or per tile of a product. `rows`, `gram` and `paths` say what they compute."""

import triton
import triton.language as tl


@triton.jit
def row_kernel(X, OUT, n, d, stride, eps, CENTRED: tl.constexpr, B: tl.constexpr):
    """OUT [7, n] of rows X: what `rows.FIELDS` names."""
    r = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, B)
    inside = column < d
    x = tl.load(X + r * stride + column, mask=inside, other=0.0).to(tl.float32)
    length2 = tl.sum(x * x, 0)
    mean = tl.sum(x, 0) / d
    power = length2 / d
    z = x
    if CENTRED:
        z = tl.where(inside, x - mean, 0.0)
        power = tl.sum(z * z, 0) / d
    z = z * tl.div_rn(1.0, tl.sqrt_rn(power + eps))
    size = tl.where(inside, tl.abs(x), -1.0)
    tl.store(OUT + r, length2)
    tl.store(OUT + n + r, mean)
    tl.store(OUT + 2 * n + r, power)
    tl.store(OUT + 3 * n + r, tl.sum(z * z, 0))
    tl.store(OUT + 4 * n + r, tl.sum(z, 0))
    tl.store(OUT + 5 * n + r, tl.max(size, 0))
    tl.store(OUT + 6 * n + r, tl.argmax(size, 0).to(tl.float32))


@triton.jit
def half_kernel(X, ROWS, COUNTS, BOUND, SHIFT, OUT, n, d, stride, eps, CENTRED: tl.constexpr, B: tl.constexpr):
    """OUT [n, d] in half precision: z − shift where the row counts and is not massive, else 0."""
    r = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, B)
    inside = column < d
    x = tl.load(X + r * stride + column, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        x -= tl.load(ROWS + n + r)
    scale = tl.div_rn(1.0, tl.sqrt_rn(tl.load(ROWS + 2 * n + r) + eps))
    z = x * scale - tl.load(SHIFT + column, mask=inside, other=0.0)
    peak = tl.load(ROWS + 5 * n + r)
    ordinary = (tl.load(COUNTS + r) != 0) & (peak < tl.load(BOUND))
    # A NaN is no massive coordinate: it stays, and is found when the sums are read.
    ordinary = ordinary | ((tl.load(COUNTS + r) != 0) & (peak != peak))
    tl.store(OUT + r * d + column, tl.where(ordinary, z, 0.0).to(tl.float16), mask=inside)


@triton.jit
def gram_kernel(Z, FIRST, SECOND, OUT, n, d, tiles, PER: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    """OUT [split, tile, M, M]: products of columns over one part of the rows."""
    tile, split = tl.program_id(0), tl.program_id(1)
    i, j = tl.load(FIRST + tile), tl.load(SECOND + tile)
    left, right = i * M + tl.arange(0, M), j * M + tl.arange(0, M)
    row = split * PER + tl.arange(0, K)
    end = tl.minimum(n, (split + 1) * PER)
    total = tl.zeros((M, M), dtype=tl.float32)
    for _ in range(0, PER, K):
        here = (row < end)[:, None]
        start = Z + row.to(tl.int64)[:, None] * d
        a = tl.load(start + left[None, :], mask=here & (left < d)[None, :], other=0.0)
        b = tl.load(start + right[None, :], mask=here & (right < d)[None, :], other=0.0)
        total = tl.dot(tl.trans(a), b, total)
        row += K
    place = OUT + (split * tiles + tile).to(tl.int64) * M * M
    tl.store(place + tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :], total)


@triton.jit
def fold_kernel(
    PARTS, SUMS, FIRST, SECOND, FLAT, TOTAL, d, splits, tiles, M: tl.constexpr, STRIP: tl.constexpr, ROWS: tl.constexpr
):
    """Add the parts of each tile, in order and in float64, to the strips of the triangle; and SUMS [d] to TOTAL."""
    tile, some = tl.program_id(0), tl.program_id(1)
    i, j = tl.load(FIRST + tile), tl.load(SECOND + tile)
    inner = some * ROWS + tl.arange(0, ROWS)
    row, column = i * M + inner, j * M + tl.arange(0, M)
    strip = row // STRIP
    # Strips before this one have STRIP rows each, of d, d − STRIP, … columns.
    before = STRIP * (strip * d - STRIP * (strip * (strip - 1) // 2))
    place = before[:, None] + (row - strip * STRIP)[:, None] * (d - strip * STRIP)[:, None]
    place += column[None, :] - (strip * STRIP)[:, None]
    inside = (row < d)[:, None] & (column < d)[None, :] & (column[None, :] >= (strip * STRIP)[:, None])
    total = tl.load(FLAT + place, mask=inside, other=0.0)
    split = 0
    while split < splits:
        part = PARTS + (split * tiles + tile).to(tl.int64) * M * M
        total += tl.load(part + inner[:, None] * M + tl.arange(0, M)[None, :]).to(tl.float64)
        split += 1
    tl.store(FLAT + place, total, mask=inside)
    if i == j:
        sums = tl.load(SUMS + row, mask=row < d, other=0.0).to(tl.float64)
        tl.store(TOTAL + row, tl.load(TOTAL + row, mask=row < d, other=0.0) + sums, mask=row < d)


@triton.jit
def path_kernel(
    X,
    ROWS,
    LAST,
    BEFORE,
    HERE,
    START,
    STATS,
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
    stride,
    words_stride,
    eps,
    here,
    last,
    before,
    CENTRED: tl.constexpr,
    PAST: tl.constexpr,
    END: tl.constexpr,
    B: tl.constexpr,
):
    """OUT [7, n]: products of a state's step with words and with the step before, as `paths.PRODUCTS` names them.

    HERE gets a copy of the row; LAST, BEFORE and START hold those of the two states before and of the first. STATS
    [4, 2, n] has the mean and 1/√(power + ε) of each of these copies, the last of the first state.
    """
    r = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, B)
    inside = column < d
    raw = tl.load(X + r * stride + column, mask=inside, other=0.0)
    tl.store(HERE + r * d + column, raw, mask=inside)
    mean, scale = tl.load(ROWS + n + r), tl.div_rn(1.0, tl.sqrt_rn(tl.load(ROWS + 2 * n + r) + eps))
    tl.store(STATS + 2 * here * n + r, mean)
    tl.store(STATS + (2 * here + 1) * n + r, scale)
    z = raw.to(tl.float32)
    if CENTRED:
        z = tl.where(inside, z - mean, 0.0)
    z = z * scale
    gain = tl.load(GAIN + column, mask=inside, other=0.0)
    step, bend = z, 0.0
    if PAST > 0:
        one = tl.load(LAST + r * d + column, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            one = tl.where(inside, one - tl.load(STATS + 2 * last * n + r), 0.0)
        one *= tl.load(STATS + (2 * last + 1) * n + r)
        step = z - one
        if PAST > 1:
            two = tl.load(BEFORE + r * d + column, mask=inside, other=0.0).to(tl.float32)
            if CENTRED:
                two = tl.where(inside, two - tl.load(STATS + 2 * before * n + r), 0.0)
            one -= two * tl.load(STATS + (2 * before + 1) * n + r)
        bend = tl.sum(step * one, 0)
    warped = step * gain
    own = tl.load(WORDS + tl.load(OWN + r) * words_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + r, tl.sum(warped * own, 0))
    following = tl.load(WORDS + tl.load(NEXT + r) * words_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + n + r, tl.sum(warped * following, 0))
    other = tl.load(WORDS + tl.load(OTHER + r) * words_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + 2 * n + r, tl.sum(warped * other, 0))
    tl.store(OUT + 3 * n + r, tl.sum(step * tl.load(TILT + column, mask=inside, other=0.0), 0))
    tl.store(OUT + 4 * n + r, tl.sum(step * step, 0))
    tl.store(OUT + 5 * n + r, bend)
    tl.store(OUT + 6 * n + r, tl.sum(z * z * gain * gain, 0))
    if END:
        first = tl.load(START + r * d + column, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            first = tl.where(inside, first - tl.load(STATS + 6 * n + r), 0.0)
        first = z - first * tl.load(STATS + 7 * n + r)
        tl.store(ENDS + r, tl.sum(first * first, 0))
