"""Freeze: what if a norm ignored the length of what it gets?"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing
from armillary.errors import ArmillaryError, ModelError


@dataclass(frozen=True, eq=False)
class Freeze:
    """Let the norm at `site` multiply by the constant `scale` where it would divide by this token's own spread.

    Gain, shift and (in a LayerNorm) the centring stay, so what is left is an affine map: the sphere is gone.
    """

    site: str
    scale: float | Tensor
    """One number, or one per token [b, t, 1]."""
    example: ClassVar[str] = 'Freeze("L3.ln1", scale=0.5)'

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        if self.site not in anatomy.norms:
            raise ArmillaryError(
                f"{self.site!r} is not a norm of this model; its norms are {', '.join(anatomy.norms)}."
            )
        norm = anatomy.norms[self.site]

        def change(y: Tensor, x: Tensor | None) -> Tensor:
            if x is None:
                raise ModelError(f"the norm at {self.site} received no tensor, so it cannot be frozen.")
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            if norm.kind == "layernorm":
                x = x - x.mean(-1, keepdim=True)
            frozen = x * self.scale * norm.gain.to(x)
            return (frozen if norm.shift is None else frozen + norm.shift.to(x)).to(y.dtype)

        return changing(anatomy, self.site, change)
