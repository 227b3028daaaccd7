"""Read the weights of one Hugging Face block into canonical form, where its family's table says they are.

Views of the live parameters wherever the layout allows; no forward pass is computed here.
"""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from armillary.anatomy.anatomy import Attention, Block, FeedForward
from armillary.anatomy.families import Family
from armillary.anatomy.norm import Norm
from armillary.anatomy.sites import Cut, Site
from armillary.errors import ModelError

HEAD_WIDTHS = ("head_dim", "head_size", "attention_head_size")


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
    found: Any = module
    for part in path.split(".") if path else ():
        found = getattr(found, part, None)
    return found if path else None


def norm_at(module: nn.Module, path: str | None, family: Family, required: bool = True) -> Norm | None:
    """The norm at `path`; None without a path, or where a norm that is not `required` is missing."""
    if not path:
        return None
    found = optional(module, path)
    if found is None:
        if not required:
            return None
        found = submodule(module, path, family)
    eps = getattr(found, "variance_epsilon", getattr(found, "eps", None))
    weight, width = getattr(found, "weight", None), _width(found)
    if eps is None or (weight is None and not width):
        raise ModelError(
            f"{path} ({type(found).__name__}) is not a norm that can be read: it needs a weight and an ε (`eps` or "
            f"`variance_epsilon`); check the path in the {family.model_type} table."
        )
    # Only a norm without affine part has no weight.
    gain = next(module.parameters()).new_ones(width) if weight is None else weight.detach()
    if family.gain_offset:
        gain = gain.float() + family.gain_offset
    shift = getattr(found, "bias", None)
    # A swapped norm says which sphere it computes; one that computes none is noted in `Anatomy.swapped`.
    kind: Any = getattr(found, "geometry", "") or family.norm
    return Norm(kind, gain, None if shift is None else shift.detach(), float(eps))


def _width(norm: Any) -> int:
    """Of a norm without weights, from what it says about itself; 0 if it says nothing."""
    shape = getattr(norm, "normalized_shape", None)
    return int(shape[0] if shape else getattr(norm, "width", 0))


def swapped_parts(inner: nn.Module, blocks: Iterable[nn.Module], family: Family) -> dict[str, str]:
    """What a model computes in another way than its family, by what stands in its place: norms, heads.

    A part that has no canonical form at all is refused.
    """
    places = [(inner, path) for path in (family.ln_embed, family.ln_final)]
    found: dict[str, str] = {}
    for block in blocks:
        for part in (block, *block.modules()):
            if what := getattr(part, "no_canonical_form", ""):
                raise ModelError(
                    f"this model has {what} in place of its own; they have no canonical form, so undo the swap."
                )
        places += [(block, path) for path in (family.ln1, family.ln2, family.ln1_post, family.ln2_post)]
        if getattr(optional(block, family.attention), "swapped_heads", False):
            found["heads"] = repr_of(optional(block, family.attention).heads)
    for module, path in places:
        norm = optional(module, path)
        if getattr(norm, "geometry", "own") == "":
            found["norms"] = type(norm).__name__
    return found


def repr_of(module: nn.Module) -> str:
    return f"{type(module).__name__}({module.extra_repr()})" if module.extra_repr() else type(module).__name__


def block_of(module: nn.Module, family: Family, config: Any) -> Block:
    ln1 = norm_at(module, family.ln1, family)
    ln2 = norm_at(module, family.ln2, family) if family.own_ln2 else ln1
    if ln1 is None or ln2 is None:
        raise ModelError(f"the {family.model_type} table gives no path for ln1: every block needs one.")
    return Block(
        ln1=ln1,
        ln2=ln2,
        attention=_attention(module, family, config),
        feed_forward=_feed_forward(module, family, config),
        ln1_post=norm_at(module, family.ln1_post, family),
        ln2_post=norm_at(module, family.ln2_post, family),
    )


def qkv_cuts(family: Family, heads: int, kv_heads: int, k: int) -> tuple[Cut | None, Cut | None, Cut | None]:
    """The columns of q, k and v where one projection gives all three."""
    if not family.fused:
        return None, None, None
    groups = 1 if family.layout == "concatenated" else kv_heads
    q, key = heads * k // groups, kv_heads * k // groups
    return Cut(groups, 0, q), Cut(groups, q, q + key), Cut(groups, q + key, q + 2 * key)


def gate_cuts(m: int) -> tuple[Cut, Cut]:
    """The columns of the gate and of what it multiplies where one projection gives both."""
    return Cut(1, 0, m), Cut(1, m, 2 * m)


def _weights(block: nn.Module, path: str, family: Family, columns: int, why: str) -> tuple[Tensor, Tensor | None]:
    """A projection as ([in, out], bias), whose width must be `columns`."""
    layer = submodule(block, path, family)
    weight = layer.weight.detach() if family.transposed else layer.weight.detach().T
    if weight.shape[1] != columns:
        raise ModelError(
            f"{path} gives {weight.shape[1]} columns, and {why} need {columns}: check the path and the layout in the "
            f"{family.model_type} table."
        )
    return weight, None if layer.bias is None else layer.bias.detach()


def _heads(weight: Tensor, bias: Tensor | None, cut: Cut | None, k: int) -> tuple[Tensor, Tensor | None]:
    """Columns of [d, n·k] as n heads: [n, d, k] and [n, k], as views where the layout allows."""
    split = Site("", "", "output", cut, k).take
    return split(weight).permute(1, 0, 2), None if bias is None else split(bias)


def _attention(block: nn.Module, family: Family, config: Any) -> Attention:
    module = submodule(block, family.attention, family)
    k = next((int(width) for name in HEAD_WIDTHS if (width := getattr(module, name, None)) is not None), 0)
    if not k or not hasattr(module, "scaling"):
        raise ModelError(
            f"{family.attention} ({type(module).__name__}) has no head width ({', '.join(HEAD_WIDTHS)}) or no "
            f"`scaling`; check the path in the {family.model_type} table, and that transformers is version 5."
        )
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
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
    W_O, b_O = _weights(block, family.output, family, d, f"writes to a stream of width {d}")
    return Attention(
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=W_O.reshape(heads, k, d),
        b_Q=b_Q,
        b_K=b_K,
        b_V=b_V,
        b_O=b_O,
        scale=float(module.scaling),
        softcap=getattr(module, "attn_logit_softcapping", None),
        window=family.window(module, config),
        q_norm=norm_at(block, family.q_norm, family, required=False),
        k_norm=norm_at(block, family.k_norm, family, required=False),
    )


def _activation(block: nn.Module, configured: str) -> tuple[Callable[[Tensor], Tensor], str]:
    """The activation that the config names, or a swapped one, which carries its own name."""
    from transformers.activations import ACT2FN

    for module in block.modules():
        if isinstance(name := getattr(module, "activation_name", None), str):
            return module, name
    return ACT2FN[configured], configured


def _feed_forward(block: nn.Module, family: Family, config: Any) -> FeedForward:
    out = submodule(block, family.mlp_out, family).weight
    m, d = out.shape if family.transposed else out.shape[::-1]
    W_out, b_out = _weights(block, family.mlp_out, family, d, f"writes to a stream of width {d}")
    activation, name = _activation(block, getattr(config, family.activation))
    why = f"{m} hidden values"
    if not family.gate_up:
        W_in, b_in = _weights(block, family.mlp_in, family, m, why)
        gate = _weights(block, family.mlp_gate, family, m, why) if family.mlp_gate else (None, None)
        return FeedForward(W_in, W_out, b_in, b_out, activation, name, *gate)
    weight, bias = _weights(block, family.gate_up, family, 2 * m, f"a gate and a factor of {why} each")
    gate_cut, up_cut = gate_cuts(m)
    b_gate, b_in = (None, None) if bias is None else (gate_cut.take(bias), up_cut.take(bias))
    W_gate, W_in = gate_cut.take(weight), up_cut.take(weight)
    return FeedForward(W_in, W_out, b_in, b_out, activation, name, W_gate, b_gate)
