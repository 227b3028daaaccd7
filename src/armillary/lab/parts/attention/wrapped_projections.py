"""A model's own projections around other heads, for each kind of Hugging Face attention."""

from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.errors import ModelError


class SwappedHeads(nn.Module):
    """What readers of a model need to know about its heads; `swapped_heads` tells them that these are not its own."""

    swapped_heads = True

    def __init__(self, old: Any, heads: nn.Module) -> None:
        super().__init__()
        self.head_dim, self.scaling, self.heads = old.head_dim, old.scaling, heads


class GPT2Heads(SwappedHeads):
    """GPT-2's attention: one projection for queries, keys and values."""

    def __init__(self, old: Any, heads: nn.Module) -> None:
        super().__init__(old, heads)
        self.c_attn, self.c_proj, self.resid_dropout = old.c_attn, old.c_proj, old.resid_dropout

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        _no_cache(kwargs)
        q, k, v = self.c_attn(hidden_states).chunk(3, -1)
        return self.resid_dropout(self.c_proj(self.heads(q, k, v, attention_mask))), None


class RotaryHeads(SwappedHeads):
    """Llama's attention: rotary positions, and keys and values that groups of heads share."""

    def __init__(self, old: Any, heads: nn.Module) -> None:
        super().__init__(old, heads)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = old.q_proj, old.k_proj, old.v_proj, old.o_proj
        self.q_norm, self.k_norm = getattr(old, "q_norm", None), getattr(old, "k_norm", None)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        _no_cache(kwargs)
        q, k, v = (
            projection(hidden_states).unflatten(-1, (-1, self.head_dim))
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (x if norm is None else norm(x) for norm, x in ((self.q_norm, q), (self.k_norm, k)))
        q, k = (rotated(x, *position_embeddings) for x in (q, k))
        # Each group of heads reads the same keys and values.
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
        mixed = self.heads(q.flatten(2), k.flatten(2), v.flatten(2), attention_mask)
        return self.o_proj(mixed), None


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[b, t, h, k] turned by the angles of its position: axes i and i + k/2 are one pair."""
    first, second = x.chunk(2, -1)
    return x * cos[:, :, None] + torch.cat([-second, first], -1) * sin[:, :, None]


def is_gpt2(model: Any) -> bool:
    """Is the model built of Hugging Face's GPT-2 modules, whose insides some parts reach into?"""
    from transformers import GPT2PreTrainedModel

    return isinstance(model, GPT2PreTrainedModel)


def wrapper_of(anatomy: Anatomy) -> type[GPT2Heads] | type[RotaryHeads]:
    """How heads are swapped in this model; a model whose heads cannot be swapped is refused with the reason."""
    attention, why = anatomy.blocks[0].attention, ""
    module = anatomy.model.get_submodule(anatomy.sites["L0.attn_out"].path)
    if abs(attention.scale * anatomy.k**0.5 - 1) > 1e-6:
        why = f"its scores are scaled by {attention.scale:.3g} and not by 1/√k"
    elif attention.softcap is not None:
        why = "its scores are capped"
    elif is_gpt2(anatomy.model) and hasattr(module, "c_attn"):
        if {block.attention.scale for block in anatomy.blocks} == {attention.scale}:
            return GPT2Heads
        why = "its scores are scaled by layer"
    elif anatomy.positions.kind == "rotary" and all(hasattr(module, name) for name in ("q_proj", "k_proj", "o_proj")):
        if anatomy.positions.rotary_dims == anatomy.k:
            return RotaryHeads
        why = "a part of each head is not rotated"
    raise ModelError(
        f"heads cannot be swapped in this {anatomy.family}: {why or 'its attention is built in another way'}; swap "
        "them in a GPT-2, or in a Llama, Mistral or Qwen."
    )


def _no_cache(kwargs: dict[str, Any]) -> None:
    if kwargs.get("past_key_values") is not None:
        raise ModelError("swapped heads keep no cache of keys and values; call the model with use_cache=False.")
