"""How is a Hugging Face module read into canonical form?

The only file that reaches into a Hugging Face module. It reads and views; it never computes a forward pass.
"""

import hashlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy.anatomy import Anatomy, Attention, Block, FeedForward, Positions
from armillary.anatomy.families import FAMILIES, Family
from armillary.anatomy.families.family import NEUTRAL
from armillary.anatomy.norm import Norm
from armillary.anatomy.sites import Cut, Side, Site
from armillary.errors import ModelError


def family_of(model_type: str) -> Family:
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    known = ", ".join(family.model_type for family in FAMILIES)
    raise ModelError(
        f"the architecture {model_type!r} is not one Armillary knows ({known}); "
        "docs/add-a-family.md says how to add its table."
    )


def check_config(config: Any, family: Family) -> tuple[str, ...]:
    """Refuse, by name, an attribute that changes the computation and that no table understands.

    Attributes at their class's default are what the table was tested on. Returns the keys that the class itself
    does not know: Hugging Face carries them along and obeys none of them.
    """
    given, default = config.to_dict(), type(config)().to_dict()
    understood = family.understood | NEUTRAL
    strange = [key for key in given if key not in understood and key in default and given[key] != default[key]]
    name = family.unsupported(config) or next(iter(strange), "")
    if name:
        raise ModelError(
            f"config attribute {name}={given[name]!r} changes what a {family.model_type} model computes and is not "
            f"understood (its default is {default.get(name)!r}); measure a model without it, or teach it to "
            f"anatomy/families/{family.model_type}."
        )
    return tuple(sorted(key for key in given if key not in default and key not in understood and key[0] != "_"))


def read(model: nn.Module, name: str = "") -> Anatomy:
    """The canonical form of a live Hugging Face model."""
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise ModelError(f"{type(model).__name__} is not a transformers model: it has no config with a model_type.")
    family = family_of(config.model_type)
    ignored = check_config(config, family)
    base: nn.Module = getattr(model, "base_model", model)
    inner = base.get_submodule(family.backbone)
    paths = {id(module): path for path, module in model.named_modules()}
    at = paths[id(inner)] + "." if paths[id(inner)] else ""
    stack: Any = inner.get_submodule(family.blocks)
    if not len(stack) or config.max_position_embeddings < 1:
        raise ModelError(
            f"this {family.model_type} model has {len(stack)} layers and a context of {config.max_position_embeddings} "
            "tokens, so it computes nothing; check its config."
        )
    blocks = tuple(_block(module, family, config) for module in stack)
    embed: Any = inner.get_submodule(family.embed)
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    ln_final = _optional(inner, family.ln_final)
    plain_head = head if family.plain_head and isinstance(head, nn.Linear) else None
    softcap = getattr(config, "final_logit_softcapping", None)
    return Anatomy(
        model=model,
        backbone=base,
        family=family.model_type,
        name=name or type(model).__name__,
        d=embed.weight.shape[1],
        k=blocks[0].attention.W_Q.shape[2],
        n_heads=blocks[0].attention.W_Q.shape[0],
        n_kv_heads=blocks[0].attention.W_K.shape[0],
        m=blocks[0].feed_forward.W_in.shape[1],
        vocabulary=embed.weight.shape[0],
        context=int(config.max_position_embeddings),
        order=family.order(config),
        parallel=family.parallel(config),
        causal=family.causal(config),
        blocks=blocks,
        positions=_positions(inner, family, config),
        W_E=embed.weight.detach(),
        embed_scale=float(embed.embed_scale) if family.embed_scaled else 1.0,
        ln_embed=_norm(inner, family.ln_embed, family, config),
        ln_final=_norm(inner, family.ln_final, family, config) if ln_final is not None else None,
        W_U=None if plain_head is None else plain_head.weight.detach().T,
        b_U=None if plain_head is None or plain_head.bias is None else plain_head.bias.detach(),
        logit_softcap=softcap,
        sites=_sites(family, at, blocks, ln_final is not None),
        config=config.to_dict(),
        config_ignored=ignored,
        token_type=_optional_weight(inner, family.token_type),
        rotary_path=at + family.rotary if family.rotary else "",
    )


def _optional(module: nn.Module, path: str | None) -> nn.Module | None:
    if not path:
        return None
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def _optional_weight(module: nn.Module, path: str) -> Tensor | None:
    found: Any = _optional(module, path)
    return None if found is None else found.weight.detach()


def _norm(module: nn.Module, path: str | None, family: Family, config: Any) -> Norm | None:
    found: Any = _optional(module, path)
    if found is None:
        return None
    # Only a norm without affine part has no weight, and then its width is its normalized_shape.
    width = found.normalized_shape[0] if found.weight is None else 0
    like = next(module.parameters())
    gain = like.new_ones(width) if found.weight is None else found.weight.detach()
    if family.gain_offset:
        gain = gain.float() + family.gain_offset
    shift = getattr(found, "bias", None)
    eps = getattr(found, "variance_epsilon", getattr(found, "eps", None))
    assert eps is not None, f"{path} keeps its ε under a name we do not know"
    return Norm(family.norm, gain, None if shift is None else shift.detach(), float(eps))


def _weights(block: nn.Module, path: str, family: Family) -> tuple[Tensor, Tensor | None]:
    """A projection as ([in, out], bias)."""
    layer: Any = block.get_submodule(path)
    weight = layer.weight.detach()
    bias = None if layer.bias is None else layer.bias.detach()
    return (weight if family.transposed else weight.T), bias


def _heads(weight: Tensor, bias: Tensor | None, cut: Cut | None, k: int) -> tuple[Tensor, Tensor | None]:
    """Columns of [d, n·k] as n heads: [n, d, k] and [n, k], as views where the layout allows."""
    split = Site("", "", "output", cut, k).take
    return split(weight).permute(1, 0, 2), None if bias is None else split(bias)


def _qkv_cuts(family: Family, heads: int, kv_heads: int, k: int) -> tuple[Cut | None, Cut | None, Cut | None]:
    """The columns of q, k and v where one projection gives all three."""
    if not family.fused:
        return None, None, None
    groups = 1 if family.layout == "concatenated" else kv_heads
    q, key = heads * k // groups, kv_heads * k // groups
    return Cut(groups, 0, q), Cut(groups, q, q + key), Cut(groups, q + key, q + 2 * key)


def _gate_cuts(family: Family, m: int) -> tuple[Cut | None, Cut | None]:
    return (Cut(1, 0, m), Cut(1, m, 2 * m)) if family.gate_up else (None, None)


def _attention(block: nn.Module, family: Family, config: Any) -> Attention:
    module: Any = block.get_submodule(family.attention)
    k = next(
        getattr(module, name)
        for name in ("head_dim", "head_size", "attention_head_size")
        if getattr(module, name, None) is not None
    )
    heads = int(config.num_attention_heads)
    cuts = _qkv_cuts(family, heads, int(getattr(config, "num_key_value_heads", None) or heads), k)
    paths = [family.fused] * 3 if family.fused else [family.query, family.key, family.value]
    (W_Q, b_Q), (W_K, b_K), (W_V, b_V) = (
        _heads(*_weights(block, path, family), cut, k) for path, cut in zip(paths, cuts, strict=True)
    )
    W_O, b_O = _weights(block, family.output, family)
    window = getattr(module, "sliding_window", None)
    if family.model_type == "mistral":
        window = config.sliding_window
    return Attention(
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=W_O.reshape(W_Q.shape[0], k, -1),
        b_Q=b_Q,
        b_K=b_K,
        b_V=b_V,
        b_O=b_O,
        scale=float(module.scaling),
        softcap=getattr(module, "attn_logit_softcapping", None),
        window=window,
        q_norm=_norm(block, family.q_norm, family, config),
        k_norm=_norm(block, family.k_norm, family, config),
    )


def _feed_forward(block: nn.Module, family: Family, config: Any) -> FeedForward:
    from transformers.activations import ACT2FN

    W_out, b_out = _weights(block, family.mlp_out, family)
    name = getattr(config, family.activation)
    gate: tuple[Tensor | None, Tensor | None] = (None, None)
    if family.gate_up:
        weight, bias = _weights(block, family.gate_up, family)
        gate, (W_in, b_in) = (
            (cut.take(weight), None if bias is None else cut.take(bias))
            for cut in _gate_cuts(family, W_out.shape[0])
            if cut is not None
        )
    else:
        W_in, b_in = _weights(block, family.mlp_in, family)
        gate = _weights(block, family.mlp_gate, family) if family.mlp_gate else gate
    return FeedForward(W_in, W_out, b_in, b_out, ACT2FN[name], name, *gate)


def _block(block: nn.Module, family: Family, config: Any) -> Block:
    ln1, ln2 = _norm(block, family.ln1, family, config), _norm(block, family.ln2, family, config)
    assert ln1 is not None and ln2 is not None
    return Block(
        ln1=ln1,
        ln2=ln2,
        attention=_attention(block, family, config),
        feed_forward=_feed_forward(block, family, config),
        ln1_post=_norm(block, family.ln1_post, family, config),
        ln2_post=_norm(block, family.ln2_post, family, config),
    )


def _positions(inner: nn.Module, family: Family, config: Any) -> Positions:
    if family.rotary:
        rotary: Any = inner.get_submodule(family.rotary)
        rope = config.rope_parameters or {}
        if not (fastest := float(rotary.inv_freq.max())) <= math.pi:
            raise ModelError(
                f"the rotary base of this model ({rope.get('rope_theta')}) turns a pair of axes by {fastest:.1e} rad "
                "a position, more than half a turn: the file may be damaged; check its config, or fetch it again."
            )
        return Positions(
            "rotary",
            rotary_dims=2 * int(rotary.inv_freq.shape[0]),
            rotary_type=str(rope.get("rope_type", "default")),
            rotary_theta=float(rope.get("rope_theta", 0.0)),
        )
    if family.positions:
        table: Any = inner.get_submodule(family.positions).weight
        return Positions("learned", table=table.detach()[family.position_offset :])
    return Positions("none")


def _sites(family: Family, at: str, blocks: tuple[Block, ...], has_final: bool) -> dict[str, Site]:
    """Our names in the order of the computation, each with the module, its side and the columns it stands for."""
    attention, feed_forward = blocks[0].attention, blocks[0].feed_forward
    k = attention.W_Q.shape[2]
    q, key, v = _qkv_cuts(family, attention.W_Q.shape[0], attention.W_K.shape[0], k)
    gate, up = _gate_cuts(family, feed_forward.W_out.shape[0])
    mlp_in = family.gate_up or family.mlp_in
    parts: list[tuple[str, str | None, Side, Cut | None, int]] = [
        ("resid_pre", "", "input", None, 0),
        ("ln1", family.ln1, "output", None, 0),
        ("q", family.query or family.fused, "output", q, k),
        ("k", family.key or family.fused, "output", key, k),
        ("v", family.value or family.fused, "output", v, k),
        ("pattern", family.attention, "pattern", None, 0),
        ("z", family.output, "input", None, k),
        ("ln1_post", family.ln1_post, "output", None, 0),
        ("attn_out", family.attn_write, "output", None, 0),
        ("ln2", family.ln2, "output", None, 0),
        # What the activation receives: the gate's product where there is a gate.
        ("mlp_pre", family.mlp_gate or mlp_in, "output", gate, 0),
        ("mlp_up", None if feed_forward.W_gate is None else mlp_in, "output", up, 0),
        ("mlp_post", family.mlp_out, "input", None, 0),
        ("ln2_post", family.ln2_post, "output", None, 0),
        ("mlp_out", family.mlp_write, "output", None, 0),
        ("resid_post", "", "output", None, 0),
    ]
    sites = [Site("ln_embed", at + family.ln_embed, "output")] if family.ln_embed else []
    for layer in range(len(blocks)):
        block = f"{at}{family.blocks}.{layer}"
        for name, path, side, cut, width in parts:
            if path is not None:
                sites.append(Site(f"L{layer}.{name}", f"{block}.{path}" if path else block, side, cut, width))
    if has_final and family.ln_final:
        sites.append(Site("ln_final", at + family.ln_final, "output"))
    return {site.name: site for site in sites}


def fingerprint(model: nn.Module) -> tuple[str, str]:
    """A short hash of the weights, and the name of one that holds NaN or infinity ('' if none does)."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        # The sum is one pass without a temporary; only where it is not finite is each value looked at.
        total = parameter.detach().sum(dtype=torch.float32)
        if not torch.isfinite(total) and not torch.isfinite(parameter).all():
            return "", name
        some = parameter.detach().flatten()[:: max(1, parameter.numel() // 97)].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)} {[float(v).hex() for v in some]}".encode())
    return digest.hexdigest()[:16], ""
