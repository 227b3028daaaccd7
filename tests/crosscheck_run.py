"""What passes through a Hugging Face model, as NumPy arrays in float64 and with nothing of Armillary?

`crosscheck.py` derives statistics from a `Run`, to compare them with those of a survey.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Array = NDArray[np.float64]
KEYS = 8


def directions(x: Array, eps: float, centred: bool) -> Array:
    """z: what a norm computes before gain and shift."""
    x = x - x.mean(-1, keepdims=True) if centred else x
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)


def rotated(x: Array, share: float) -> Array:
    """RoPE on a share of the coordinates [h, t, k]: each of the first half turns with its partner in the second."""
    half = int(x.shape[-1] * share) // 2
    turn = np.arange(x.shape[1])[:, None] * 10_000.0 ** (-np.arange(half) / max(half, 1))
    a, b = x[..., :half], x[..., half : 2 * half]
    turned = (a * np.cos(turn) - b * np.sin(turn), b * np.cos(turn) + a * np.sin(turn))
    return np.concatenate([*turned, x[..., 2 * half :]], axis=-1)


@dataclass(frozen=True)
class Trace:
    """What went into and came out of every module for one document, by the module's path."""

    ids: np.ndarray
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    patterns: tuple[Array, ...]


def _heads(y: Array, heads: int) -> Array:
    return y.reshape(len(y), heads, -1).swapaxes(0, 1)


def _gpt2_queries(trace: Trace, path: str, heads: int, groups: int) -> tuple[Array, Array]:
    q, k, _ = np.split(trace.outputs[f"{path}.c_attn"], 3, axis=-1)
    return _heads(q, heads), _heads(k, heads)


def _neox_queries(trace: Trace, path: str, heads: int, groups: int) -> tuple[Array, Array]:
    """Every head has its q, k and v side by side."""
    q, k, _ = np.split(_heads(trace.outputs[f"{path}.query_key_value"], heads), 3, axis=-1)
    return q, k


def _separate_queries(query: str, key: str) -> Callable[[Trace, str, int, int], tuple[Array, Array]]:
    def queries(trace: Trace, path: str, heads: int, groups: int) -> tuple[Array, Array]:
        q, k = _heads(trace.outputs[f"{path}.{query}"], heads), _heads(trace.outputs[f"{path}.{key}"], groups)
        return q, np.repeat(k, heads // groups, axis=0)

    return queries


@dataclass(frozen=True)
class Family:
    """Where one architecture has its parts: paths of modules, those in a block relative to it."""

    block: str
    norms: tuple[str, str]
    before: str
    final: str
    pre: str
    out: str
    attention: str
    queries: Callable[[Trace, str, int, int], tuple[Array, Array]]
    eps: str
    centred: bool = True
    causal: bool = True
    parallel: bool = False
    rotary: float = 0.0


FAMILIES = {
    "gpt2": Family(
        "transformer.h.{}", ("ln_1", "ln_2"), "", "transformer.ln_f", "mlp.c_fc", "mlp.c_proj", "attn", _gpt2_queries,
        "layer_norm_epsilon",
    ),
    "llama": Family(
        "model.layers.{}", ("input_layernorm", "post_attention_layernorm"), "", "model.norm", "mlp.gate_proj",
        "mlp.down_proj", "self_attn", _separate_queries("q_proj", "k_proj"), "rms_norm_eps", centred=False, rotary=1.0,
    ),
    "gpt_neox": Family(
        "gpt_neox.layers.{}", ("input_layernorm", "post_attention_layernorm"), "", "gpt_neox.final_layer_norm",
        "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "attention", _neox_queries, "layer_norm_eps", parallel=True,
        rotary=0.25,
    ),
    "bert": Family(
        "bert.encoder.layer.{}", ("attention.output.LayerNorm", "output.LayerNorm"), "bert.embeddings.LayerNorm", "",
        "intermediate.dense", "output.dense", "attention.self", _separate_queries("query", "key"), "layer_norm_eps",
        causal=False,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Documents that a model has read, and what of its weights and settings statistics need."""

    family: Family
    traces: tuple[Trace, ...]
    weights: dict[str, Array]
    unembedding: Array
    layers: int
    heads: int
    groups: int
    eps: float
    read: Callable[[Sequence[Sequence[int]]], tuple[Trace, ...]]
    """Reads other documents with the same model."""

    def path(self, layer: int, part: str) -> str:
        return f"{self.family.block.format(layer)}.{part}"

    @property
    def sites(self) -> list[str]:
        """Norms in the order of the pass."""
        blocks = [self.path(layer, norm) for layer in range(self.layers) for norm in self.family.norms]
        return [site for site in (self.family.before, *blocks, self.family.final) if site]

    def directions(self, x: Array) -> Array:
        return directions(x, self.eps, self.family.centred)

    def affine(self, site: str) -> tuple[Array, Array]:
        """Gain and shift of a norm."""
        gain = self.weights[f"{site}.weight"]
        return gain, self.weights.get(f"{site}.bias", np.zeros_like(gain))

    def states(self, trace: Trace) -> list[Array]:
        """What norms receive; in a post-norm model, what they return."""
        if not self.family.final:
            return [trace.outputs[site] for site in self.sites]
        # Both norms of a parallel block receive the same state.
        repeats = self.family.norms[1] if self.family.parallel else "none"
        return [trace.inputs[site] for site in self.sites if not site.endswith(repeats)]

    def final(self, x: Array) -> Array:
        """A state through the final norm; a post-norm model has none."""
        if not self.family.final:
            return x
        gain, shift = self.affine(self.family.final)
        return self.directions(x) * gain + shift

    def stream(self, trace: Trace) -> Array:
        """The stream before the first block and after each [state, t, d]."""
        blocks = [self.family.block.format(layer) for layer in range(self.layers)]
        return np.stack([trace.inputs[blocks[0]], *(trace.outputs[block] for block in blocks)])

    def heads_input(self, trace: Trace, layer: int) -> Array:
        """z of the norm whose output the layer's heads read."""
        site = self.path(layer, self.family.norms[0])
        if not self.family.final:
            site = self.path(layer - 1, self.family.norms[1]) if layer else self.family.before
        return self.directions(trace.inputs[site])

    def scores(self, trace: Trace, layer: int) -> tuple[Array, Array, Array]:
        """q and k as the model multiplies them [h, t, k], and their scores [h, query, key]."""
        sides = self.family.queries(trace, self.path(layer, self.family.attention), self.heads, self.groups)
        q, k = (rotated(side, self.family.rotary) for side in sides)
        return q, k, np.einsum("hik,hjk->hij", q, k) / np.sqrt(q.shape[-1])

    def queries(self, trace: Trace) -> Iterator[tuple[int, np.ndarray]]:
        """Queries with at least eight tokens before them, and the keys that each sees.

        A choice: a bidirectional model's first eight tokens see enough keys, but are left out as well.
        """
        for query in range(KEYS, len(trace.ids)):
            yield query, np.arange(query + 1 if self.family.causal else len(trace.ids))


def record(name: str, model: nn.Module, documents: Sequence[Sequence[int]]) -> Run:
    """Read every document alone, without padding, with the weights in float64."""
    exact: Any = copy.deepcopy(model).double().eval()
    exact.set_attn_implementation("eager")
    config, family = exact.config, FAMILIES[name]

    def read(documents: Sequence[Sequence[int]]) -> tuple[Trace, ...]:
        traces = {ids: _trace(exact, ids) for ids in dict.fromkeys(map(tuple, documents))}
        return tuple(traces[tuple(ids)] for ids in documents)

    return Run(
        family,
        read(documents),
        {key: value.numpy() for key, value in exact.state_dict().items()},
        exact.get_output_embeddings().weight.detach().numpy(),
        config.num_hidden_layers,
        config.num_attention_heads,
        getattr(config, "num_key_value_heads", config.num_attention_heads),
        getattr(config, family.eps),
        read,
    )


def _trace(model: nn.Module, ids: Sequence[int]) -> Trace:
    inputs: dict[str, Array] = {}
    outputs: dict[str, Array] = {}

    def watch(path: str) -> Callable[[Any, Any, Any], None]:
        def keep(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            output = output[0] if isinstance(output, tuple) else output
            for value, states in ((given[0] if given else None, inputs), (output, outputs)):
                if torch.is_tensor(value) and value.ndim == 3:
                    states[path] = value[0].numpy().astype(np.float64)

        return keep

    handles = [module.register_forward_hook(watch(path)) for path, module in model.named_modules()]
    with torch.no_grad():
        result = model(torch.tensor([list(ids)]), output_attentions=True)
    for handle in handles:
        handle.remove()
    return Trace(np.array(ids), inputs, outputs, tuple(p[0].numpy().astype(np.float64) for p in result.attentions))
