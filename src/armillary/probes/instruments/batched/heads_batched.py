"""Several layers' heads at once: for GPUs, where a layer alone is many small kernels. On a CPU, one layer at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Attention
from armillary.anatomy.norm import Norm
from armillary.anatomy.positions.rotary import Rotation
from armillary.geometry.fused.head_lengths import vector_lengths
from armillary.measures.stacks import product
from armillary.probes.instruments.head_parts.head_nullspaces import NullShare

# Numbers in the scores of the layers that are evaluated together; some ten such arrays are alive at once. Fewer groups
# take the host less time, and while the last one is evaluated it has nothing left to do.
TOGETHER = 1 << 27
# So many numbers are allowed for each of these bytes of a GPU's memory.
BYTES_PER_SCORE = 512


def together(device: torch.device) -> int:
    """How many scores are evaluated at once."""
    if device.type != "cuda":
        return TOGETHER
    return min(TOGETHER, torch.cuda.get_device_properties(device).total_memory // BYTES_PER_SCORE)


@dataclass(frozen=True, eq=False)
class Held:
    """What a batch showed at one layer: x [b, t, d], and q, k, v and results [b, t, heads, k]."""

    layer: int
    attention: Attention
    norm: Norm | None
    rotation: Rotation | None
    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    result: Tensor

    def alike(self, other: "Held") -> bool:
        """Can both be evaluated as one layer with more windows? Not where heads add biases, sinks or norms of their
        own."""
        a, b = self.attention, other.attention
        own = [part for head in (a, b) for part in (head.bias, head.sinks, head.q_norm, head.k_norm)]
        shapes = [(held.x.shape, held.q.shape, held.k.shape, held.v.shape) for held in (self, other)]
        kinds = [None if held.norm is None else (held.norm.kind, held.norm.eps) for held in (self, other)]
        same = (a.scale, a.softcap, a.window, a.group) == (b.scale, b.softcap, b.window, b.group)
        return (
            same
            and all(part is None for part in own)
            and shapes[0] == shapes[1]
            and kinds[0] == kinds[1]
            and self.rotation is other.rotation
        )


def alike(layers: Sequence[Held], groups: int) -> Iterator[list[Held]]:
    """Neighbouring layers that can be evaluated together, in at least so many `groups` of about equal size."""
    most = -(-len(layers) // max(1, min(groups, len(layers))))
    waiting: list[Held] = []
    for held in layers:
        if waiting and (len(waiting) == most or not waiting[0].alike(held)):
            yield waiting
            waiting = []
        waiting.append(held)
    if waiting:
        yield waiting


def head_lengths(layers: Sequence[Held]) -> Tensor:
    """[layer, b, t, 2 h]: lengths of q, then of the key that each head reads. A rotation does not change them (YaRN's
    factor does, but not their spread)."""
    attention = layers[0].attention
    q, k = (vector_lengths([attention.normed(side, getattr(held, side)) for held in layers]) for side in "qk")
    return torch.cat((q, k.repeat_interleave(attention.group, -1)), -1)


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """[layer, …]; of one layer no copy is made."""
    return parts[0][None] if len(parts) == 1 else torch.stack(list(parts))


class SharesOfLayers:
    """What the heads of several layers cannot see, on one side."""

    def __init__(self, shares: Sequence[NullShare]) -> None:
        self._shares = shares
        self._spans: Tensor | None = None
        if len(shares) > 1 and all(share.matrix is not None for share in shares):
            # Columns of A·(AᵀA)^-½ are orthonormal: z has as much of its length inside the span as its product with
            # them, and half precision suits them as it suits directions.
            spans = [(s.matrix.double() @ s.root.double()) for s in shares if s.matrix is not None]
            kind = torch.float16 if spans[0].is_cuda else torch.float32
            self._spans = torch.stack([span.permute(1, 0, 2).flatten(1).to(kind) for span in spans])

    @property
    def read_projections(self) -> bool:
        """Or are shares computed from z alone?"""
        return self._spans is None

    def of(self, projection: Tensor | None, z: Tensor) -> Tensor:
        """[layer · b, h, t] for `projection` [layer · b, t, h or groups, k] of z [layer · b, t, d]."""
        first, count = self._shares[0], len(self._shares)
        if self._spans is None:
            assert projection is not None, "q, k or v is read"
            pairs = zip(self._shares, projection.chunk(count), z.chunk(count), strict=True)
            return torch.cat([share.of(some, rows) for share, some, rows in pairs])
        rows = z.view(count, -1, z.shape[-1])
        seen = product(rows.to(self._spans.dtype), self._spans)
        seen = torch.linalg.vector_norm(seen.view(*z.shape[:2], len(first.root), -1), dim=-1)
        length = torch.linalg.vector_norm(z, dim=-1)[..., None].clamp_min(1e-15)
        unseen = 1 - (seen / length).square()
        return unseen.clamp(0, 1).transpose(1, 2).repeat_interleave(first.group, 1)
