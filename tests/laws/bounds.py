"""How far may rounding alone set apart two results of a measure that read the same stream?

A sum of n terms in floating point, in any order and grouping, errs by at most γ = n·u/(1 − n·u) times the sum of the
terms' sizes, with u = 2⁻²⁴ in float32 and 2⁻⁵³ in float64 (Higham 2002, Accuracy and Stability, sections 3.1 and 4.2).
Every bound is for two results, hence twice that, and depends on the stream alone, not on the processor.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

Bound = Mapping[str, Tensor]  # part of a state → the largest difference of its entries

# `Moments` squares batches of at most this many rows in float64.
SHORT = 64
# Roundings of a move to another shift, of a merge and of the division at the end, in float64: at most ten a batch
# or merge, of which a law makes less than ten.
MOVES = 200


def _gamma(terms: int, digits: int) -> float:
    return terms * 2.0**-digits / (1 - terms * 2.0**-digits)


def exact(*stream: Tensor) -> Bound:
    return {}


def scalars_bound(index: Tensor, columns: Tensor) -> Bound:
    """Sums of float64 values and of their squares (one rounding more), by group."""
    sizes, squares = (
        torch.zeros(4, columns.shape[1], dtype=torch.float64).index_add_(0, index, part)
        for part in (columns.double().abs(), columns.double().square())
    )
    factor = 2 * _gamma(len(index) + 1, 53)
    return {"sum": factor * sizes, "square": factor * squares}


def moments_merge(rows: Tensor) -> Bound:
    """Adding states is float64 algebra on sums about shifts.

    A shift is a mean or median of rows, or a mean of shifts, rounded to float32: within the range of its column, so no
    row is farther from it than `reach`, and no mean of products larger than reach·reach. Errors of the float32 sums
    within the states cancel: moving a state to another shift does not change its covariance.
    """
    if not len(rows):
        return {}
    exact_rows = rows.double()
    largest = exact_rows.abs().amax(0)
    reach = exact_rows.amax(0) - exact_rows.amin(0) + 2.0**-23 * largest
    factor = 2 * _gamma(len(rows) + MOVES, 53)
    return {"mean": factor * (reach + largest), "cov": factor * torch.outer(reach, reach)}


def moments_batch(rows: Tensor) -> Bound:
    """Batches of more than SHORT rows are summed and multiplied in float32, about a shift within the ordinary rows.

    Entry ij is a sum of n products a_i·a_j, a = x − shift rounded once each: γ(n+2) of Σ|a_i||a_j|, at most
    n·size_i·size_j by Cauchy and Schwarz. The column sums err by γ(n+1)·n·size, and enter the covariance once for i and
    once for j times the mean's distance from the shift, at most size again: three times γ(n+2)·size_i·size_j in all.
    `size` is the root mean square of |x − centre| + width, since the shift, a median of rows most of which are
    ordinary, lies within `width` of their centre.
    """
    bound = moments_merge(rows)
    if len(rows) <= SHORT:
        return bound
    exact_rows = rows.double()
    centre = exact_rows.median(0).values
    ordinary = exact_rows[(exact_rows[:, 0] - centre[0]).abs() < 0.5 * centre[0].abs()]
    width = (ordinary - centre).abs().amax(0)
    size = ((exact_rows - centre).abs() + width).square().mean(0).sqrt()
    factor = 2 * _gamma(len(rows) + 2, 24)
    return {
        "mean": bound["mean"] + factor * size,
        "cov": bound["cov"] + 3 * factor * torch.outer(size, size),
    }
