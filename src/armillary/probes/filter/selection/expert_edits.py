"""What if coordinates of a mixture's experts were removed, or let through? Of all experts of a layer, or of one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Routed
from armillary.anatomy.folded import mlp_norm
from armillary.edits.edit import changing, seeing
from armillary.probes.filter.activations.mixtures import Expanded, expand, whole

Rewrite = Callable[[Expanded], Tensor]
"""From all coordinates of a layer's tokens to what W_out receives in place of `post` [n, all units]."""


@dataclass(frozen=True, eq=False)
class ChangeExperts:
    """Let `rewrite` decide what W_out of the experts of layer `layer` receives.

    The library runs experts without modules of their own, so the layer's write is changed by as much.
    """

    layer: int
    rewrite: Rewrite
    example: ClassVar[str] = "ChangeExperts(layer=3, rewrite=lambda units: units.post * (units.pre > 0))"

    @property
    def unchanged(self) -> int:
        return self.layer

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        block = anatomy.blocks[self.layer]
        mixture = block.channels
        assert isinstance(mixture, Routed) and block.ln2_post is None, "only a mixture that writes to the stream"
        W_out = whole(mixture).W_out
        with seeing(anatomy, mlp_norm(anatomy, self.layer)[0]) as y:

            def change(write: Tensor, given: Tensor | None) -> Tensor:
                units = expand(mixture, y["value"].reshape(-1, write.shape[-1]))
                more = (self.rewrite(units) - units.post) @ W_out.to(units.post)
                return write + more.reshape(write.shape).to(write)

            with changing(anatomy, f"L{self.layer}.mlp_out", change):
                yield


def discarded(units: Expanded, columns: slice | None = None) -> Tensor:
    """The coordinates below zero that a token has: of all experts, or of one."""
    chosen = units.present & (units.pre < 0)
    return chosen if columns is None else chosen & _inside(chosen, columns)


def _inside(like: Tensor, columns: slice) -> Tensor:
    inside = torch.zeros(like.shape[-1], dtype=torch.bool, device=like.device)
    inside[columns] = True
    return inside


def let_through(slope: float, seed: tuple[int, ...] | None = None, columns: slice | None = None) -> Rewrite:
    """`slope` times the input of the activation where it is negative.

    With a seed, the changes of each token go to as many of its coordinates, drawn at random, in place of their own.
    """
    rng = None if seed is None else np.random.default_rng(seed)

    def rewrite(units: Expanded) -> Tensor:
        more = torch.where(discarded(units, columns), slope * units.through - units.post, 0)
        if rng is None:
            return units.post + more
        own = units.present if columns is None else units.present & _inside(units.present, columns)
        # Coordinates that a token has come first in both orders, so that its changes stay among them.
        source, target = torch.argsort((~own).byte(), dim=-1, stable=True), _shuffled(rng, own)
        return units.post + torch.zeros_like(more).scatter(-1, target, more.gather(-1, source))

    return rewrite


def _shuffled(rng: np.random.Generator, own: Tensor) -> Tensor:
    """For each token an order of all coordinates: its own first, at random."""
    drawn = torch.from_numpy(rng.random(own.shape, dtype=np.float32)).to(own.device)
    return torch.argsort(drawn + 2.0 * ~own, -1)


def zeroed() -> Rewrite:
    return lambda units: units.post.masked_fill(discarded(units), 0)


def zeroed_at_random(seed: list[int]) -> Rewrite:
    """As many coordinates of each token as lie below zero, drawn among those that it has."""
    rng = np.random.default_rng(seed)

    def rewrite(units: Expanded) -> Tensor:
        number = discarded(units).sum(-1, keepdim=True)
        first = torch.arange(units.post.shape[-1], device=units.post.device) < number
        chosen = torch.zeros_like(first).scatter(-1, _shuffled(rng, units.present), first)
        return units.post.masked_fill(chosen, 0)

    return rewrite


def zeroed_always(fixed: Tensor) -> Rewrite:
    """The same units for every token."""
    return lambda units: units.post.masked_fill(fixed.to(units.post.device), 0)


def meaned(means: Tensor) -> Rewrite:
    """What lies below zero takes the unit's mean."""
    return lambda units: torch.where(discarded(units), means.to(units.post), units.post)
