"""What are the lengths, means, powers and largest entries of the rows at several sites, and their directions?

Sites of one kind are read together: a launch of a kernel takes the host as long as a small kernel takes the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.geometry.fused import fused

FIELDS = ("length2", "mean", "power", "radius2", "total", "peak", "place")
"""‖x‖²; the mean of x; what a norm divides out, squared (variance or mean square); ‖z‖² and Σz of the direction z; the
largest |x| of a coordinate, and which one it is."""
# How many sites a kernel reads at once: it takes a pointer to the rows of each.
AT_ONCE = 16


def row_statistics(sites: Sequence[Tensor], centred: bool, eps: float, out: Tensor) -> Tensor:
    """[site, FIELDS, n] of the rows [n, d] of at most `AT_ONCE` sites; `centred`: by LayerNorm, else by RMSNorm.

    >>> out = torch.empty(1, 7, 1)
    >>> row_statistics([torch.tensor([[3.0, -4.0]])], False, 0.0, out)[0, :3, 0].tolist()
    [25.0, -0.5, 12.5]
    """
    if not fused(sites[0]):
        for x, fields in zip(sites, out, strict=True):
            _plain(x, centred, eps, fields)
        return out
    from armillary.geometry.fused.kernels import row_kernel

    n, d = sites[0].shape
    row_kernel[(n, len(sites))](*pointers(sites), out, n, d, eps, CENTRED=centred, B=block(d), num_warps=warps(d))
    return out


def directions(
    sites: Sequence[Tensor],
    statistics: Tensor,
    chosen: Tensor,
    centred: bool,
    eps: float,
    bounds: Tensor,
    shifts: Tensor,
    out: Tensor,
) -> Tensor:
    """z − shift [site, m, d] of the chosen rows; 0 where a row's peak reaches its site's bound, where the choice is −1,
    and behind the chosen.

    `statistics` are those of the rows. z has no entry beyond √d, so half precision keeps eleven bits of each.
    """
    if not fused(sites[0]):
        out[:, len(chosen) :].zero_()
        none, chosen = chosen < 0, chosen.clamp_min(0)
        for x, fields, bound, shift, place in zip(sites, statistics, bounds, shifts, out, strict=True):
            some = fields.index_select(1, chosen)
            power, mean, peak = (some[FIELDS.index(name)] for name in ("power", "mean", "peak"))
            x = x.index_select(0, chosen).to(fields.dtype)
            z = (x - mean[:, None] if centred else x) * torch.rsqrt(power + eps)[:, None]
            place[: len(chosen)] = torch.where(((peak >= bound) | none)[:, None], 0.0, z - shift)
        return out
    from armillary.geometry.fused.kernels import direction_kernel

    n, d = sites[0].shape
    direction_kernel[(out.shape[1], len(sites))](
        *pointers(sites),
        statistics,
        chosen.contiguous(),
        bounds,
        shifts,
        out,
        n,
        d,
        len(chosen),
        out.shape[1],
        eps,
        CENTRED=centred,
        B=block(d),
        num_warps=warps(d),
    )
    return out


def gathered(sites: Sequence[Tensor], rows: Tensor, out: Tensor) -> Tensor:
    """The given rows [site, m, d] of every site, as they are."""
    if not fused(sites[0]):
        for x, place in zip(sites, out, strict=True):
            torch.index_select(x, 0, rows, out=place)
        return out
    from armillary.geometry.fused.kernels import gather_kernel

    # Every k-th of some rows is a view: a kernel would read its neighbours.
    d, rows = out.shape[2], rows.contiguous()
    gather_kernel[(len(rows), len(sites))](*pointers(sites), rows, out, d, len(rows), B=block(d), num_warps=warps(d))
    return out


def dense(x: Tensor, d: int) -> Tensor:
    """Rows [n, d] that lie one after another, as kernels read them."""
    return x.reshape(-1, d).contiguous()


def pointers(sites: Sequence[Tensor]) -> list[Tensor]:
    """As many as the kernels take; the last again where there are fewer."""
    return [*sites, *[sites[-1]] * (AT_ONCE - len(sites))]


def block(d: int) -> int:
    return 1 << (d - 1).bit_length()


def warps(d: int) -> int:
    """Threads that share a row: a warp where it fits, because sums across warps wait for each other."""
    return 1 if d <= 1024 else 2 if d <= 2048 else 4 if d <= 4096 else 8


def _plain(x: Tensor, centred: bool, eps: float, out: Tensor) -> None:
    x = x.to(out.dtype)
    length2, mean = x.square().sum(-1), x.mean(-1)
    z, power = x, length2 / x.shape[-1]
    if centred:
        z = x - mean[:, None]
        power = z.square().mean(-1)
    z = z * torch.rsqrt(power + eps)[:, None]
    peak, place = x.abs().max(-1)
    torch.stack((length2, mean, power, z.square().sum(-1), z.sum(-1), peak, place.to(x.dtype)), out=out)
