"""Shuffle: what if axes changed places, within their head or across heads?"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing, changing_heads
from armillary.edits.edit_settings import check_layer, check_literal, check_whole
from armillary.errors import ArmillaryError

Where = Literal["z", "q", "qk"]


@dataclass(frozen=True)
class Shuffle:
    """Let axis i of layer `layer` carry what axis `order[i]` carried: in `z` (the heads' results, before W_O), in `q`
    alone, or in `qk` (q and k alike, which changes no score).

    q and k are shuffled where their products are taken, after rotation. `order` counts the axes of all heads in a row:
    h·k of them for z and q; for qk the g·k axes of the key heads, each within its head, and queries follow their key
    head.
    """

    layer: int
    order: tuple[int, ...]
    where: Where = "z"
    example: ClassVar[str] = 'Shuffle(layer=3, order=across(heads=4, k=64, seed=0), where="z")'

    def __post_init__(self) -> None:
        check_whole("layer", self.layer)
        check_literal("where", self.where, Where)
        if not isinstance(self.order, tuple | list | np.ndarray):
            raise ArmillaryError(f"`order` must be a tuple, as `within` and `across` make it; got {self.order!r}.")
        for axis in self.order:
            check_whole("order", axis, least=0)

    @property
    def unchanged(self) -> int:
        return self.layer

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        check_layer(anatomy, self.layer)
        heads = anatomy.n_kv_heads if self.where == "qk" else anatomy.n_heads
        k = anatomy.k
        if sorted(self.order) != list(range(heads * k)):
            raise ArmillaryError(f"`order` must hold each of 0 … {heads * k - 1} once: {heads} heads of {k} axes.")
        order = torch.tensor(self.order, device=anatomy.device)
        if self.where == "z":
            return changing(anatomy, f"L{self.layer}.z", lambda z, given: z.flatten(-2)[..., order])
        if self.where == "q":
            return changing_heads(anatomy, self.layer, lambda q, key, v: (_moved(q, order), key, v))
        own = order.reshape(heads, k) - torch.arange(heads, device=order.device)[:, None] * k
        if ((own < 0) | (own >= k)).any():
            raise ArmillaryError("q and k together can only be shuffled within heads: a score belongs to one head.")

        def both(q: Tensor, key: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            query_order = own.repeat_interleave(q.shape[1] // heads, dim=0)
            return _within(q, query_order), _within(key, own), v

        return changing_heads(anatomy, self.layer, both)


def _moved(q: Tensor, order: Tensor) -> Tensor:
    """q [b, h, t, k] with the axes of all heads in a row taken in this order."""
    b, h, t, k = q.shape
    return q.transpose(1, 2).reshape(b, t, h * k)[..., order].reshape(b, t, h, k).transpose(1, 2)


def _within(q: Tensor, own: Tensor) -> Tensor:
    """q [b, h, t, k] with each head's axes taken in its own order [h, k]."""
    return q.gather(-1, own[None, :, None, :].expand(q.shape))


def within(heads: int, k: int, seed: int, moved: int | None = None) -> tuple[int, ...]:
    """An order in which `moved` axes of every head (all by default, at least 2) change places inside their head.

    >>> sorted(within(2, 3, seed=0)[:3])
    [0, 1, 2]
    """
    moved = k if moved is None else moved
    if not 2 <= moved <= k:
        raise ArmillaryError(f"{moved} of {k} axes cannot all change places within a head; move 2 to {k}.")
    rng, order = np.random.default_rng(seed), np.arange(heads * k)
    for head, axes in enumerate(_chosen(heads, k, moved, seed)):
        turned = rng.permutation(axes) + head * k
        # One cycle through all of them, so that no axis stays in place.
        order[turned] = np.roll(turned, 1)
    return tuple(order.tolist())


def across(heads: int, k: int, seed: int, moved: int | None = None) -> tuple[int, ...]:
    """An order in which the axes that `within` would move all go to another head.

    >>> {i // 3 == j // 3 for i, j in enumerate(across(2, 3, seed=0))}
    {False}
    """
    moved = k if moved is None else moved
    if heads < 2:
        raise ArmillaryError("axes cannot move to another head in a layer with one head.")
    if not 1 <= moved <= k:
        raise ArmillaryError(f"{moved} axes of a head of {k} cannot be moved; move 1 to {k}.")
    rng, order = np.random.default_rng(seed), np.arange(heads * k)
    axes = np.stack([rng.permutation(own) + head * k for head, own in enumerate(_chosen(heads, k, moved, seed))])
    # Every rank of axes goes round the heads in a ring of its own, by 1 to heads − 1 places.
    for rank in axes.T:
        ring = rng.permutation(rank)
        order[ring] = np.roll(ring, rng.integers(1, heads))
    return tuple(order.tolist())


def _chosen(heads: int, k: int, moved: int, seed: int) -> list[np.ndarray]:
    """Which axes of each head move: the same ones for `within` and `across`."""
    rng = np.random.default_rng((seed, 1))
    return [np.sort(rng.choice(k, moved, replace=False)) for _ in range(heads)]
