"""Freeze the norms of some rows of a batch and leave those of the others live, so that arms are run together."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.edits.edit import Change, changing


@dataclass(eq=False)
class Switch:
    """Whether a freeze acts: prompts are read with norms live."""

    on: bool = False


@dataclass(frozen=True, eq=False)
class RowFreeze:
    """Let each norm multiply by its constant in the `frozen` rows [b] where it would divide by the token's own spread.

    In the `apart` rows [b] the first token of a window keeps its own scale. A pass of several tokens starts a window; a
    pass of one goes on from a cache. Nothing happens while the switch is off.
    """

    scales: Mapping[str, float]
    frozen: Tensor
    apart: Tensor
    switch: Switch
    example: ClassVar[str] = 'RowFreeze({"L3.ln1": 0.5}, frozen=rows, apart=none, switch=Switch(True))'

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        with ExitStack() as stack:
            for site, scale in self.scales.items():
                stack.enter_context(changing(anatomy, site, self._change(anatomy.norms[site], scale)))
            yield

    def _change(self, norm: Norm, scale: float) -> Change:
        gain = scale * norm.gain.float()
        rows, apart = (flags.to(gain.device)[:, None, None] for flags in (self.frozen, self.apart))

        def change(y: Tensor, x: Tensor | None) -> Tensor:
            if not self.switch.on or x is None:
                return y
            x = x.float()
            fixed = (x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x) * gain
            fixed = fixed if norm.shift is None else fixed + norm.shift
            where = rows
            if y.shape[1] > 1:
                where = torch.cat((rows & ~apart, rows.expand(-1, y.shape[1] - 1, 1)), 1)
            return torch.where(where, fixed.to(y.dtype), y)

        return change
