"""A normalisation layer as geometry.

`direction` sends a vector to the sphere of radius √d (and, for LayerNorm, into the hyperplane ⟂ 1); gain and
shift are the trained part that warps the sphere into an ellipsoid and moves it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["layernorm", "rmsnorm"]


@dataclass(frozen=True, eq=False)
class Norm:
    """y = gain ⊙ direction(x) + shift.

    >>> norm = Norm("layernorm", torch.ones(3), None, 0.0)
    >>> round(norm.direction(torch.tensor([[1.0, 2.0, 3.0]])).norm().item() ** 2, 5)
    3.0
    """

    kind: Kind
    gain: Tensor
    shift: Tensor | None
    eps: float

    @property
    def d(self) -> int:
        return self.gain.shape[-1]

    def direction(self, x: Tensor) -> Tensor:
        """z: the point on the sphere, before gain and shift, computed in float32 or better."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.kind == "layernorm":
            return torch.native_layer_norm(x, [x.shape[-1]], None, None, self.eps)[0]
        return x * torch.rsqrt(self.power(x) + self.eps)

    def power(self, x: Tensor) -> Tensor:
        """What the norm divides out, squared: the variance (LayerNorm) or the mean square (RMSNorm) of x."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.kind == "layernorm":
            return x.var(-1, correction=0, keepdim=True)
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_() / x.shape[-1]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.direction(x) * self.gain.to(torch.promote_types(x.dtype, torch.float32))
        return y if self.shift is None else y + self.shift
