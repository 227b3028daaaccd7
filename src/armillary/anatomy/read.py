"""Read a live Hugging Face model into canonical form.

This file and those in `reading/` alone reach into a Hugging Face model. They read and view; they compute no forward
pass.
"""

import math
import sys
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy.anatomy import Anatomy, Attention, Block, FeedForward, Positions
from armillary.anatomy.encoder import encoder_of
from armillary.anatomy.entries.narrow_embeddings import projected_entry
from armillary.anatomy.entries.patches import position_table, signal_of
from armillary.anatomy.families import Family, family_for
from armillary.anatomy.families.family import NEUTRAL
from armillary.anatomy.positions.rope_keys import ignored_rope_keys
from armillary.anatomy.reading.block_sites import sites_of
from armillary.anatomy.reading.modules import (
    block_of,
    norm_at,
    optional,
    packed,
    submodule,
    swapped_parts,
    unpacked,
)
from armillary.errors import ModelError

_SIZES = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
# How the weights of an untrained model are drawn.
_SPREADS = ("initializer_range", "initializer_factor", "init_std")
_WIDEST = 1e3


def check_config(config: Any, family: Family) -> tuple[str, ...]:
    """Refuse, by name, an attribute that changes the computation and that no table understands.

    Attributes at their class's default are what the table was tested on. Returns the keys that the class itself
    does not know: Hugging Face carries them along and obeys none of them.
    """
    if getattr(config, "return_dict", True) is not True:
        raise ModelError("the model's config says return_dict=False, so its outputs have no names; set it to True.")
    for name in _SIZES:
        if isinstance(size := getattr(config, name, None), int) and size < 1:
            raise ModelError(f"config attribute {name} is {size}, but must be at least 1; check its config.json.")
    for name in _SPREADS:
        spread = getattr(config, name, 0.0)
        if isinstance(spread, int | float) and not 0 <= spread <= _WIDEST:
            raise ModelError(
                f"config attribute {name} is {spread}, which is not a valid standard deviation for initial weights; "
                "check its config.json."
            )
    given, default = config.to_dict(), _defaults(config.__class__)
    _check_norms_and_rotation(config, given)
    understood = family.understood | NEUTRAL
    strange = [key for key in given if key not in understood and key in default and given[key] != default[key]]
    name = family.unsupported(config) or next(iter(strange), "")
    if name:
        raise ModelError(
            f"config attribute {name}={given[name]!r} changes what a {family.model_type} model computes and is not "
            f"supported (its default is {default.get(name)!r}); measure a model without it, or add it to the family's "
            "table (docs/add-a-family.md)."
        )
    unknown = [key for key in given if key not in default and key not in understood and key[0] != "_"]
    return tuple(sorted([*unknown, *ignored_rope_keys(config)]))


@cache
def _defaults(kind: type[Any]) -> Mapping[str, Any]:
    """What a class of configs says by itself. To make a config takes longer than all else that is checked of it."""
    return MappingProxyType(kind().to_dict())


def _check_norms_and_rotation(config: Any, given: Mapping[str, Any]) -> None:
    """No norm adds a negative ε, and no rotation is stretched by nothing or less."""
    ropes = _ropes(config)
    factors = {f"rope_parameters.{kind}factor": rope.get("factor") for kind, rope in ropes.items()}
    for kind, rope in ropes.items():
        low, high = rope.get("low_freq_factor"), rope.get("high_freq_factor")
        if isinstance(low, int | float) and isinstance(high, int | float) and not low < high:
            raise ModelError(
                f"config attribute rope_parameters.{kind}low_freq_factor is {low}, but must be less "
                f"than high_freq_factor, which is {high}; check its config.json."
            )
    epsilons = {key: value for key, value in given.items() if key.endswith(("_eps", "_epsilon"))}
    for name, value in {**epsilons, **factors}.items():
        least = "more than 0" if name in factors else "0 or more"
        if isinstance(value, int | float) and (value < 0 or (name in factors and value == 0)):
            raise ModelError(f"config attribute {name} is {value}, but must be {least}; check its config.json.")


def _ropes(config: Any) -> dict[str, dict[str, Any]]:
    """The config's rotation under '', or one for each kind of layer under its name and a dot."""
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict):
        return {}
    if rope and all(isinstance(each, dict) for each in rope.values()):
        return {f"{kind}.": each for kind, each in rope.items()}
    return {"": rope}


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
        size = f"{len(stack)} layers and a context of {context} tokens"
        raise ModelError(f"this {family.model_type} model has {size}, so it computes nothing; check its config.")
    heads, kv_heads, k, m = _sizes(blocks, family)
    outlet = _outlet(model, inner, family, config)
    sites = sites_of(tables, at, blocks, k, outlet["ln_final"] is not None)
    return Anatomy(
        model=model,
        **_run(model, base, inner, family, config),
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
        config_ignored=(*ignored, *_untied(model), *_unturned(config, positions, k)),
        packed=next((what for module in stack if (what := packed(module))), ""),
        window_setting=family.window_setting,
        window_built_in=family.window_built_in,
        head_edits=_head_edits(stack, tables),
    )


def _run(model: nn.Module, base: nn.Module, inner: nn.Module, family: Family, config: Any) -> dict[str, Any]:
    """What is run: a decoder by itself, on states that its encoder gave before."""
    encoder = encoder_of(model, base, family, config)
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


def _unturned(config: Any, positions: Positions, k: int) -> tuple[str, ...]:
    """A share of rotated axes that the model's class does not obey."""
    rope = getattr(config, "rope_parameters", None)
    share = rope.get("partial_rotary_factor") if isinstance(rope, dict) else None
    if not isinstance(share, int | float) or not positions.rotary_dims or positions.rotary_dims == int(k * share):
        return ()
    return ("rope_parameters.partial_rotary_factor",)


def _untied(model: Any) -> tuple[str, ...]:
    """'tie_word_embeddings' where the config asks for it and there are two matrices: the library then uses both."""
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    if not isinstance(head, nn.Linear) or not getattr(model.config, "tie_word_embeddings", False):
        return ()
    embeddings: Any = model.get_input_embeddings()
    apart = embeddings.weight is not head.weight and embeddings.weight.shape == head.weight.shape
    return ("tie_word_embeddings",) if apart else ()


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
    if positions.table is not None:
        # A table may begin with rows that belong to no position (RoBERTa).
        context = min(context, len(positions.table))
    limited = [
        each
        for each in _ropes(config).values()
        if each.get("rope_type") == "longrope" or each.get("llama_4_scaling_beta")
    ]
    return min([context, *(int(each["original_max_position_embeddings"]) for each in limited)])


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
        for name in ("short_factor", "long_factor"):
            # A single factor would be taken for all.
            if frequencies is not None and len(rope.get(name) or frequencies) != len(frequencies):
                raise ModelError(
                    f"config attribute rope_parameters.{name} has {len(rope[name])} factors, and heads are rotated in "
                    f"{len(frequencies)} planes; check its config.json."
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
