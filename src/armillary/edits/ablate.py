"""Ablate, Silence: what if hidden coordinates or whole heads gave zero, their mean, or another token's value?"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.anatomy.sites import site_named
from armillary.edits.edit import changing
from armillary.errors import ArmillaryError

Choose = Callable[[Tensor, Tensor], Tensor]
"""From what the activation received and what the layer's last matrix would receive, [..., m] each (the gate and the
product where there is a gate), to the coordinates [..., m] that are replaced."""


@dataclass(frozen=True, eq=False)
class Ablate:
    """Replace the feed-forward coordinates of layer `layer` that `choose` marks, token by token, before W_out.

    `how`: `zero`; `mean` (of `means` [m]); or `resample` (the same coordinates of another token of the batch, drawn by
    `seed` among those `kept` marks, or all).
    """

    layer: int
    choose: Choose
    how: Literal["zero", "mean", "resample"] = "zero"
    means: Tensor | None = None
    seed: int = 0
    kept: Tensor | None = None
    """[b, t]: tokens that are not padding; values are drawn from these."""
    example: ClassVar[str] = "Ablate(layer=3, choose=lambda pre, post: pre < 0)"

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        if self.how == "mean" and (self.means is None or self.means.shape != (anatomy.m,)):
            given = "none" if self.means is None else list(self.means.shape)
            raise ArmillaryError(
                f"to replace coordinates by means, give `means`, one for each of the {anatomy.m} coordinates; "
                f"got {given}."
            )
        pre: list[Tensor] = []
        site = site_named(anatomy.sites, f"L{self.layer}.mlp_pre")

        def see(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            pre[:] = [site.take(output)]

        def change(post: Tensor, given: Tensor | None) -> Tensor:
            return torch.where(self.choose(pre[0].reshape(post.shape), post), self._instead(post), post)

        handle = anatomy.model.get_submodule(site.path).register_forward_hook(see)
        try:
            with changing(anatomy, f"L{self.layer}.mlp_post", change):
                yield
        finally:
            handle.remove()

    def _instead(self, post: Tensor) -> Tensor:
        if self.how == "zero":
            return torch.zeros_like(post)
        if self.how == "mean" and self.means is not None:
            return self.means.to(post).expand(post.shape)
        rows = post.reshape(-1, post.shape[-1])
        real = torch.arange(len(rows)) if self.kept is None else self.kept.reshape(-1).nonzero()[:, 0].cpu()
        draw = torch.Generator().manual_seed(self.seed)
        other = real[torch.randint(len(real), (len(rows),), generator=draw)]
        return rows[other.to(rows.device)].reshape(post.shape)


@dataclass(frozen=True)
class Silence:
    """Set the results of these heads of layer `layer` to zero, before W_O."""

    layer: int
    heads: tuple[int, ...]
    example: ClassVar[str] = "Silence(layer=3, heads=(0, 2))"

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        for head in self.heads:
            if not 0 <= head < anatomy.n_heads:
                raise ArmillaryError(
                    f"there is no head {head}: a layer has {anatomy.n_heads}, 0 to {anatomy.n_heads - 1}."
                )

        def change(z: Tensor, given: Tensor | None) -> Tensor:
            z = z.clone()
            z[:, :, list(self.heads)] = 0
            return z

        return changing(anatomy, f"L{self.layer}.z", change)
