"""Read a live Hugging Face model into canonical form.

With `modules`, the only file that reaches into a Hugging Face model. It reads and views; it computes no forward pass.
"""

import hashlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy.anatomy import Anatomy, Block, Positions
from armillary.anatomy.families import Family, family_of
from armillary.anatomy.families.family import NEUTRAL
from armillary.anatomy.modules import block_of, gate_cuts, norm_at, optional, qkv_cuts, submodule, swapped_parts
from armillary.anatomy.sites import Cut, Side, Site
from armillary.errors import ModelError


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
            f"understood (its default is {default.get(name)!r}); measure a model without it, or add it to the family's "
            "table (docs/add-a-family.md)."
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
    inner = submodule(base, family.backbone, family)
    at = next(f"{path}." if path else "" for path, module in model.named_modules() if module is inner)
    stack, context = submodule(inner, family.blocks, family), _context(config)
    if not len(stack) or context < 1:
        found = f"{len(stack)} layers and a context of {context} tokens"
        raise ModelError(f"this {family.model_type} model has {found}, so it computes nothing; check its config.")
    swapped = swapped_parts(inner, stack, family)
    blocks = tuple(block_of(module, family, config) for module in stack)
    embed = submodule(inner, family.embed, family)
    W_U, b_U = _unembedding(model, family)
    # A model that is built without a final norm has None in its place.
    has_final = bool(family.ln_final) and getattr(inner, family.ln_final or "", inner) is not None
    token_type = optional(inner, family.token_type)
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
        context=context,
        order=family.order(config),
        parallel=family.parallel(config),
        causal=family.causal(config),
        blocks=blocks,
        positions=_positions(inner, family, config),
        W_E=embed.weight.detach(),
        embed_scale=float(embed.embed_scale) if family.embed_scaled else 1.0,
        ln_embed=norm_at(inner, family.ln_embed, family),
        ln_final=norm_at(inner, family.ln_final, family) if has_final else None,
        W_U=W_U,
        b_U=b_U,
        logit_softcap=getattr(config, "final_logit_softcapping", None),
        sites={
            name: site
            for name, site in _sites(family, at, blocks, has_final).items()
            # Swapped heads write no pattern out.
            if site.side != "pattern" or "heads" not in swapped
        },
        swapped=swapped,
        config=config.to_dict(),
        config_ignored=ignored,
        token_type=None if token_type is None else token_type.weight.detach(),
        rotary_path=at + family.rotary if family.rotary else "",
    )


def _unembedding(model: nn.Module, family: Family) -> tuple[Tensor | None, Tensor | None]:
    """W_U [d, v] and its bias; None where the model has no language-model head, or not a linear one."""
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    if not family.plain_head or not isinstance(head, nn.Linear):
        return None, None
    return head.weight.detach().T, None if head.bias is None else head.bias.detach()


def _context(config: Any) -> int:
    """How many tokens the model reads at once.

    LongRoPE rotates by other frequencies in texts longer than the original context, so that an offset has no rotation
    of its own there: such models are read up to their original context.
    """
    rope, context = getattr(config, "rope_parameters", None) or {}, int(config.max_position_embeddings)
    if rope.get("rope_type") != "longrope":
        return context
    return min(context, int(rope["original_max_position_embeddings"]))


def _positions(inner: nn.Module, family: Family, config: Any) -> Positions:
    if family.rotary:
        rotary = submodule(inner, family.rotary, family)
        rope = config.rope_parameters or {}
        if not (fastest := float(rotary.inv_freq.max())) <= math.pi:
            raise ModelError(
                f"the rotary base of this model ({rope.get('rope_theta')}) turns a pair of axes by {fastest:.1e} rad "
                "per position, more than half a turn: the file may be damaged; check its config, or fetch it again."
            )
        return Positions(
            "rotary",
            rotary_dims=2 * int(rotary.inv_freq.shape[0]),
            rotary_type=str(rope.get("rope_type", "default")),
            rotary_theta=float(rope.get("rope_theta", 0.0)),
        )
    if family.positions:
        table = submodule(inner, family.positions, family).weight
        return Positions("learned", table=table.detach()[family.position_offset :])
    return Positions("none")


def _sites(family: Family, at: str, blocks: tuple[Block, ...], has_final: bool) -> dict[str, Site]:
    """Our names in the order of the computation, each with the module, its side and the columns it stands for."""
    attention, feed_forward = blocks[0].attention, blocks[0].feed_forward
    k = attention.W_Q.shape[2]
    q, key, v = qkv_cuts(family, attention.W_Q.shape[0], attention.W_K.shape[0], k)
    gate, up = gate_cuts(feed_forward.W_out.shape[0]) if family.gate_up else (None, None)
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
        ("ln2", family.ln2 if family.own_ln2 else None, "output", None, 0),
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
    """A short hash of the weights, and the name of one that contains NaN or infinity ('' if none does)."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        # The sum is one pass without a temporary; only where it is not finite is each value looked at.
        total = parameter.detach().sum(dtype=torch.float32)
        if not torch.isfinite(total) and not torch.isfinite(parameter).all():
            return "", name
        some = parameter.detach().flatten()[:: max(1, parameter.numel() // 97)].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)} {[float(v).hex() for v in some]}".encode())
    return digest.hexdigest()[:16], ""
