"""Read a live Hugging Face model into canonical form.

With `modules`, the only file that reaches into a Hugging Face model. It reads and views; it computes no forward pass.
"""

import hashlib
import json
import math
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy.anatomy import Anatomy, Attention, Block, FeedForward, Opaque, Positions
from armillary.anatomy.encoder import encoder_of
from armillary.anatomy.entries.narrow_embeddings import projected_entry
from armillary.anatomy.entries.patches import position_table, signal_of
from armillary.anatomy.families import Family, family_for
from armillary.anatomy.families.family import NEUTRAL
from armillary.anatomy.positions.rope_keys import ignored_rope_keys
from armillary.anatomy.reading.modules import (
    block_of,
    crossing,
    gate_cuts,
    norm_at,
    optional,
    packed,
    qkv_cuts,
    submodule,
    swapped_parts,
    unpacked,
)
from armillary.anatomy.sites import Cut, Side, Site
from armillary.errors import ModelError

_SIZES = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")


def check_config(config: Any, family: Family) -> tuple[str, ...]:
    """Refuse, by name, an attribute that changes the computation and that no table understands.

    Attributes at their class's default are what the table was tested on. Returns the keys that the class itself
    does not know: Hugging Face carries them along and obeys none of them.
    """
    if getattr(config, "return_dict", True) is not True:
        raise ModelError(
            "the model's config says return_dict=False, so that it names none of its outputs; set it to True."
        )
    for name in _SIZES:
        if isinstance(size := getattr(config, name, None), int) and size < 1:
            raise ModelError(f"config attribute {name} is {size}, and no model has less than 1; check its config.json.")
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
    unknown = [key for key in given if key not in default and key not in understood and key[0] != "_"]
    return tuple(sorted([*unknown, *ignored_rope_keys(config)]))


def read(model: nn.Module, name: str = "") -> Anatomy:
    """The canonical form of a live Hugging Face model."""
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise ModelError(f"{type(model).__name__} is not a transformers model: it has no config with a model_type.")
    family = family_for(model)
    model = family.prepared(model)
    ignored = check_config(config, family)
    family = family.of(family, config)
    base: nn.Module = model if family.whole else getattr(model, "base_model", model)
    inner = submodule(base, family.backbone, family)
    at = next(f"{path}." if path else "" for path, module in model.named_modules() if module is inner)
    stack = submodule(inner, family.blocks, family)
    entrance = _entrance(inner, family, config)
    swapped = swapped_parts(inner, stack, family)
    tables = [unpacked(module, family.at(family, config, layer)) for layer, module in enumerate(stack)]
    blocks = tuple(block_of(module, inner, table, config) for module, table in zip(stack, tables, strict=True))
    positions = _positions(inner, family, config, blocks)
    context = _context(config, positions) if entrance["signal"] is None else entrance["signal"].tokens
    if not len(stack) or context < 1:
        found = f"{len(stack)} layers and a context of {context} tokens"
        raise ModelError(f"this {family.model_type} model has {found}, so it computes nothing; check its config.")
    heads, kv_heads, k, m = _sizes(blocks, family)
    outlet = _outlet(model, inner, family, config)
    sites = _sites(tables, at, blocks, k, outlet["ln_final"] is not None)
    return Anatomy(
        model=model,
        **_run(base, inner, family, config),
        family=family.model_type,
        name=name or type(model).__name__,
        **entrance,
        k=k,
        n_heads=heads,
        n_kv_heads=kv_heads,
        m=m,
        context=context,
        order=family.order(config),
        parallel=family.parallel(config),
        causal=family.causal(config),
        blocks=blocks,
        positions=positions,
        **outlet,
        # Swapped heads write no pattern out.
        sites={name: site for name, site in sites.items() if site.side != "pattern" or "heads" not in swapped},
        swapped=swapped,
        config=config.to_dict(),
        config_ignored=ignored,
        packed=next((what for module in stack if (what := packed(module))), ""),
        window_setting=family.window_setting,
        window_built_in=family.window_built_in,
        head_edits=_head_edits(stack, tables),
    )


def _run(base: nn.Module, inner: nn.Module, family: Family, config: Any) -> dict[str, Any]:
    """What is run: a decoder by itself, on states that its encoder gave before."""
    encoder = encoder_of(base, family, config)
    return {"backbone": base if encoder is None else inner, "encoder": encoder}


def _entrance(inner: nn.Module, family: Family, config: Any) -> dict[str, Any]:
    """What turns tokens, patches or frames into the stream, by the names of an anatomy's fields."""
    signal = signal_of(inner, family, config)
    embed: Any = None if signal is not None else submodule(inner, family.embed, family)
    entry = projected_entry(inner, family)
    W_E = signal.vectors() if signal is not None else embed.weight.detach() if entry is None else entry.vectors()
    token_type = optional(inner, family.token_type) if entry is None else None
    return {
        "d": W_E.shape[1],
        "vocabulary": W_E.shape[0],
        "W_E": W_E,
        "signal": signal,
        "embed_scale": float(embed.embed_scale) if family.embed_scaled else family.embed_scale,
        "entry": entry,
        "ln_embed": None if entry is not None else norm_at(inner, family.ln_embed, family),
        "token_type": None if token_type is None else token_type.weight.detach(),
    }


def _outlet(model: nn.Module, inner: nn.Module, family: Family, config: Any) -> dict[str, Any]:
    """What turns the stream into logits, by the names of an anatomy's fields."""
    W_U, b_U = _unembedding(model, family)
    if W_U is not None and family.logit_bias and optional(model, family.logit_bias) is not None:
        b_U = optional(model, family.logit_bias).detach()[0]
    return {
        "ln_final": norm_at(inner, family.ln_final, family) if _has_final(inner, family) else None,
        "W_U": W_U,
        "b_U": b_U,
        "logit_softcap": getattr(config, family.logit_softcap, None),
        "logit_scale": family.logit_scale,
    }


def _has_final(inner: nn.Module, family: Family) -> bool:
    """A model that is built without a final norm has None in its place."""
    return bool(family.ln_final) and getattr(inner, family.ln_final or "", inner) is not None


def _sizes(blocks: tuple[Block, ...], family: Family) -> tuple[int, int, int, int]:
    """Heads, key/value heads, head width and hidden width, which all layers share; 0 where none has such a part."""
    attentions = [block.mixer for block in blocks if isinstance(block.mixer, Attention)]
    heads = {(len(part.W_Q), len(part.W_K), part.W_Q.shape[2]) for part in attentions}
    # Dense layers among layers of experts may be wider than these: their hidden values are no common axis.
    dense = {block.channels.W_in.shape[1] for block in blocks if isinstance(block.channels, FeedForward)}
    if len(heads) > 1 or (len(dense) > 1 and all(isinstance(block.channels, FeedForward) for block in blocks)):
        raise ModelError(
            f"the layers of this {family.model_type} model have different numbers or widths of heads ({sorted(heads)}) "
            f"or hidden values ({sorted(dense)}); layers of different sizes are not understood."
        )
    return (*next(iter(heads), (0, 0, 0)), max(dense, default=0))


def _head_edits(stack: Any, tables: list[Family]) -> bool:
    """Does attention go through the library's table of attention functions, where q and k can be edited?"""
    for block, table in zip(stack, tables, strict=True):
        part = optional(block, table.attention) if not table.mixer else None
        sources = [sys.modules[type(module).__module__] for module in part.modules()] if part is not None else []
        if not any(hasattr(source, "ALL_ATTENTION_FUNCTIONS") for source in sources):
            return False
    return True


def _unembedding(model: nn.Module, family: Family) -> tuple[Tensor | None, Tensor | None]:
    """W_U [d, v] and its bias; None where the model has no language-model head, or not a linear one."""
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    if not family.plain_head or not isinstance(head, nn.Linear) or not head.weight.is_floating_point():
        return None, None
    return head.weight.detach().T, None if head.bias is None else head.bias.detach()


# Models without a limit of their own (state spaces, ALiBi) are read up to this many tokens.
UNLIMITED = 2048
CONTEXTS = ("max_position_embeddings", "max_seq_len", "context_length", "seq_length", "n_positions")


def _context(config: Any, positions: Positions) -> int:
    """How many tokens the model reads at once.

    LongRoPE rotates by other frequencies in texts longer than the original context, so that an offset has no rotation
    of its own there; Llama 4's scaling multiplies queries that stand behind it. Such models are read up to their
    original context.
    """
    known = (getattr(config, name, None) for name in CONTEXTS)
    context = next((int(length) for length in known if length is not None), UNLIMITED)
    rope = getattr(config, "rope_parameters", None) or {}
    if positions.table is not None:
        # A table may begin with rows that belong to no position (RoBERTa).
        context = min(context, len(positions.table))
    if rope.get("rope_type") != "longrope" and not rope.get("llama_4_scaling_beta"):
        return context
    return min(context, int(rope["original_max_position_embeddings"]))


def _positions(inner: nn.Module, family: Family, config: Any, blocks: tuple[Block, ...]) -> Positions:
    attentions = [block.mixer for block in blocks if isinstance(block.mixer, Attention)]
    rotary = next((part.rotary for part in attentions if part.rotary is not None), None)
    if rotary is not None:
        rope = getattr(config, "rope_parameters", None) or {}
        rope = rope.get(rotary.kind, rope) if rotary.kind else rope
        first = rotary.rotation(torch.arange(2, device=next(inner.parameters()).device))
        frequencies = getattr(rotary.module, "inv_freq", None)
        if frequencies is not None and not frequencies.numel():
            raise ModelError("the config rotates no axis of any head (a rotary factor of 0); check config.json.")
        if frequencies is not None and not (fastest := float(frequencies.max())) <= math.pi:
            raise ModelError(
                f"the rotary base of this model ({rope.get('rope_theta')}) turns a pair of axes by {fastest:.1e} rad "
                "per position, more than half a turn: the file may be damaged; check its config, or fetch it again."
            )
        return Positions(
            "rotary",
            rotary_dims=2 * int(first.cos.shape[-1]),
            rotary_type=str(rope.get("rope_type", "default")),
            rotary_theta=float(rope.get("rope_theta", 0.0)),
        )
    if any(part.bias is not None for part in attentions) and not family.positions:
        return Positions("bias")
    if (places := position_table(inner, family)) is not None:
        return Positions("learned", table=places)
    if family.positions:
        table = submodule(inner, family.positions, family).weight.detach()[family.position_offset :]
        # Where a projection follows, positions are no rows of the stream.
        return Positions("learned", table=None if family.projected else table)
    return Positions("none")


Part = tuple[str, str | None, Side, Cut | None, int]


def _mixer_parts(family: Family, block: Block, k: int) -> list[Part]:
    """The sites inside a mixer: those of heads where it is attention, none where it is not understood."""
    if isinstance(block.mixer, Opaque):
        return []
    q, key, v = qkv_cuts(family, len(block.mixer.W_Q), len(block.mixer.W_K), k)
    return [
        ("q", family.query or family.fused, "output", q, k),
        ("k", family.key or family.fused, "output", key, k),
        ("v", family.value or family.fused, "output", v, k),
        ("pattern", family.attention, "pattern", None, 0),
        ("z", family.output, "input", None, k),
    ]


def _cross_parts(family: Family, block: Block, k: int) -> list[Part]:
    """The sites of the attention to an encoder; keys and values have the encoder's length."""
    if family.cross is None or block.cross is None:
        return []
    table = crossing(family)
    inside = [(f"cross_{name}", path, side, cut, width) for name, path, side, cut, width in
              _mixer_parts(table, replace(block, mixer=block.cross), k)]  # fmt: skip
    return [
        ("ln_cross", family.cross.norm, "output", None, 0),
        *inside,
        ("cross_out", table.attn_write, "output", None, 0),
    ]


def _channel_parts(family: Family, block: Block) -> list[Part]:
    """The sites inside a feed-forward layer, where it is one dense layer."""
    if not isinstance(block.channels, FeedForward):
        return []
    gate, up = gate_cuts(block.channels.W_out.shape[0], family.up_first) if family.gate_up else (None, None)
    mlp_in = family.gate_up or family.mlp_in
    return [
        # What the activation receives: the gate's product where there is a gate.
        ("mlp_pre", family.mlp_gate or mlp_in, "output", gate, 0),
        ("mlp_up", None if block.channels.W_gate is None else mlp_in, "output", up, 0),
        ("mlp_post", family.mlp_out, "input", None, 0),
    ]


def _sites(tables: list[Family], at: str, blocks: tuple[Block, ...], k: int, has_final: bool) -> dict[str, Site]:
    """Our names in the order of the computation, each with the module, its side and the columns it stands for."""
    first = tables[0]
    sites = [Site("ln_embed", at + first.ln_embed, "output")] if first.ln_embed and not first.projected else []
    for layer, (family, block) in enumerate(zip(tables, blocks, strict=True)):
        own_ln2 = family.ln2 if family.own_ln2 and block.ln2 is not None else None
        parts: list[Part] = [
            ("resid_pre", "", "input", None, 0),
            ("ln1", family.ln1 if block.ln1 is not None else None, "output", None, 0),
            *_mixer_parts(family, block, k),
            ("ln1_post", family.ln1_post, "output", None, 0),
            ("attn_out", family.attn_write, "output", None, 0),
            *_cross_parts(family, block, k),
            ("ln2", own_ln2, "output", None, 0),
        ]
        if block.channels is not None:
            reads = None if block.ln2 is not None else family.mlp_reads
            parts += [
                ("resid_mid", reads, "input", None, 0),
                *_channel_parts(family, block),
                ("ln2_post", family.ln2_post, "output", None, 0),
                ("mlp_out", family.mlp_write, "output", None, 0),
            ]
        parts.append(("resid_post", "", "output", None, 0))
        path_of = f"{at}{family.blocks}.{layer}"
        for name, path, side, cut, width in parts:
            if path is not None:
                scale = family.write_scale if name in ("attn_out", "mlp_out") else 1.0
                where = f"{path_of}.{path}" if path else path_of
                index = family.pattern_output if side == "pattern" else 0
                sites.append(Site(f"L{layer}.{name}", where, side, cut, width, scale, index))
    if first.start:
        sites = [Site(s.name, at + first.start, "output") if s.name == "L0.resid_pre" else s for s in sites]
    if has_final and first.ln_final:
        sites.append(Site("ln_final", at + first.ln_final, "output"))
    return {site.name: site for site in sites}


# What a config says of where it came from, not of what the model computes.
_ASIDE = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "_attn_implementation")
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(model: Any) -> str:
    """A short hash of every weight and of the config.

    The bits of a weight are added as integers, which gives the same sum in any order, on any device.
    """
    config = {key: value for key, value in model.config.to_dict().items() if key not in _ASIDE}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode("utf-8", "backslashreplace"))
    for name, value in model.state_dict().items():
        digest.update(f"{name} {_sum(value)}".encode())
    return digest.hexdigest()[:16]


def _sum(value: Any) -> str:
    """A weight's shape, type and bits; of packed weights, which are tuples, those of each part."""
    if isinstance(value, tuple | list):
        return " ".join(map(_sum, value))
    if not isinstance(value, Tensor):
        return str(value)
    bits = (value.int_repr() if value.is_quantized else value).detach().contiguous().flatten()
    total = int(bits.view(_BITS[bits.element_size()]).sum(dtype=torch.int64)) if bits.numel() else 0
    return f"{tuple(value.shape)} {value.dtype} {total}"


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
