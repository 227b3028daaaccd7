"""Slide: what if the window had moved on, without its first tokens?"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from armillary.anatomy import Anatomy
from armillary.errors import ArmillaryError


@dataclass(frozen=True)
class Slide:
    """Read every row from its token number `by` on: what comes out belongs to tokens `by`, `by` + 1, …

    `positions`: `restart` counts from 0 again, as a model with a sliding window does; `keep` leaves every token the
    position it had. Rotary models see only differences of positions, so both are the same to them.
    """

    by: int
    positions: Literal["restart", "keep"] = "restart"
    example: ClassVar[str] = "Slide(by=4)"

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        def cut(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            ids = kwargs.get("input_ids")
            if ids is None:
                raise ArmillaryError("a window can slide only over token ids: pass them by name, as input_ids.")
            if not 0 <= self.by < ids.shape[1]:
                raise ArmillaryError(f"a window of {ids.shape[1]} tokens cannot slide by {self.by}; slide by less.")
            mask = kwargs.get("attention_mask")
            if self.positions == "keep":
                kwargs = {**kwargs, "position_ids": torch.arange(self.by, ids.shape[1], device=ids.device)[None]}
            return args, {
                **kwargs,
                "input_ids": ids[:, self.by :],
                "attention_mask": None if mask is None else mask[:, self.by :],
            }

        handle = anatomy.backbone.register_forward_pre_hook(cut, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
