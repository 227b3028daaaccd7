"""Undiscard: what if the activation let negative inputs through?"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing, seeing


@dataclass(frozen=True)
class Undiscard:
    """Give `slope` times the input of the activation of layer `layer` where that input is negative (of the gate, where
    there is one).

    With `elsewhere`, a seed, the changes of each token go to as many coordinates drawn at random in place of their own.
    """

    layer: int
    slope: float = 1.0
    elsewhere: tuple[int, ...] | None = None
    example: ClassVar[str] = "Undiscard(layer=3, slope=0.1)"

    @property
    def unchanged(self) -> int:
        return self.layer

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        ffn = anatomy.blocks[self.layer].feed_forward
        rng = None if self.elsewhere is None else np.random.default_rng(self.elsewhere)
        with seeing(anatomy, f"L{self.layer}.mlp_pre") as seen:

            def change(post: Tensor, given: Tensor | None) -> Tensor:
                pre = seen["value"].reshape(post.shape)
                more = torch.where(pre < 0, self.slope * pre - ffn.activation(pre), 0)
                if ffn.W_gate is not None:
                    more = ffn.joined(more, ffn.up(seen["received"]).reshape(post.shape))
                if rng is not None:
                    more = more.gather(-1, _places(rng, post.shape).to(post.device))
                return post + more.to(post)

            with changing(anatomy, f"L{self.layer}.mlp_post", change):
                yield


def _places(rng: np.random.Generator, shape: torch.Size) -> Tensor:
    """[b, t, m]: for each token another order of the coordinates: shuffled, turned by a random step, shuffled again.

    A shuffle of its own for each token would cost more than the pass.
    """
    first, second = rng.permutation(shape[-1]), rng.permutation(shape[-1])
    step = rng.integers(shape[-1], size=(*shape[:-1], 1))
    return torch.from_numpy(second[(first + step) % shape[-1]])
