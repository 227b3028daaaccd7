"""A model in canonical form: what every probe sees of it.

Row vectors everywhere (x @ W): W_Q, W_K, W_V are [d, k], W_O is [k, d]. All tensors are views of the live model's
parameters where the layout allows. Nothing is folded and nothing is re-implemented: Hugging Face's module runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from armillary.anatomy.loading.steps import Checkpoints
from armillary.anatomy.norm import Norm
from armillary.anatomy.sites import Site
from armillary.results import LawCheck

Order = Literal["pre", "post"]


@dataclass(frozen=True, eq=False)
class Head:
    """One query head with the key/value head that serves it: W_Q, W_K, W_V [d, k], W_O [k, d]."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None
    b_K: Tensor | None
    b_V: Tensor | None


@dataclass(frozen=True, eq=False)
class Attention:
    """All heads of one layer: W_Q [h, d, k]; W_K, W_V [g, d, k] for g ≤ h key/value heads; W_O [h, k, d]."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None
    b_K: Tensor | None
    b_V: Tensor | None
    b_O: Tensor | None
    scale: float
    softcap: float | None = None
    window: int | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None

    @property
    def group(self) -> int:
        """How many query heads one key/value head serves."""
        return self.W_Q.shape[0] // self.W_K.shape[0]

    def head(self, h: int) -> Head:
        g = h // self.group
        bias = [None if b is None else b[i] for b, i in ((self.b_Q, h), (self.b_K, g), (self.b_V, g))]
        return Head(self.W_Q[h], self.W_K[g], self.W_V[g], self.W_O[h], *bias)


@dataclass(frozen=True, eq=False)
class FeedForward:
    """x ↦ act(x W_in + b_in) W_out + b_out, or with a gate act(x W_gate + b_gate) ⊙ (x W_in + b_in)."""

    W_in: Tensor
    W_out: Tensor
    b_in: Tensor | None
    b_out: Tensor | None
    activation: Callable[[Tensor], Tensor]
    activation_name: str
    W_gate: Tensor | None = None
    b_gate: Tensor | None = None

    def __call__(self, y: Tensor) -> Tensor:
        """What the layer writes for y, in y's precision."""
        up = self.up(y)
        return self.write(self.activate(up if self.W_gate is None else self.pre(y), up))

    def pre(self, y: Tensor) -> Tensor:
        """What the activation receives."""
        return self.up(y) if self.W_gate is None else _linear(y, self.W_gate, self.b_gate)

    def up(self, y: Tensor) -> Tensor:
        return _linear(y, self.W_in, self.b_in)

    def activate(self, pre: Tensor, up: Tensor) -> Tensor:
        """What W_out receives; `up` counts only where there is a gate."""
        return self.activation(pre) if self.W_gate is None else self.activation(pre) * up

    def write(self, post: Tensor) -> Tensor:
        return _linear(post, self.W_out, self.b_out)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.to(x) if bias is None else x @ weight.to(x) + bias.to(x)


@dataclass(frozen=True, eq=False)
class Block:
    """One layer. In `pre` order ln1 and ln2 read the stream; in `post` order they rewrite it after each write.

    Where one norm serves both sublayers, ln2 is ln1, the same object.
    """

    ln1: Norm
    ln2: Norm
    attention: Attention
    feed_forward: FeedForward
    ln1_post: Norm | None = None
    ln2_post: Norm | None = None


@dataclass(frozen=True, eq=False)
class Positions:
    """How a model encodes positions: a trained table, a rotation of q and k, or not at all."""

    kind: Literal["learned", "rotary", "none"]
    table: Tensor | None = None
    rotary_dims: int = 0
    rotary_type: str = ""
    rotary_theta: float = 0.0


@dataclass(frozen=True, eq=False)
class Anatomy:
    """A live model in canonical form, with the map from our site names to its modules."""

    model: nn.Module
    """Hugging Face's module: what runs."""
    backbone: nn.Module
    """The part of it that ends at the last hidden state, without logits."""
    family: str
    name: str
    d: int
    k: int
    n_heads: int
    n_kv_heads: int
    m: int
    vocabulary: int
    context: int
    order: Order
    parallel: bool
    causal: bool
    blocks: tuple[Block, ...]
    positions: Positions
    W_E: Tensor
    embed_scale: float
    ln_embed: Norm | None
    ln_final: Norm | None
    W_U: Tensor | None
    """[d, v], or None where the model was loaded without a language-model head."""
    b_U: Tensor | None
    logit_softcap: float | None
    sites: Mapping[str, Site]
    config: Mapping[str, Any]
    config_ignored: tuple[str, ...] = ()
    """Keys of config.json that Hugging Face's class does not know and therefore ignores."""
    token_type: Tensor | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    rotary_path: str = ""
    tokenizer: Any = None
    laws: tuple[LawCheck, ...] = ()
    """Every law's error on this model, where they were checked."""
    swapped: Mapping[str, str] = field(default_factory=dict)
    """'norms' and 'heads' that are not the family's own and follow no canonical form, by what they are."""
    checkpoints: Checkpoints | None = None
    """Those of the training run that this model is the end of, where they were given."""

    @property
    def layers(self) -> int:
        return len(self.blocks)

    @property
    def device(self) -> torch.device:
        return self.W_E.device

    @property
    def dtype(self) -> torch.dtype:
        return self.W_E.dtype

    def _repr_html_(self) -> str:
        from armillary.anatomy.overview import overview

        return overview(self)._repr_html_()

    @property
    def norms(self) -> dict[str, Norm]:
        """Every norm that acts on the stream or on a write to it, by site name, in the order they act."""
        found: dict[str, Norm | None] = {"ln_embed": self.ln_embed}
        for i, block in enumerate(self.blocks):
            found |= {
                f"L{i}.ln1": block.ln1,
                f"L{i}.ln1_post": block.ln1_post,
                # One norm for both sublayers is one site.
                f"L{i}.ln2": None if block.ln2 is block.ln1 else block.ln2,
                f"L{i}.ln2_post": block.ln2_post,
            }
        found["ln_final"] = self.ln_final
        return {name: norm for name, norm in found.items() if norm is not None}
