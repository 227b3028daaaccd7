"""What can be had of rows that are read once? Their statistics and directions together; and lengths per head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.geometry.fused import fused
from armillary.geometry.fused.row_statistics import AT_ONCE, block, dense, directions, pointers, row_statistics, warps

# Rows of a program, whose sum is kept in registers, and so many times the threads that one row alone would have.
ROWS, THREADS = 32, 2


def statistics_and_directions(
    sites: Sequence[Tensor],
    centred: bool,
    eps: float,
    out: Tensor,
    counts: Tensor,
    bounds: Tensor,
    shifts: Tensor,
    z: Tensor,
) -> Tensor:
    """Fill `out` as `row_statistics` does, and `z` [site, m, d], m ≥ n, with the directions less the shifts of the rows
    that `counts` marks, 0 elsewhere; a row is where it was. Returns sums of z [site, part, d] in float32.

    >>> z, out = torch.empty(1, 4, 2), torch.empty(1, 7, 3)
    >>> rows, counts = torch.tensor([[3.0, 4.0], [1.0, 0.0], [9.0, 0.0]]), torch.tensor([1, 1, 0])
    >>> sums = statistics_and_directions(
    ...     [rows], False, 0.0, out, counts, torch.full((1,), torch.inf), torch.zeros(1, 2), z
    ... )
    >>> [[round(x, 2) for x in row] for row in z[0].tolist()]
    [[0.85, 1.13], [1.41, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    if not fused(sites[0]):
        row_statistics(sites, centred, eps, out)
        every = torch.arange(len(counts), device=counts.device)
        directions(sites, out, torch.where(counts != 0, every, -1), centred, eps, bounds, shifts, z)
        return z.sum(1, keepdim=True, dtype=torch.promote_types(z.dtype, torch.float32))
    from armillary.geometry.fused.sphere_kernels import sphere_kernel

    (n, d), room = sites[0].shape, z.shape[1]
    parts = -(-room // ROWS)
    sums = torch.empty(len(sites), parts, d, device=z.device)
    sizes = {"CENTRED": centred, "R": ROWS, "B": block(d), "num_warps": THREADS * warps(d)}
    sphere_kernel[(parts, len(sites))](
        *pointers(sites), counts, bounds, shifts.contiguous(), out, z, sums, n, d, room, eps, **sizes
    )
    return sums


def vector_lengths(sites: Sequence[Tensor]) -> Tensor:
    """Lengths [site, b, t, h] of vectors [b, t, h, k], in float32.

    >>> vector_lengths([torch.tensor([[[[3.0, 4.0], [0.0, 2.0]]]])]).tolist()
    [[[[5.0, 2.0]]]]
    """
    if not fused(sites[0]):
        return torch.stack([torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32) for x in sites])
    from armillary.geometry.fused.sphere_kernels import head_length_kernel

    b, t, heads, k = sites[0].shape
    out = torch.empty(len(sites), b, t, heads, device=sites[0].device)
    sizes = {"H": block(heads), "K": block(k), "num_warps": warps(block(heads) * block(k))}
    for start in range(0, len(sites), AT_ONCE):
        some = [dense(x, heads * k) for x in sites[start : start + AT_ONCE]]
        head_length_kernel[(b * t, len(some))](*pointers(some), out[start:], b * t, heads, k, **sizes)
    return out
