"""Blocks in another order: post-norm (the norm after each sublayer's write), and nGPT (everything on one sphere).

nGPT (Loshchilov et al. 2024, arXiv 2410.01131): every row or column of a matrix that meets the stream has length 1,
the state is a point on the unit sphere, and each sublayer moves it towards its own normalised answer:
h ← unit(h + α·(unit(sublayer(h)) − h)), with a learned α per axis. Queries and keys have length 1 times a learned
scale, and scores are multiplied by √k; hidden values and logits have learned scales. There are no norms and no biases.
Our positions stay learned ones, where the paper's are rotary.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from armillary.errors import ArmillaryError, ModelError, nearest
from armillary.lab.parts.norms import in_float32

BLOCKS = ("post-norm", "ngpt")
# The paper's first step along the sphere, per sublayer.
STEP = 0.05


def unit(x: Tensor, dim: int = -1) -> Tensor:
    """Directions of length 1, computed in float32 at least; half precision would leave the sphere."""
    wide = in_float32(x)
    return wide * torch.rsqrt(wide.square().sum(dim, keepdim=True).clamp_min(1e-24))


class LearnedScale(nn.Module):
    """Learned numbers that begin at `first`, stored as 1/√width so that they learn at the matrices' speed."""

    def __init__(self, n: int, first: float, width: int) -> None:
        super().__init__()
        self.stored = nn.Parameter(torch.full((n,), width**-0.5))
        self.factor = first * width**0.5

    def forward(self) -> Tensor:
        return self.stored * self.factor


class PostNormBlock(nn.Module):
    """A GPT-2 block with x ← norm(x + sublayer(x)), with the block's own modules."""

    no_canonical_form = "blocks with norms after their writes"

    def __init__(self, old: Any) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = old.ln_1, old.attn, old.ln_2, old.mlp

    def forward(
        self, hidden_states: Tensor, past: Any = None, mask: Tensor | None = None, *_: Any, **more: Any
    ) -> Tensor:
        written = self.attn(hidden_states, past_key_values=past, attention_mask=mask)[0]
        middle = self.ln_1(hidden_states + written)
        after: Tensor = self.ln_2(middle + self.mlp(middle))
        return after


class NGPTBlock(nn.Module):
    """A GPT-2 block as nGPT, with the block's own matrices and activation, and without its biases."""

    no_canonical_form = "blocks of nGPT"

    def __init__(self, old: Any, d: int, heads: int) -> None:
        super().__init__()
        self.read, self.write, self.up, self.down = (
            nn.Parameter(layer.weight.detach().clone())
            for layer in (old.attn.c_attn, old.attn.c_proj, old.mlp.c_fc, old.mlp.c_proj)
        )
        self.act, self.heads, self.d = old.mlp.act, heads, d
        self.towards_attention, self.towards_mlp = LearnedScale(d, STEP, d), LearnedScale(d, STEP, d)
        self.query_scale, self.hidden_scale = LearnedScale(d, 1.0, d), LearnedScale(self.up.shape[1], 1.0, 1)

    def forward(
        self, hidden_states: Tensor, past: Any = None, mask: Tensor | None = None, *_: Any, **more: Any
    ) -> Tensor:
        _no_cache(past)
        state = unit(hidden_states)
        state = _moved(state, self._attended(state, mask), self.towards_attention())
        return _moved(state, self._hidden(state), self.towards_mlp()).to(hidden_states.dtype)

    def _attended(self, state: Tensor, mask: Tensor | None) -> Tensor:
        split = (state @ unit(self.read, 0)).chunk(3, -1)
        q, k, v = (part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in split)
        scale = self.query_scale().reshape(self.heads, 1, -1)
        q, k = (unit(part) * scale for part in (q, k))
        mixed = scaled_dot_product_attention(
            q, k, v.to(q.dtype), mask, is_causal=mask is None, scale=math.sqrt(q.shape[-1])
        )
        return mixed.transpose(1, 2).flatten(-2) @ unit(self.write, 1)

    def _hidden(self, state: Tensor) -> Tensor:
        pre = (state @ unit(self.up, 0)) * (self.hidden_scale() * math.sqrt(self.d))
        written: Tensor = self.act(pre) @ unit(self.down, 1)
        return written

    @torch.no_grad()
    def renormalise(self) -> None:
        """Bring the stored matrices back to length 1, as the paper does after every step."""
        for weight, dim in ((self.read, 0), (self.write, 1), (self.up, 0), (self.down, 1)):
            weight.copy_(unit(weight, dim))


def _moved(state: Tensor, answer: Tensor, step: Tensor) -> Tensor:
    """Along the chord from a state towards a sublayer's answer, and back onto the sphere."""
    return unit(state + step.abs() * (unit(answer) - state))


class UnitEmbedding(nn.Module):
    """Rows of length 1."""

    def __init__(self, rows: nn.Parameter) -> None:
        super().__init__()
        self.weight = rows

    def forward(self, ids: Tensor) -> Tensor:
        return unit(embedding(ids, self.weight)).to(self.weight.dtype)

    @torch.no_grad()
    def renormalise(self) -> None:
        self.weight.copy_(unit(self.weight))


class UnitUnembedding(nn.Module):
    """Cosines with rows of length 1, times a learned scale per word."""

    def __init__(self, rows: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.scale = rows, LearnedScale(rows.shape[0], 1.0, rows.shape[1])

    def forward(self, state: Tensor) -> Tensor:
        return linear(state, unit(self.weight).to(state.dtype)) * self.scale()


def renormalise(model: nn.Module) -> None:
    """Every part of nGPT back on its sphere."""
    for module in model.modules():
        if isinstance(module, NGPTBlock | UnitEmbedding):
            module.renormalise()


def new_blocks(kind: str, model: Any) -> dict[str, nn.Module]:
    """Modules by path that turn a GPT-2 into one of BLOCKS."""
    if kind not in BLOCKS:
        raise ArmillaryError(f"there are no blocks {kind!r}; {nearest(kind, BLOCKS)}")
    inner, head = model.base_model, model.get_output_embeddings()
    at = next(f"{path}." if path else "" for path, module in model.named_modules() if module is inner)
    last: dict[str, nn.Module] = {f"{at}ln_f": nn.Identity()}
    if kind == "post-norm":
        return {f"{at}h.{i}": PostNormBlock(block) for i, block in enumerate(inner.h)} | last
    blocks: dict[str, nn.Module] = {
        f"{at}h.{i}": NGPTBlock(block, model.config.n_embd, model.config.n_head) for i, block in enumerate(inner.h)
    }
    rows = nn.Parameter(inner.wte.weight.detach().clone())
    blocks[f"{at}wte"] = UnitEmbedding(rows)
    if head is not None:
        path = next(path for path, module in model.named_modules() if module is head)
        tied = head.weight is inner.wte.weight
        blocks[path] = UnitUnembedding(rows if tied else nn.Parameter(head.weight.detach().clone()))
    return blocks | last


def _no_cache(past: Any) -> None:
    if past is not None:
        raise ModelError("these blocks keep no cache of keys and values; call the model with use_cache=False.")
