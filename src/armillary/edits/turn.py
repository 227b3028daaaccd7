"""Turn: what if a state pointed in a slightly different direction?"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing, stream_site


@dataclass(frozen=True)
class Turn:
    """Turn every state after block `layer` (−1: before the first) by `angle` radians, from position `start` on.

    Each state turns towards its own random direction along the sphere that the norms see: its length is kept, and in a
    model with LayerNorm its mean too. One seed gives one set of directions for one shape of batch.
    """

    layer: int
    angle: float
    seed: int = 0
    start: int = 0
    example: ClassVar[str] = "Turn(layer=0, angle=0.01, seed=1)"

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        centred = anatomy.blocks[0].ln1.kind == "layernorm"

        def change(stream: Tensor, given: Tensor | None) -> Tensor:
            x = stream[:, self.start :].double()
            mean = x.mean(-1, keepdim=True) if centred else torch.zeros_like(x[..., :1])
            radial = x - mean
            draw = torch.Generator().manual_seed(self.seed)
            aside = torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x)
            aside = aside - aside.mean(-1, keepdim=True) if centred else aside
            length = radial.norm(dim=-1, keepdim=True).clamp_min(1e-300)
            aside = aside - radial * ((aside * radial).sum(-1, keepdim=True) / length**2)
            aside = aside * (length / aside.norm(dim=-1, keepdim=True).clamp_min(1e-300))
            angle = torch.tensor(self.angle, dtype=torch.float64)
            turned = mean + radial * angle.cos().to(x) + aside * angle.sin().to(x)
            return torch.cat((stream[:, : self.start], turned.to(stream)), 1) if self.start else turned.to(stream)

        return changing(anatomy, stream_site(anatomy, self.layer), change)
