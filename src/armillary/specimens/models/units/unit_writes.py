"""Feed-forwards for chapter E: units match one word or any, and writes are simple or as rich as the input."""

from dataclasses import replace
from typing import Any

import torch
import transformers as tr
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy, Norm
from armillary.anatomy.read import read
from armillary.specimens.models.bag import CONTEXT, VOCABULARY
from armillary.specimens.models.draws import generator, normal
from armillary.specimens.models.units.filter_units import WIDTH, WORDS, finders, forward, frame, nexts

Layer = tuple[Tensor, Tensor, Tensor]
"""W_in [d, m], b_in [m] and W_out [m, d]."""


def gained(anatomy: Anatomy, seed: int = 0) -> Anatomy:
    """The same function of the stream behind gains of either sign: a measurement that ignores them fails."""
    model: Any = anatomy.model
    with torch.no_grad():
        for layer, block in enumerate(model.transformer.h):
            gain = 0.5 + torch.rand(WIDTH, generator=generator(3 + layer, seed))
            gain = gain * normal(WIDTH, stream=53 + layer, seed=seed).sign()
            block.ln_2.weight.copy_(gain)
            block.mlp.c_fc.weight.div_(gain[:, None])
    return read(model, "planted")


def misread(anatomy: Anatomy, share: float = 1.0) -> Anatomy:
    """Gains before feed-forwards are read as 1, by a share of the difference: they are not those of the model."""

    def wrong(norm: Norm | None) -> Norm | None:
        return norm and replace(norm, gain=norm.gain + share * (1 - norm.gain))

    return replace(anatomy, blocks=tuple(replace(block, ln2=wrong(block.ln2)) for block in anatomy.blocks))


# Stores.


def detectors(seed: int = 0) -> Anatomy:
    """One unit per word, which alone is on and writes the next word."""
    return gained(forward(frame(seed), *finders(4, -4, seed), nexts(2, seed), "relu", layers=1), seed)


def dense(shared: float = 0.0, seed: int = 0) -> Anatomy:
    """Gaussian words and random units; `shared` is an axis of all words, which one loud unit reads."""
    axis = normalize(normal(WIDTH, stream=8, seed=seed), dim=0)
    words = normal(VOCABULARY, WIDTH, stream=5, seed=seed) + shared * axis
    W_in = normal(WIDTH, 128, stream=6, seed=seed) / WIDTH**0.5
    if shared:
        W_in[:, 0] = axis
    return gained(forward(words, W_in, torch.zeros(128), normal(128, WIDTH, stream=7, seed=seed), layers=1), seed)


def gated(one_each: bool, seed: int = 0) -> Anatomy:
    """A gated feed-forward: one unit per word, or random units."""
    words = frame(seed) if one_each else normal(VOCABULARY, WIDTH, stream=5, seed=seed)
    config = tr.LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=WORDS,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=len(words),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.LlamaForCausalLM(config).eval()
    gain = 0.5 + torch.rand(WIDTH, generator=generator(9, seed))
    if one_each:
        gate = up = frame(seed) / 2 / gain
        down = nexts(2, seed).T
    else:
        gate, up = (normal(WORDS, WIDTH, stream=stream, seed=seed) / WIDTH**0.5 / gain for stream in (6, 4))
        down = normal(WIDTH, WORDS, stream=7, seed=seed)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(words)
        block = model.model.layers[0]
        block.self_attn.o_proj.weight.zero_()
        block.post_attention_layernorm.weight.copy_(gain)
        block.mlp.gate_proj.weight.copy_(gate)
        block.mlp.up_proj.weight.copy_(up)
        block.mlp.down_proj.weight.copy_(down)
    return read(model, "planted")


# Updates.


def writer(*layers: Layer, seed: int = 0) -> Anatomy:
    """Gaussian words, no attention, and a feed-forward per layer."""
    W_in, b_in, _ = layers[0]
    words = normal(VOCABULARY, WIDTH, stream=5, seed=seed)
    anatomy = forward(words, W_in, b_in, None, "relu", len(layers))
    model: Any = anatomy.model
    with torch.no_grad():
        for block, (W_in, b_in, W_out) in zip(model.transformer.h, layers, strict=True):
            block.mlp.c_fc.weight.copy_(W_in)
            block.mlp.c_fc.bias.copy_(b_in)
            block.mlp.c_proj.weight.copy_(W_out)
    return gained(anatomy, seed)


def copying(units: int = 2 * WIDTH) -> Layer:
    """Writes its input, coordinate by coordinate: nothing is simplified."""
    eye = torch.eye(WIDTH)
    return torch.cat((eye, -eye), 1), torch.zeros(units), torch.cat((eye, -eye)) / 10


def summarising(share: float = 1.0, directions: int = 2, units: int = 2 * WIDTH, seed: int = 0) -> Layer:
    """Random units that write along few directions, by a share of W_out; the rest of it writes along all."""
    few = normal(units, directions, stream=6, seed=seed) @ normal(directions, WIDTH, stream=7, seed=seed)
    every = normal(units, WIDTH, stream=11, seed=seed) * directions**0.5
    W_in = normal(WIDTH, units, stream=4, seed=seed) / WIDTH**0.5
    return W_in, torch.zeros(units), (share * few + (1 - share) * every) / 100


def silencing(always_on: int = 2, units: int = 2 * WIDTH, seed: int = 0) -> Layer:
    """A few units are always on; the others are below zero, and would write along all directions."""
    b_in = torch.full((units,), -8.0)
    b_in[:always_on] = 8.0
    W_in = normal(WIDTH, units, stream=4, seed=seed) / WIDTH**0.5
    return W_in, b_in, normal(units, WIDTH, stream=7, seed=seed) / 100


def two_units(seed: int = 0) -> Layer:
    """Trained or not, an update has two directions."""
    W_in = normal(WIDTH, 2, stream=4, seed=seed) / 8
    return W_in, torch.zeros(2), normal(2, WIDTH, stream=7, seed=seed) / 100
