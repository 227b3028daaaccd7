"""How do tokens start the stream where embeddings are narrower (ALBERT, ELECTRA)? By a norm and a projection."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from armillary.anatomy.families import Family
from armillary.anatomy.norm import Norm
from armillary.anatomy.parts import linear
from armillary.anatomy.reading.modules import norm_at, optional, submodule


@dataclass(frozen=True, eq=False)
class Entry:
    """x = Norm(word + position + type) W + b; the norm acts before the stream begins, and is no site of it."""

    words: Tensor
    positions: Tensor
    types: Tensor
    norm: Norm | None
    W: Tensor
    """[e, d]"""
    b: Tensor | None

    def __call__(self, ids: Tensor) -> Tensor:
        """The stream's first states [b, t, d]."""
        return self._projected(self.words[ids] + self.positions[: ids.shape[1]] + self.types)

    def vectors(self) -> Tensor:
        """[v, d]: every token without a position."""
        return self._projected(self.words + self.types)

    def _projected(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return linear(x if self.norm is None else self.norm(x), self.W, self.b)


def projected_entry(inner: nn.Module, family: Family) -> Entry | None:
    """None where embeddings are the stream's first states themselves."""
    if not family.projected:
        return None
    layer = submodule(inner, family.projected, family)
    words = submodule(inner, family.embed, family).weight.detach()
    table, types = optional(inner, family.positions), optional(inner, family.token_type)
    return Entry(
        words=words,
        positions=words.new_zeros(1, words.shape[1]) if table is None else table.weight.detach(),
        types=words.new_zeros(words.shape[1]) if types is None else types.weight.detach()[0],
        norm=norm_at(inner, family.ln_embed, family),
        W=layer.weight.detach().T,
        b=None if layer.bias is None else layer.bias.detach(),
    )
