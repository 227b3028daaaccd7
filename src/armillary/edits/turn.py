"""Turn: what if a state pointed in a slightly different direction?"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing_stream
from armillary.edits.edit_settings import check_number, check_whole
from armillary.edits.token_places import PassTokens


@dataclass(frozen=True)
class Turn:
    """Turn every state after block `layer` (−1: before the first) by `angle` radians, from position `start` on.

    Each state turns towards its own random direction along the sphere that the norms see: its length is kept, and in a
    model with LayerNorm its mean too. The direction is drawn by `seed` from the token's position and id, so that it is
    the same with a cache, in another batch and beside other padding. Positions count from a row's first token that is
    not padding. A negative `start` counts from the end of each row, and is refused with a cache.
    """

    layer: int
    angle: float
    seed: int = 0
    start: int = 0
    example: ClassVar[str] = "Turn(layer=0, angle=0.01, seed=1)"

    def __post_init__(self) -> None:
        check_whole("layer", self.layer)
        check_number("angle", self.angle)
        check_whole("seed", self.seed, least=0)
        check_whole("start", self.start)

    @property
    def unchanged(self) -> int:
        return self.layer + 1

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        centred = anatomy.centred

        def change(stream: Tensor, tokens: PassTokens) -> Tensor:
            x = stream.double()
            mean = x.mean(-1, keepdim=True) if centred else torch.zeros_like(x[..., :1])
            radial = x - mean
            aside = self._drawn(tokens, x)
            aside = aside - aside.mean(-1, keepdim=True) if centred else aside
            length = radial.norm(dim=-1, keepdim=True).clamp_min(1e-300)
            aside = aside - radial * ((aside * radial).sum(-1, keepdim=True) / length**2)
            aside = aside * (length / aside.norm(dim=-1, keepdim=True).clamp_min(1e-300))
            angle = torch.tensor(self.angle, dtype=torch.float64)
            return (mean + radial * angle.cos().to(x) + aside * angle.sin().to(x)).to(stream)

        return changing_stream(anatomy, self.layer, self.start, change)

    def _drawn(self, tokens: PassTokens, x: Tensor) -> Tensor:
        """Normal numbers [b, t, d], the same for one token at one position whatever else the pass holds."""
        b, t, d = x.shape
        positions = tokens.positions(b, t, x.device).clamp_min(0)
        # Without ids (embeddings were given) the position decides alone.
        ids = torch.zeros_like(positions) if tokens.ids is None else tokens.ids.to(x.device)
        pairs = torch.stack((positions, ids), -1).reshape(b * t, 2).cpu().numpy()
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        drawn = np.stack([_normal(d, self.seed, *pair) for pair in distinct.tolist()])
        return torch.from_numpy(drawn[which.reshape(-1)]).to(x.device).reshape(b, t, d)


# Turns at other layers, by other angles and in other models share their draws: as many are kept as an experiment reads.
@lru_cache(maxsize=2048)
def _normal(d: int, seed: int, position: int, token: int) -> np.ndarray:
    return np.random.default_rng((seed, position, token)).standard_normal(d)
