"""What is ZᵀZ of rows in half precision? Its upper triangle, in float32 within a part of the rows, then in float64."""

from functools import cache

import torch
from torch import Tensor

from armillary.geometry.fused import fused, interpreted

# Tiles of the triangle, rows per step of a product, rows of a tile that are added at once.
TILE, STEP, ADDED = 128, 64, 16
# A part of the rows is no longer than this: float32 sums of more would lose digits.
PART = 4096


def strip_shapes(d: int, strip: int) -> list[tuple[int, int]]:
    """The triangle as strips of rows, each from its own first column on."""
    return [(min(strip, d - i), d - i) for i in range(0, d, strip)]


def add_gram(z: Tensor, flat: Tensor, total: Tensor, strip: int) -> None:
    """Add ZᵀZ of rows [n, d] to strips that lie one after another in `flat`, and the columns' sums to `total` [d]."""
    d = z.shape[1]
    if not fused(z):
        for start in range(0, len(z), PART):
            _add_plain(z[start : start + PART].float(), flat, total, strip)
        return
    from armillary.geometry.fused.kernels import fold_kernel, gram_kernel

    first, second = _tiles(d, z.device)
    tiles, per = len(first), _per(len(z), len(first), z.device)
    splits = -(-len(z) // per)
    parts = torch.empty(splits, tiles, TILE, TILE, dtype=torch.float32, device=z.device)
    gram_kernel[(tiles, splits)](
        z, first, second, parts, len(z), d, tiles, PER=per, M=TILE, K=STEP, num_warps=8, num_stages=4
    )
    sums = z.sum(0, dtype=torch.float32)
    fold_kernel[(tiles, TILE // ADDED)](
        parts, sums, first, second, flat, total, d, splits, tiles, M=TILE, STRIP=strip, ROWS=ADDED, num_warps=4
    )


def _add_plain(z: Tensor, flat: Tensor, total: Tensor, strip: int) -> None:
    total += z.sum(0)
    start = 0
    for i, (height, width) in enumerate(strip_shapes(z.shape[1], strip)):
        column = i * strip
        flat[start : start + height * width] += (z[:, column : column + height].T @ z[:, column:]).reshape(-1)
        start += height * width


def _per(n: int, tiles: int, device: torch.device) -> int:
    """Rows of one part, a power of two because each number is compiled: parts fill the device about twice."""
    processors = 8 if interpreted() else torch.cuda.get_device_properties(device).multi_processor_count
    parts = max(1, 2 * processors // tiles)
    return min(PART, max(8 * STEP, 1 << (max(1, n // parts) - 1).bit_length()))


@cache
def _tiles(d: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column of every tile of the upper triangle."""
    count = -(-d // TILE)
    pairs = torch.triu_indices(count, count, device=device, dtype=torch.int32)
    return pairs[0].contiguous(), pairs[1].contiguous()
