"""How a model turns queries and keys by their positions.

A family's table names one of the readers below: it gives the cosines and sines of the model's own rotary module, one
per pair of axes, whatever the module's form.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

Pairs = Literal["halves", "neighbours"]
Reader = Callable[[Any, Tensor, Tensor, str], tuple[Tensor, Tensor]]
"""From a rotary module, positions [t], a tensor of the model's dtype and a kind of layer to cos and sin [t, pairs]."""


def called(module: Any, positions: Tensor, like: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Hugging Face's usual module: cos and sin of all pairs, twice in a row."""
    named = {"layer_type": kind} if kind else {}
    cos, sin = module(like, positions[None], **named)
    return cos[0, :, : cos.shape[-1] // 2], sin[0, :, : sin.shape[-1] // 2]


def called_neighbours(module: Any, positions: Tensor, like: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The same module with each pair's cos and sin side by side (Cohere)."""
    cos, sin = module(like, positions[None])
    return cos[0, :, ::2], sin[0, :, ::2]


def called_once(module: Any, positions: Tensor, like: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The same module that gives each pair's cos and sin once (GPT-OSS)."""
    cos, sin = module(like, positions[None])
    return cos[0], sin[0]


def of_table(module: Any, positions: Tensor, like: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """An attention module with a table [sin | cos] of its own (GPT-J, CodeGen)."""
    rows = module.embed_positions.to(positions.device)[positions]
    sin, cos = rows.chunk(2, -1)
    return cos, sin


@dataclass(frozen=True, eq=False)
class Rotation:
    """Cosines and sines [b or 1, t, pairs] of some tokens, and which axes they turn."""

    cos: Tensor
    sin: Tensor
    pairs: Pairs = "halves"

    def __call__(self, x: Tensor) -> Tensor:
        """x [b, t, h, k] with its first axes turned, two for each pair."""
        cos, sin = (part[..., None, :].to(x) for part in (self.cos, self.sin))
        turned, unturned = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
        if self.pairs == "halves":
            first, second = turned.chunk(2, dim=-1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin, unturned), dim=-1)
        first, second = turned[..., ::2], turned[..., 1::2]
        both = torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
        return torch.cat((both, unturned), dim=-1)

    def at(self, places: Tensor) -> "Rotation":
        """That of tokens at the positions [b, n]."""
        return replace(self, cos=self.cos[0, places], sin=self.sin[0, places])

    def first(self, length: int) -> "Rotation":
        return replace(self, cos=self.cos[:, :length], sin=self.sin[:, :length])


@dataclass(frozen=True, eq=False)
class Rotary:
    """One layer's rotation: the model's own module, how it is read, and how axes are paired."""

    module: nn.Module
    read: Reader
    pairs: Pairs
    like: Tensor
    kind: str = ""

    def rotation(self, positions: Tensor) -> Rotation:
        """Of the positions [t]."""
        cos, sin = self.read(self.module, positions, self.like.new_zeros(1, 1, 1), self.kind)
        return Rotation(cos[None], sin[None], self.pairs)

    def matrices(self, positions: Tensor, k: int, dtype: torch.dtype) -> Tensor:
        """R(p) R(p₀)ᵀ [t, k, k] for positions p [t], of which p₀ is the first: (q R_i)(k R_j)ᵀ = q R_i R_jᵀ kᵀ."""
        identity = torch.eye(k, dtype=dtype, device=positions.device)
        rotation = self.rotation(positions)
        turned = replace(rotation, cos=rotation.cos[0, :, None], sin=rotation.sin[0, :, None])(
            identity[None, :, None].expand(len(positions), -1, 1, -1)
        )[:, :, 0]
        return turned @ turned[0].mT

    def same(self, other: "Rotary | None") -> bool:
        """Do both turn alike?"""
        return other is not None and (self.module, self.kind, self.pairs) == (other.module, other.kind, other.pairs)
