"""Freeze: what if a norm ignored the length of what it gets?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing
from armillary.edits.edit_settings import check_finite, check_number
from armillary.edits.token_places import PassTokens, reading_tokens
from armillary.errors import ArmillaryError, ModelError, nearest


@dataclass(frozen=True, eq=False)
class Freeze:
    """Let the norm at `site` multiply by the constant `scale` where it would divide by this token's own spread.

    Gain, shift and (in a LayerNorm) the centring stay, so what is left is an affine map: the sphere is gone. `scale` is
    one number, or one per token [b, t, 1]: then its columns are those of the whole text, padding included, and with a
    cache or in a window that slid each pass takes its own.
    """

    site: str
    scale: float | Tensor
    example: ClassVar[str] = 'Freeze("L3.ln1", scale=0.5)'

    def __post_init__(self) -> None:
        if not isinstance(self.scale, Tensor):
            check_number("scale", self.scale)
        elif self.scale.numel() != 1 and (self.scale.ndim != 3 or self.scale.shape[2] != 1):
            raise ArmillaryError(
                f"`scale` must be one number, or one per token [b, t, 1]; got a tensor {list(self.scale.shape)}."
            )
        else:
            check_finite("scale", self.scale)

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        if self.site not in anatomy.norms:
            raise ArmillaryError(f"{self.site!r} is not a norm of this model; {nearest(str(self.site), anatomy.norms)}")
        if "norms" in anatomy.swapped:
            raise ArmillaryError(
                f"the norms of this model were swapped for {anatomy.swapped['norms']}, which has no standard "
                "deviation to freeze; undo the swap."
            )
        norm = anatomy.norms[self.site]
        with reading_tokens(anatomy) as tokens:

            def change(y: Tensor, x: Tensor | None) -> Tensor:
                if x is None:
                    raise ModelError(f"the norm at {self.site} received no tensor, so it cannot be frozen.")
                x = x.to(torch.promote_types(x.dtype, torch.float32))
                if norm.kind == "layernorm":
                    x = x - x.mean(-1, keepdim=True)
                frozen = x * self._scale(x, tokens) * norm.gain.to(x)
                return (frozen if norm.shift is None else frozen + norm.shift.to(x)).to(y.dtype)

            with changing(anatomy, self.site, change):
                yield

    def _scale(self, x: Tensor, tokens: Callable[[], PassTokens]) -> float | Tensor:
        """What these tokens [b, t, d] are multiplied by."""
        if not isinstance(self.scale, Tensor):
            return self.scale
        if self.scale.numel() == 1:
            return self.scale.reshape(()).to(x.device)
        past = tokens().past + tokens().slid
        stop = past + x.shape[1]
        if self.scale.shape[0] not in (1, x.shape[0]) or self.scale.shape[1] < stop:
            raise ArmillaryError(
                f"`scale` has one number for each of {self.scale.shape[0]} × {self.scale.shape[1]} tokens, and the "
                f"norm at {self.site} got token {stop} of {x.shape[0]} rows: give one per token, or one for all."
            )
        return self.scale[:, past:stop].to(x.device)
