"""Scale: what if the stream were shorter or longer at one place?"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import torch

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing_stream
from armillary.edits.edit_settings import check_number, check_whole


@dataclass(frozen=True)
class Scale:
    """Multiply the stream after block `layer` (−1: before the first) by `factor`, from position `start` on.

    Positions count from a row's first token that is not padding, with a cache too. A negative `start` counts from the
    end of each row, and is refused with a cache.
    """

    layer: int
    factor: float
    start: int = 0
    example: ClassVar[str] = "Scale(layer=3, factor=2.0)"

    def __post_init__(self) -> None:
        check_whole("layer", self.layer)
        check_number("factor", self.factor)
        check_whole("start", self.start)

    @property
    def unchanged(self) -> int:
        return self.layer + 1

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        return changing_stream(
            anatomy,
            self.layer,
            self.start,
            lambda stream, tokens: stream * torch.as_tensor(self.factor, dtype=stream.dtype),
        )
