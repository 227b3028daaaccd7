"""Models with one thing wrong, made from a healthy GPT-2."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch

LAYER, UNIT, TWIN, HEAD = 2, 17, 40, 1


def _dead_unit(model: Any) -> None:
    block = model.transformer.h[LAYER].mlp
    block.c_fc.weight[:, UNIT] = 0
    block.c_fc.bias[UNIT] = -20


def _double_unit(model: Any) -> None:
    block = model.transformer.h[LAYER].mlp
    block.c_fc.weight[:, TWIN] = block.c_fc.weight[:, UNIT]
    block.c_fc.bias[TWIN] = block.c_fc.bias[UNIT]
    block.c_proj.weight[TWIN] = block.c_proj.weight[UNIT]


def _mute_units(model: Any) -> None:
    model.transformer.h[LAYER].mlp.c_proj.weight[:UNIT] = 0


def _silent_head(model: Any) -> None:
    k = model.config.n_embd // model.config.n_head
    model.transformer.h[LAYER].attn.c_proj.weight[HEAD * k : (HEAD + 1) * k] = 0


def _uniform_heads(model: Any) -> None:
    d = model.config.n_embd
    for block in model.transformer.h:
        block.attn.c_attn.weight[:, : 2 * d] = 0
        block.attn.c_attn.bias[: 2 * d] = 0


def _uniform_head(model: Any) -> None:
    k = model.config.n_embd // model.config.n_head
    queries = model.transformer.h[LAYER].attn.c_attn
    queries.weight[:, HEAD * k : (HEAD + 1) * k] = 0
    queries.bias[HEAD * k : (HEAD + 1) * k] = 0


def _sharp_head(model: Any) -> None:
    k = model.config.n_embd // model.config.n_head
    model.transformer.h[LAYER].attn.c_attn.weight[:, HEAD * k : (HEAD + 1) * k] *= 1000


def _large_weight(model: Any) -> None:
    model.transformer.h[LAYER].mlp.c_proj.weight[UNIT, 3] = 2e4


def _unusual_weight(model: Any) -> None:
    model.transformer.h[LAYER].mlp.c_proj.weight[UNIT, 3] = 50


def _infinite_in_half(model: Any) -> None:
    model.transformer.h[LAYER].mlp.c_proj.weight[UNIT, 3] = 2e5


def _broken_weight(model: Any) -> None:
    model.transformer.h[LAYER].mlp.c_proj.weight[UNIT, 3] = float("nan")


def _double_embeddings(model: Any) -> None:
    half = model.config.vocab_size // 2
    model.transformer.wte.weight[half : 2 * half] = model.transformer.wte.weight[:half]


def _collapse(model: Any) -> None:
    """Everything that is embedded or written lies along one direction."""
    axis = torch.linspace(-1, 1, model.config.n_embd)
    axis = axis / axis.norm()
    for weight in (model.transformer.wte.weight, model.transformer.wpe.weight):
        weight.copy_(torch.outer(weight @ axis, axis))
    for block in model.transformer.h:
        for projection in (block.attn.c_proj, block.mlp.c_proj):
            projection.weight.copy_(torch.outer(projection.weight @ axis, axis))
            projection.bias.zero_()


def _blind_axes(model: Any) -> None:
    gain = model.transformer.h[LAYER].ln_2.weight
    gain[: len(gain) // 4] = 0


def _blind_norm(model: Any) -> None:
    model.transformer.h[LAYER].ln_1.weight.zero_()


INJURIES: Mapping[str, Callable[[Any], None]] = {
    "a dead unit": _dead_unit,
    "a duplicated unit": _double_unit,
    "units that write nothing": _mute_units,
    "a silent head": _silent_head,
    "uniform heads": _uniform_heads,
    "a uniform head": _uniform_head,
    "a head on one token": _sharp_head,
    "a large weight": _large_weight,
    "an unusual weight": _unusual_weight,
    "a weight beyond float16": _infinite_in_half,
    "a weight that is NaN": _broken_weight,
    "duplicate embeddings": _double_embeddings,
    "rank collapse": _collapse,
    "axes that a norm hides": _blind_axes,
    "a norm that hides all axes": _blind_norm,
}


def injured(model: Any, what: str) -> Any:
    """A copy of a live GPT-2 with one injury."""
    copy = deepcopy(model)
    with torch.no_grad():
        INJURIES[what](copy)
    return copy
