"""Triton kernels: one program per query of a head, with all its keys in registers. `queries` says what they compute."""

import triton
import triton.language as tl


@triton.jit
def pattern_kernel(PRODUCTS, LENGTHS, UNSEEN, SEES, OUT, total, heads, n, t, scale, T: tl.constexpr):
    """OUT [4, b, h, n]: what `queries.PATTERN` names."""
    row = tl.program_id(0).to(tl.int64)
    window, i, head = row // (heads * n), row % n, row // n
    column = tl.arange(0, T)
    inside = column < t
    seen = (tl.load(SEES + (window * n + i) * t + column, mask=inside, other=0) != 0) & inside
    later = seen & (column > 0)
    product = tl.load(PRODUCTS + row * t + column, mask=inside, other=0.0)
    score = product * scale
    length = tl.load(LENGTHS + head * t + column, mask=inside, other=1.0)
    along = product / length * scale

    top = tl.max(tl.where(seen, score, -1e30), 0)
    weight = tl.where(seen, tl.exp(score - top), 0.0)
    mass = tl.sum(weight, 0)
    pattern = weight / mass
    tl.store(OUT + row, -tl.sum(pattern * (score - top - tl.log(mass)), 0))
    unseen = tl.load(UNSEEN + head * t + column, mask=inside, other=0.0)
    tl.store(OUT + total + row, tl.sum(pattern * unseen, 0))

    # Every key at the mean length of those that the query sees; then the same without position 0.
    mean = tl.sum(tl.where(seen, length, 0.0), 0) / tl.maximum(tl.sum(seen.to(tl.float32), 0), 1.0)
    equal = along * mean
    equal = tl.where(seen, tl.exp(equal - tl.max(tl.where(seen, equal, -1e30), 0)), 0.0)
    moved = 1.0 - tl.sum(tl.minimum(pattern, equal / tl.sum(equal, 0)), 0)
    tl.store(OUT + 2 * total + row, tl.maximum(moved, 0.0))
    mean = tl.sum(tl.where(later, length, 0.0), 0) / tl.maximum(tl.sum(later.to(tl.float32), 0), 1.0)
    equal = along * mean
    equal = tl.where(later, tl.exp(equal - tl.max(tl.where(later, equal, -1e30), 0)), 0.0)
    true = tl.where(later, tl.exp(score - tl.max(tl.where(later, score, -1e30), 0)), 0.0)
    moved = 1.0 - tl.sum(tl.minimum(true / tl.sum(true, 0), equal / tl.sum(equal, 0)), 0)
    tl.store(OUT + 3 * total + row, tl.maximum(moved, 0.0))


@triton.jit
def power_kernel(PRODUCTS, BARE, LENGTHS, SEES, OUT, total, heads, n, t, scale, T: tl.constexpr, BIASED: tl.constexpr):
    """OUT [9, b, h, n]: what `queries.STATISTICS` names after `PATTERN`. BARE is read where queries have a bias."""
    row = tl.program_id(0).to(tl.int64)
    window, i, head = row // (heads * n), row % n, row // n
    column = tl.arange(0, T)
    inside = column < t
    seen = (tl.load(SEES + (window * n + i) * t + column, mask=inside, other=0) != 0) & inside
    product = tl.load(PRODUCTS + row * t + column, mask=inside, other=0.0)
    out = OUT + row
    unscaled = tl.where(seen, product, -1e30)
    unscaled -= tl.max(unscaled, 0)
    weight = tl.where(seen, tl.exp(unscaled), 0.0)
    mass = tl.sum(weight, 0)
    tl.store(out, -tl.sum(weight / mass * tl.where(seen, unscaled - tl.log(mass), 0.0), 0))
    if BIASED:
        bare = tl.where(seen, tl.load(BARE + row * t + column, mask=inside, other=0.0) * scale, -1e30)
        bare -= tl.max(bare, 0)
        weight = tl.where(seen, tl.exp(bare), 0.0)
        mass = tl.sum(weight, 0)
        tl.store(out + total, -tl.sum(weight / mass * tl.where(seen, bare - tl.log(mass), 0.0), 0))
    else:
        tl.store(out + total, tl.log(tl.sum(seen.to(tl.float32), 0)))

    # Deviations from the mean over the keys after position 0, which joins the m others with m / (m + 1).
    later = tl.where(seen & (column > 0), 1.0, 0.0)
    count = tl.maximum(tl.sum(later, 0), 1.0)
    share = tl.sum(tl.where(seen & (column == 0), 1.0, 0.0), 0) / (count + 1.0)
    joins = tl.where(share > 0, 1.0 - share, 0.0)
    score = product * scale
    along = product / tl.load(LENGTHS + head * t + column, mask=inside, other=1.0)
    score_mean, along_mean = tl.sum(score * later, 0) / count, tl.sum(along * later, 0) / count
    score_first = tl.sum(tl.where(column == 0, score, 0.0), 0) - score_mean
    along_first = tl.sum(tl.where(column == 0, along, 0.0), 0) - along_mean
    score, along = (score - score_mean) * later, (along - along_mean) * later
    powers, alongs, both = tl.sum(score * score, 0), tl.sum(along * along, 0), tl.sum(score * along, 0)
    tl.store(out + 2 * total, score_mean + share * score_first)
    tl.store(out + 3 * total, powers + joins * score_first * score_first)
    tl.store(out + 4 * total, powers)
    tl.store(out + 5 * total, alongs + joins * along_first * along_first)
    tl.store(out + 6 * total, alongs)
    tl.store(out + 7 * total, both + joins * score_first * along_first)
    tl.store(out + 8 * total, both)


@triton.jit
def rank_kernel(ORDERED, ORDER, NEAR, COUNT, OUT, total, heads, n, t, T: tl.constexpr, J: tl.constexpr):
    """OUT [2, b, h, n]: the correlation of ranks with NEAR, with position 0 and without it. ORDERED are the scores in
    order, ORDER says whose they are; the first COUNT of them count."""
    row = tl.program_id(0).to(tl.int64)
    query = (row // (heads * n)) * n + row % n
    count = tl.load(COUNT + query)
    column = tl.arange(0, T)
    there = column < count
    value = tl.load(ORDERED + row * t + column, mask=there, other=0.0)
    before = tl.load(ORDERED + row * t + column - 1, mask=there & (column > 0), other=0.0)
    key = tl.load(ORDER + row * t + column, mask=there, other=0)
    near = tl.load(NEAR + query * t + key, mask=there, other=0.0)
    rank = column.to(tl.float32) + 1.0
    if tl.sum((there & (column > 0) & (value == before)).to(tl.int32), 0) > 0:
        # Ties get their mean rank: half of how many are below, and of how many are not above.
        rank = tl.zeros((T,), dtype=tl.float32) + 0.5
        for start in range(0, T, J):
            j = start + tl.arange(0, J)
            other = tl.load(ORDERED + row * t + j, mask=j < count, other=float("inf"))
            below, tied = other[None, :] < value[:, None], other[None, :] == value[:, None]
            rank += tl.sum(below.to(tl.float32) + 0.5 * tied.to(tl.float32), 1)
    middle = (count + 1.0) / 2.0
    rank = tl.where(there, rank, 0.0)
    off = tl.where(there, near - middle, 0.0)
    power = tl.sum(rank * rank, 0) - count * middle * middle
    tl.store(OUT + row, tl.sum(off * rank, 0) / tl.sqrt(tl.maximum(tl.sum(off * off, 0) * power, 1e-30)))

    # Without position 0: one less above it, a half less where tied with it.
    start = there & (key == 0)
    first = tl.sum(tl.where(start, 1.0, 0.0), 0)
    ranked, neared = tl.sum(tl.where(start, rank, 0.0), 0), tl.sum(tl.where(start, near, 0.0), 0)
    alone = there & (key != 0)
    rank -= first * tl.where(rank > ranked, 1.0, tl.where(rank == ranked, 0.5, 0.0))
    near -= first * tl.where(near > neared, 1.0, tl.where(near == neared, 0.5, 0.0))
    middle = (count - first + 1.0) / 2.0
    rank, off = tl.where(alone, rank, 0.0), tl.where(alone, near - middle, 0.0)
    power = tl.sum(rank * rank, 0) - (count - first) * middle * middle
    tl.store(OUT + total + row, tl.sum(off * rank, 0) / tl.sqrt(tl.maximum(tl.sum(off * off, 0) * power, 1e-30)))
