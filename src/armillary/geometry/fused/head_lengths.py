"""How long are the vectors of a row's heads, at several layers? By one read of each row."""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.geometry.fused import fused
from armillary.geometry.fused.row_statistics import AT_ONCE, block, dense, pointers, warps


def vector_lengths(sites: Sequence[Tensor]) -> Tensor:
    """Lengths [site, b, t, h] of vectors [b, t, h, k], in float32.

    >>> vector_lengths([torch.tensor([[[[3.0, 4.0], [0.0, 2.0]]]])]).tolist()
    [[[[5.0, 2.0]]]]
    """
    if not fused(sites[0]):
        return torch.stack([torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32) for x in sites])
    from armillary.geometry.fused.length_kernels import head_length_kernel

    b, t, heads, k = sites[0].shape
    out = torch.empty(len(sites), b, t, heads, device=sites[0].device)
    sizes = {"H": block(heads), "K": block(k), "num_warps": warps(block(heads) * block(k))}
    for start in range(0, len(sites), AT_ONCE):
        some = [dense(x, heads * k) for x in sites[start : start + AT_ONCE]]
        head_length_kernel[(b * t, len(some))](*pointers(some), out[start:], b * t, heads, k, **sizes)
    return out
