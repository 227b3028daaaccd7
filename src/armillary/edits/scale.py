"""Scale: what if the stream were shorter or longer at one place?"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing, stream_site


@dataclass(frozen=True)
class Scale:
    """Multiply the stream after block `layer` (−1: before the first) by `factor`, from position `start` on."""

    layer: int
    factor: float
    start: int = 0
    example: ClassVar[str] = "Scale(layer=3, factor=2.0)"

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        def change(stream: Tensor, given: Tensor | None) -> Tensor:
            stream = stream.clone()
            stream[:, self.start :] *= torch.as_tensor(self.factor, dtype=stream.dtype)
            return stream

        return changing(anatomy, stream_site(anatomy, self.layer), change)
