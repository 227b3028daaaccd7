"""What are a row's length, mean, power and largest entry, and how long is its direction? One read of the row."""

import torch
from torch import Tensor

from armillary.geometry.fused import fused

FIELDS = ("length2", "mean", "power", "radius2", "total", "peak", "place")
"""‖x‖²; the mean of x; what a norm divides out, squared (variance or mean square); ‖z‖² and Σz of the direction z; the
largest |x| of a coordinate, and which one it is."""


def row_statistics(x: Tensor, centred: bool, eps: float, out: Tensor | None = None) -> Tensor:
    """[FIELDS, n] of rows [n, d], float32 (float64 of float64 rows); `centred`: by LayerNorm, else by RMSNorm.

    >>> row_statistics(torch.tensor([[3.0, -4.0]]), False, 0.0)[:, 0].tolist()[:3]
    [25.0, -0.5, 12.5]
    """
    if not fused(x):
        found = _plain(x, centred, eps)
        return found if out is None else out.copy_(found)
    from triton import next_power_of_2

    from armillary.geometry.fused.kernels import row_kernel

    n, d = x.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    out = x.new_empty(len(FIELDS), n, dtype=torch.float32) if out is None else out
    row_kernel[(n,)](x, out, n, d, x.stride(0), eps, CENTRED=centred, B=next_power_of_2(d), num_warps=warps(d))
    return out


def half_rows(
    x: Tensor, rows: Tensor, centred: bool, eps: float, counts: Tensor, bound: Tensor, shift: Tensor, out: Tensor
) -> Tensor:
    """z − shift [n, d] in half precision; 0 where a row does not count or its peak reaches the bound.

    `rows` are the statistics of x. z has no entry beyond √d, so half precision keeps eleven bits of each.
    """
    if not fused(x):
        power, mean, peak = (rows[FIELDS.index(name)] for name in ("power", "mean", "peak"))
        z = (x.float() - mean[:, None] if centred else x.float()) * torch.rsqrt(power + eps)[:, None]
        ordinary = (counts != 0) & ~(peak >= bound)
        return out.copy_(torch.where(ordinary[:, None], z - shift, 0.0))
    from triton import next_power_of_2

    from armillary.geometry.fused.kernels import half_kernel

    n, d = x.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    half_kernel[(n,)](
        x,
        rows,
        counts,
        bound,
        shift,
        out,
        n,
        d,
        x.stride(0),
        eps,
        CENTRED=centred,
        B=next_power_of_2(d),
        num_warps=warps(d),
    )
    return out


def warps(d: int) -> int:
    """Threads that share a row: a warp where it fits, because sums across warps wait for each other."""
    return 1 if d <= 1024 else 2 if d <= 2048 else 4 if d <= 4096 else 8


def _plain(x: Tensor, centred: bool, eps: float) -> Tensor:
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    length2, mean = x.square().sum(-1), x.mean(-1)
    z, power = x, length2 / x.shape[-1]
    if centred:
        z = x - mean[:, None]
        power = z.square().mean(-1)
    z = z * torch.rsqrt(power + eps)[:, None]
    peak, place = x.abs().max(-1)
    return torch.stack((length2, mean, power, z.square().sum(-1), z.sum(-1), peak, place.to(x.dtype)))
