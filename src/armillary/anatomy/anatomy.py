"""A model in canonical form: what every probe sees of it.

Row vectors everywhere (x @ W): W_Q, W_K, W_V are [d, k], W_O is [k, d]. All tensors are views of the live model's
parameters where the layout allows. Nothing is folded and nothing is re-implemented: Hugging Face's module runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from armillary.anatomy.encoder import Encoder
from armillary.anatomy.entries.narrow_embeddings import Entry
from armillary.anatomy.entries.signal import Signal
from armillary.anatomy.loading.steps import Checkpoints
from armillary.anatomy.norm import Norm
from armillary.anatomy.parts import Attention, Block, FeedForward, Head, Opaque, Routed
from armillary.anatomy.sites import Site
from armillary.errors import ModelError
from armillary.geometry.multiply import times
from armillary.results import LawCheck

Order = Literal["pre", "post"]
__all__ = ["Anatomy", "Attention", "Block", "FeedForward", "Head", "Opaque", "Order", "Positions", "Routed"]


@dataclass(frozen=True, eq=False)
class Positions:
    """How a model encodes positions: a trained table, a rotation of q and k, a bias of their scores, or not at all."""

    kind: Literal["learned", "rotary", "bias", "none"]
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
    logit_scale: float
    """Logits are multiplied by it, before they are capped."""
    sites: Mapping[str, Site]
    config: Mapping[str, Any]
    config_ignored: tuple[str, ...] = ()
    """Keys of config.json that Hugging Face's class does not know and therefore ignores."""
    weights_ignored: tuple[str, ...] = ()
    """Weights in the model's files that its config does not call for, and that are not read."""
    packed: str = ""
    """What hides weights by packing them, '' where nothing does. Its roundings may depend on the whole batch."""
    token_type: Tensor | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    window_setting: str = ""
    """The config attribute that windows are made from, where there are any."""
    window_built_in: bool = False
    """Windows are made once, with the model; elsewhere they are made at every pass."""
    head_edits: bool = True
    """Queries and keys can be edited after their rotation: attention is one of the library's functions."""
    tokenizer: Any = None
    entry: Entry | None = None
    """How tokens become the stream, where a projection stands between the two."""
    encoder: Encoder | None = None
    """What a decoder reads by cross attention; None of a model that has none."""
    signal: Signal | None = None
    """How it takes images or sound; None where it reads text."""
    laws: tuple[LawCheck, ...] = ()
    """Every law's error on this model, where they were checked."""
    swapped: Mapping[str, str] = field(default_factory=dict)
    """'norms' and 'heads' that are not the family's own and follow no canonical form, by what they are."""
    other_parts: tuple[str, ...] = ()
    """Parts of the same model that are not read here: another tower, another stack."""
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
    def reads(self) -> Literal["text", "images", "sound"]:
        """What it is given."""
        return "text" if self.signal is None else self.signal.sense

    def inputs(self, ids: Tensor, mask: Tensor | None = None, whole: bool = False) -> dict[str, Any]:
        """What the backbone is called with to read these token ids, or the `whole` model."""
        ids = ids.to(self.device, non_blocking=True)
        if self.encoder is not None:
            return self.encoder.inputs(ids, mask, whole)
        if self.signal is not None:
            return {self.signal.argument: self.signal.whole(ids)}
        attention = None if mask is None or bool(mask.all()) else mask.to(self.device, non_blocking=True).long()
        return {"input_ids": ids, "attention_mask": attention}

    @property
    def weight_bytes(self) -> int:
        """How much memory the model's weights take."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    @property
    def rotates(self) -> bool:
        """Does any layer turn queries and keys by their positions?"""
        return self.positions.kind == "rotary"

    @property
    def centred(self) -> bool:
        """Do the norms take the mean off what they receive?"""
        return any(norm.kind == "layernorm" for norm in self.norms.values())

    @property
    def unnormed(self) -> bool:
        """Do sublayers behind the first read the stream itself, and not a norm of it?"""
        inner = [b.ln1 for b in self.blocks[1:]] + [b.ln2 for b in self.blocks if b.channels is not None]
        return self.order == "pre" and any(norm is None for norm in inner)

    @property
    def opaque(self) -> dict[str, str]:
        """Parts that are not understood, by what they are: `heads`, `hidden` values, the `feed_forward` layers."""
        unreadable: dict[str, str] = {}
        for block in self.blocks:
            if isinstance(block.mixer, Opaque):
                unreadable.setdefault("heads", block.mixer.what)
            if isinstance(block.channels, Routed):
                unreadable.setdefault("hidden", "a mixture of experts")
            elif isinstance(block.channels, Opaque):
                unreadable.setdefault("hidden", block.channels.what)
            elif block.channels is None:
                unreadable.setdefault("hidden", "blocks have no feed-forward layer")
            if not isinstance(block.channels, FeedForward | Routed):
                unreadable.setdefault("feed_forward", unreadable["hidden"])
        return unreadable

    def logits(self, state: Tensor) -> Tensor:
        """Logits from the last state [..., d] behind the final norm, in its precision."""
        if self.W_U is None:
            raise ModelError(f"{self.name} has no linear language-model head, so a state gives no logits.")
        out = times(state, self.W_U.to(state).mT)
        out = (out if self.b_U is None else out + self.b_U.to(state)) * self.logit_scale
        return out if self.logit_softcap is None else self.logit_softcap * torch.tanh(out / self.logit_softcap)

    @property
    def norms(self) -> dict[str, Norm]:
        """Every norm that acts on the stream or on a write to it, by site name, in the order they act."""
        norms: dict[str, Norm | None] = {"ln_embed": self.ln_embed}
        for i, block in enumerate(self.blocks):
            norms |= {
                f"L{i}.ln1": block.ln1,
                f"L{i}.ln1_post": block.ln1_post,
                f"L{i}.ln_cross": block.ln_cross,
                # One norm for both sublayers is one site.
                f"L{i}.ln2": None if block.ln2 is block.ln1 else block.ln2,
                f"L{i}.ln2_post": block.ln2_post,
            }
        norms["ln_final"] = self.ln_final
        return {name: norm for name, norm in norms.items() if norm is not None}
