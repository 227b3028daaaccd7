"""How are sums of float32 added to sums of float64? One read of each; a cast beforehand would be another array."""

import torch
from torch import Tensor

from armillary.geometry.fused import fused

BLOCK = 512


def fold_in(total: Tensor, parts: Tensor) -> None:
    """Add the parts [site, part, rows, columns] to totals [site, rows, columns] in float64.

    >>> total = torch.zeros(1, 1, 2, dtype=torch.float64)
    >>> fold_in(total, torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]]))
    >>> total.tolist()
    [[[4.0, 6.0]]]
    """
    suits = parts.dtype == torch.float32 and parts.stride(-1) == 1 and total.is_contiguous()
    if not (suits and fused(parts)):
        total += parts.sum(1, dtype=torch.float64)
        return
    from armillary.geometry.fused.kernels import fold_kernel

    sites, rows, columns = total.shape
    site, part, row, _ = parts.stride()
    grid = (sites, rows, -(-columns // BLOCK))
    sizes = {"PARTS": parts.shape[1], "B": BLOCK, "num_warps": 4}
    fold_kernel[grid](parts, total, site, part, row, rows, columns, **sizes)
