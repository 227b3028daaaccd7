"""Read the weights of one Hugging Face block into canonical form, where its family's table says they are.

Views of the live parameters wherever the layout allows; no forward pass is computed here.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy.families import Family
from armillary.anatomy.norm import Norm
from armillary.anatomy.parts import Attention, Block, FeedForward, Opaque, Routed
from armillary.anatomy.positions import rotary
from armillary.anatomy.positions.rotary import Rotary
from armillary.anatomy.reading.mixture import routed
from armillary.anatomy.sites import Cut, Site
from armillary.errors import ModelError

HEAD_WIDTHS = ("head_dim", "head_size", "attention_head_size", "key_value_proj_dim")


def submodule(module: nn.Module, path: str, family: Family) -> Any:
    """The module at `path`; a path that does not exist is an error that lists those that do."""
    try:
        return module.get_submodule(path)
    except AttributeError:
        known = ", ".join(name for name, _ in module.named_modules() if name) or "no modules"
        raise ModelError(
            f"the {family.model_type} table names {path!r}, and {type(module).__name__} has no such module; it has "
            f"{known if len(known) <= 600 else known[:600] + ' …'}: correct the path in the table."
        ) from None


def optional(module: nn.Module, path: str | None) -> Any:
    """The module at `path`, or None where the model was built without it."""
    value: Any = module
    for part in path.split(".") if path else ():
        value = getattr(value, part, None)
    return value if path else None


def norm_at(module: nn.Module, path: str | None, family: Family, required: bool = True) -> Norm | None:
    """The norm at `path`; None without a path, where the model has none there, or where a norm that is not `required`
    is missing."""
    if not path:
        return None
    norm_module = optional(module, path)
    if norm_module is None:
        if not required:
            return None
        norm_module = submodule(module, path, family)
    if isinstance(norm_module, nn.Identity):
        return None
    # Some models keep one small norm per head.
    each = list(getattr(norm_module, "norms", None) or [norm_module])
    eps = getattr(each[0], "variance_epsilon", getattr(each[0], "eps", family.norm_eps or None))
    weight, width = getattr(each[0], "weight", None), _width(each[0])
    if eps is None or (weight is None and not width):
        raise ModelError(
            f"{path} ({type(norm_module).__name__}) is not a norm that can be read: it needs a weight and an ε "
            f"(`eps` or `variance_epsilon`); check the path in the {family.model_type} table."
        )
    # Only a norm without affine part has no weight.
    gain = next(module.parameters()).new_ones(width) if weight is None else _together(each, "weight")
    if family.gain_offset:
        gain = gain.float() + family.gain_offset
    shift = None if getattr(each[0], "bias", None) is None else _together(each, "bias")
    # A swapped norm says which sphere it computes; one that computes none is noted in `Anatomy.swapped`.
    kind: Any = getattr(norm_module, "geometry", "") or family.norm
    return Norm(kind, gain, shift, float(eps))


def _together(norms: list[Any], name: str) -> Tensor:
    tensors = [getattr(norm, name).detach() for norm in norms]
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors)


def head_norm(module: nn.Module, path: str, family: Family, k: int) -> Norm | None:
    """A q- or k-norm: gain and shift [k], or one row for each head where they differ."""
    norm = norm_at(module, path, family, required=False)
    if norm is None or norm.gain.shape[-1] == k:
        return norm
    shift = None if norm.shift is None else norm.shift.reshape(-1, k)
    return replace(norm, gain=norm.gain.reshape(-1, k), shift=shift)


def _width(norm: Any) -> int:
    """Of a norm without weights, from what it says about itself; 0 if it says nothing."""
    shape = getattr(norm, "normalized_shape", None)
    return int(shape[0] if shape else getattr(norm, "width", 0))


def swapped_parts(inner: nn.Module, blocks: Iterable[nn.Module], family: Family) -> dict[str, str]:
    """What a model computes in another way than its family, by what stands in its place: norms, heads.

    A part that has no canonical form at all is refused.
    """
    places = [(inner, path) for path in (family.ln_embed, family.ln_final)]
    swapped: dict[str, str] = {}
    for block in blocks:
        for part in (block, *block.modules()):
            if what := getattr(part, "no_canonical_form", ""):
                raise ModelError(
                    f"this model has {what} in place of its own; they have no canonical form, so undo the swap."
                )
        crossed = family.cross.norm if family.cross else None
        places += [(block, path) for path in (family.ln1, crossed, family.ln2, family.ln1_post, family.ln2_post)]
        if getattr(optional(block, family.attention), "swapped_heads", False):
            swapped["heads"] = repr_of(optional(block, family.attention).heads)
    for module, path in places:
        norm = optional(module, path)
        if getattr(norm, "geometry", "own") == "":
            swapped["norms"] = type(norm).__name__
    return swapped


def repr_of(module: nn.Module) -> str:
    return f"{type(module).__name__}({module.extra_repr()})" if module.extra_repr() else type(module).__name__


def packed(module: nn.Module | None) -> str:
    """What hides the weights of a module: the name of a layer whose weights are not plain numbers, or ''."""
    for layer in module.modules() if module is not None else ():
        weight = getattr(layer, "weight", None)
        plain = weight is None or (isinstance(weight, Tensor) and weight.is_floating_point())
        if not plain and not isinstance(layer, nn.Embedding):
            return f"{type(layer).__module__}.{type(layer).__name__}"
    return ""


def unpacked(block: nn.Module, family: Family) -> Family:
    """The table of a block; parts whose weights are packed are read as parts that are not understood."""
    mixer = optional(block, family.attention)
    if not family.mixer and (what := packed(mixer) or packed(optional(block, family.output))):
        family = replace(family, mixer=f"attention with packed weights ({what})")
    hidden = (optional(block, path) for path in (family.mlp_in or family.gate_up, family.mlp_out, family.mlp_write))
    if family.channels and (what := next((packing for part in hidden if (packing := packed(part))), "")):
        family = replace(family, opaque_channels=f"a feed-forward layer with packed weights ({what})")
    return family


def block_of(module: nn.Module, inner: nn.Module, family: Family, config: Any) -> Block:
    ln1 = norm_at(module, family.ln1, family)
    ln2 = norm_at(module, family.ln2, family) if family.own_ln2 else ln1
    return Block(
        ln1=ln1,
        ln2=ln2 if family.channels else None,
        mixer=Opaque(family.mixer) if family.mixer else _attention(module, inner, family, config),
        channels=_channels(module, family, config),
        ln1_post=norm_at(module, family.ln1_post, family),
        ln2_post=norm_at(module, family.ln2_post, family),
        ln_cross=norm_at(module, family.cross.norm, family) if family.cross else None,
        cross=_attention(module, inner, crossing(family), config) if family.cross else None,
    )


def crossing(family: Family) -> Family:
    """The table of a block's cross attention as if it were its mixer: no distances between two texts are counted."""
    cross = family.cross
    assert cross is not None
    return replace(
        family,
        attention=cross.attention,
        query=cross.query,
        key=cross.key,
        value=cross.value,
        output=cross.output,
        attn_write=cross.attention,
        bias=None,
        fused="",
        cross=None,
    )


def qkv_cuts(family: Family, heads: int, kv_heads: int, k: int) -> tuple[Cut | None, Cut | None, Cut | None]:
    """The columns of q, k and v where one projection gives all three."""
    if not family.fused:
        return None, None, None
    groups = family.runs or (kv_heads if family.layout == "interleaved" else 1)
    q, key = heads * k // groups, kv_heads * k // groups
    first, second = Cut(groups, q, q + key), Cut(groups, q + key, q + 2 * key)
    return (Cut(groups, 0, q), second, first) if family.layout == "q v k" else (Cut(groups, 0, q), first, second)


def gate_cuts(m: int, up_first: bool = False) -> tuple[Cut, Cut]:
    """The columns of the gate and of what it multiplies where one projection gives both."""
    first, second = Cut(1, 0, m), Cut(1, m, 2 * m)
    return (second, first) if up_first else (first, second)


def _weights(block: nn.Module, path: str, family: Family, columns: int, why: str) -> tuple[Tensor, Tensor | None]:
    """A projection as ([in, out], bias), whose width must be `columns`."""
    layer = submodule(block, path, family)
    weight = layer.weight.detach() if family.transposed else layer.weight.detach().T
    if weight.shape[1] != columns:
        raise ModelError(
            f"{path} gives {weight.shape[1]} columns, and {why} need {columns}: check the path and the layout in the "
            f"{family.model_type} table."
        )
    bias = getattr(layer, "bias", None)
    return weight, None if bias is None else bias.detach()


def _heads(weight: Tensor, bias: Tensor | None, cut: Cut | None, k: int) -> tuple[Tensor, Tensor | None]:
    """Columns of [d, n·k] as n heads: [n, d, k] and [n, k], as views where the layout allows."""
    split = Site("", "", "output", cut, k).take
    return split(weight).permute(1, 0, 2), None if bias is None else split(bias)


def _attention(block: nn.Module, inner: nn.Module, family: Family, config: Any) -> Attention:
    module = submodule(block, family.attention, family)
    heads, kv_heads = family.heads(config), family.kv_heads(config)
    k = head_width(module, config)
    try:
        scale = family.scale(module, config)
    except AttributeError:
        scale = 0.0
    if not k or not scale:
        raise ModelError(
            f"{family.attention} ({type(module).__name__}) has no head width ({', '.join(HEAD_WIDTHS)}) or no "
            f"`scaling`; check the path in the {family.model_type} table, and that transformers is version 5."
        )
    why = f"{heads} query heads and {kv_heads} key/value heads of width {k}"
    sides = []
    for path, n, cut in zip(
        (family.query, family.key, family.value),
        (heads, kv_heads, kv_heads),
        qkv_cuts(family, heads, kv_heads, k),
        strict=True,
    ):
        columns = (heads + 2 * kv_heads if family.fused else n) * k
        sides.append(_heads(*_weights(block, family.fused or path, family, columns, why), cut, k))
    (W_Q, b_Q), (W_K, b_K), (W_V, b_V) = sides
    d = W_Q.shape[1]
    out = _weights(block, family.output, family, d, f"writes to a stream of width {d}")
    if len(out[0]) != heads * k:
        raise ModelError(
            f"{family.output} takes {len(out[0])} values, and {why} give {heads * k}: this {family.model_type} model "
            "cannot run; check head width and number of heads in its config."
        )
    W_O, b_O = _scaled(*out, family, block, family.attn_scale)
    return Attention(
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=W_O.reshape(heads, k, d),
        b_Q=b_Q,
        b_K=b_K,
        b_V=b_V,
        b_O=b_O,
        scale=scale,
        softcap=getattr(module, "attn_logit_softcapping", None),
        window=family.window(module, config),
        q_norm=head_norm(block, family.q_norm, family, k),
        k_norm=head_norm(block, family.k_norm, family, k),
        qk_span=family.qk_span,
        rotary=_rotary(block, inner, family, W_Q),
        bias=None if family.bias is None else family.bias(inner, module, config),
        sinks=getattr(module, family.sinks).detach() if family.sinks else None,
    )


def head_width(module: Any, config: Any) -> int:
    """Of an attention module; 0 if neither it nor the config says."""
    widths = (getattr(module, name, None) for name in HEAD_WIDTHS)
    return next((int(width) for width in widths if width is not None), 0)


def _scaled(
    weight: Tensor, bias: Tensor | None, family: Family, block: nn.Module, path: str
) -> tuple[Tensor, Tensor | None]:
    """A write as it is added to the stream; a view of the model's own weight where it is added as it is.

    `path` names what multiplies each coordinate of it (layer scale).
    """
    scale: Any = family.write_scale
    if path and optional(block, path) is not None:
        scale = scale * optional(block, path).detach()
    elif scale == 1:
        return weight, bias
    return weight * scale, None if bias is None else bias * scale


def _rotary(block: nn.Module, inner: nn.Module, family: Family, like: Tensor) -> Rotary | None:
    if not family.rotary:
        return None
    module = submodule(block if family.rotary_in_block else inner, family.rotary, family)
    return Rotary(module, getattr(rotary, family.rotary_reader), family.pairs, like[0, :1, :1], family.rotary_kind)


def _activation(block: nn.Module, family: Family, config: Any) -> tuple[Callable[[Tensor], Tensor], str]:
    """The activation that the config names; the block's own, where it has parameters; or a swapped one, which carries
    its own name."""
    from transformers.activations import ACT2FN

    for module in block.modules():
        if isinstance(name := getattr(module, "activation_name", None), str):
            return module, name
    configured = str(getattr(config, family.activation, family.activation))
    if configured not in ACT2FN:
        known = [name for name, value in config.to_dict().items() if isinstance(value, str) and value in ACT2FN]
        raise ModelError(
            f"the {family.model_type} table names the activation {family.activation!r}, which is neither an attribute "
            f"of the config nor an activation of the library; attributes that name one: {', '.join(known) or 'none'}."
        )
    stock = ACT2FN[configured]
    if isinstance(stock, nn.Module) and any(True for _ in stock.parameters()):
        return next((own for own in block.modules() if type(own) is type(stock)), stock), configured
    return stock, configured


def _channels(block: nn.Module, family: Family, config: Any) -> FeedForward | Routed | Opaque | None:
    if not family.channels:
        return None
    if family.opaque_channels:
        return Opaque(family.opaque_channels)
    if family.experts is not None:
        return routed(block, family, config, _activation(block, family, config))
    return _feed_forward(block, family, config)


def _feed_forward(block: nn.Module, family: Family, config: Any) -> FeedForward:
    out = submodule(block, family.mlp_out, family).weight
    m, d = out.shape if family.transposed else out.shape[::-1]
    written = _weights(block, family.mlp_out, family, d, f"writes to a stream of width {d}")
    W_out, b_out = _scaled(*written, family, block, family.mlp_scale)
    activation, name = _activation(block, family, config)
    why = f"{m} hidden values"
    if not family.gate_up:
        W_in, b_in = _weights(block, family.mlp_in, family, m, why)
        gate = _weights(block, family.mlp_gate, family, m, why) if family.mlp_gate else (None, None)
        return FeedForward(W_in, W_out, b_in, b_out, activation, name, *gate)
    weight, bias = _weights(block, family.gate_up, family, 2 * m, f"a gate and a factor of {why} each")
    gate_cut, up_cut = gate_cuts(m, family.up_first)
    b_gate, b_in = (None, None) if bias is None else (gate_cut.take(bias), up_cut.take(bias))
    W_gate, W_in = gate_cut.take(weight), up_cut.take(weight)
    return FeedForward(W_in, W_out, b_in, b_out, activation, name, W_gate, b_gate)
