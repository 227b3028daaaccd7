"""Ablate, Silence: what if hidden coordinates or whole heads gave zero, their mean, or another token's value?"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing, seeing
from armillary.edits.edit_settings import check_finite, check_heads, check_layer, check_literal, check_whole
from armillary.edits.token_places import PassTokens, reading_tokens
from armillary.errors import ArmillaryError

Choose = Callable[[Tensor, Tensor], Tensor]
"""From what the activation received and what the layer's last matrix would receive, [..., m] each (the gate and the
product where there is a gate), to the coordinates [..., m] that are replaced."""

How = Literal["zero", "mean", "resample"]


@dataclass(frozen=True, eq=False)
class Ablate:
    """Replace the feed-forward coordinates of layer `layer` that `choose` marks, token by token, before W_out.

    `how`: `zero`; `mean` (of `means` [m]); or `resample` (the same coordinates of another token of the batch, drawn by
    `seed` among those `kept` marks, or among all that are not padding). `resample` is refused with a cache, because a
    pass then holds the newest tokens only.
    """

    layer: int
    choose: Choose
    how: How = "zero"
    means: Tensor | None = None
    seed: int = 0
    kept: Tensor | None = None
    """[b, t]: the tokens that values are drawn from."""
    example: ClassVar[str] = "Ablate(layer=3, choose=lambda pre, post: pre < 0)"

    def __post_init__(self) -> None:
        check_whole("layer", self.layer)
        check_literal("how", self.how, How)
        check_whole("seed", self.seed, least=0)
        if self.means is not None:
            check_finite("means", self.means)
        if not callable(self.choose):
            raise ArmillaryError(f"`choose` must be a function such as {self.example}; got {self.choose!r}.")

    @property
    def unchanged(self) -> int:
        return self.layer

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        check_layer(anatomy, self.layer)
        if self.how == "mean" and (self.means is None or self.means.shape != (anatomy.m,)):
            given = "none" if self.means is None else list(self.means.shape)
            raise ArmillaryError(
                f"to replace coordinates by means, give `means`, one for each of the {anatomy.m} coordinates; "
                f"got {given}."
            )
        with reading_tokens(anatomy) as tokens, seeing(anatomy, f"L{self.layer}.mlp_pre") as pre:

            def change(post: Tensor, given: Tensor | None) -> Tensor:
                chosen = self.choose(pre["value"].reshape(post.shape), post)
                return torch.where(self._checked(chosen, post), self._instead(post, tokens), post)

            with changing(anatomy, f"L{self.layer}.mlp_post", change):
                yield

    def _checked(self, chosen: Tensor, post: Tensor) -> Tensor:
        if isinstance(chosen, Tensor) and chosen.dtype == torch.bool and chosen.shape[-1:] == post.shape[-1:]:
            return chosen
        got = f"{chosen.dtype} {list(chosen.shape)}" if isinstance(chosen, Tensor) else type(chosen).__name__
        raise ArmillaryError(f"`choose` must give one truth value per coordinate, {list(post.shape)}; it gave {got}.")

    def _instead(self, post: Tensor, tokens: Callable[[], PassTokens]) -> Tensor:
        if self.how == "zero":
            return torch.zeros_like(post)
        if self.how == "mean" and self.means is not None:
            return self.means.to(post).expand(post.shape)
        real = self._lenders(post, tokens())
        rows = post.reshape(-1, post.shape[-1])
        draw = torch.Generator().manual_seed(self.seed)
        other = real[torch.randint(len(real), (len(rows),), generator=draw)]
        return rows[other.to(rows.device)].reshape(post.shape)

    def _lenders(self, post: Tensor, tokens: PassTokens) -> Tensor:
        """The numbers, in a flat list of all tokens [b, t], of those whose values may be drawn."""
        b, t = post.shape[:2]
        if tokens.past:
            raise ArmillaryError(
                "another token's values cannot be drawn with a cache, because a pass holds only the newest tokens: "
                "run without a cache (use_cache=False), or replace by zero or by means."
            )
        if self.kept is not None and self.kept.shape != (b, t):
            raise ArmillaryError(
                f"`kept` marks {list(self.kept.shape)} tokens, but the pass holds {[b, t]}: give one mark per token, "
                "or leave it out; padding is known from the attention mask."
            )
        real = (tokens.real(b, t, post.device) if self.kept is None else self.kept).reshape(-1).nonzero()[:, 0].cpu()
        if len(real) < (2 if self.kept is None else 1):
            raise ArmillaryError(
                f"the values of another token cannot be drawn: the pass holds {len(real)} to draw from."
            )
        return real


@dataclass(frozen=True)
class Silence:
    """Set the results of these heads of layer `layer` to zero, before W_O."""

    layer: int
    heads: tuple[int, ...]
    example: ClassVar[str] = "Silence(layer=3, heads=(0, 2))"

    def __post_init__(self) -> None:
        check_whole("layer", self.layer)
        if not isinstance(self.heads, tuple | list) or not self.heads:
            raise ArmillaryError(f"`heads` must name at least one head, as in heads=(0, 2); got {self.heads!r}.")
        for head in self.heads:
            check_whole("heads", head)

    @property
    def unchanged(self) -> int:
        return self.layer

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        check_layer(anatomy, self.layer)
        check_heads(anatomy, self.heads)

        def change(z: Tensor, given: Tensor | None) -> Tensor:
            z = z.clone()
            z[:, :, list(self.heads)] = 0
            return z

        return changing(anatomy, f"L{self.layer}.z", change)
