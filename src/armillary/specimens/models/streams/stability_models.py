"""Models for chapter D that leak, drift, stretch or leave the manifold by known amounts."""

import math
from typing import Any

import torch
import transformers as tr
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.specimens.models.bag import CONTEXT, D, bag, gaussian
from armillary.specimens.models.draws import generator, normal, seeded
from armillary.specimens.models.perturbed import gpt2, perturbed
from armillary.specimens.models.texts import documents_of


def still_bag(seed: int = 0) -> Anatomy:
    """Neither attention nor positions: a state depends on its word alone."""
    return bag(gaussian(seed=seed))


def table_bag(seed: int = 0) -> Anatomy:
    """No attention, but positions: only the position table moves a state."""
    return bag(gaussian(seed=seed), 0.5 * normal(CONTEXT, D, stream=2, seed=seed))


def leaky(size: float, seed: int = 0) -> Anatomy:
    """A GPT-2 whose second block adds a little of the mean over all tokens, later ones included."""
    anatomy = read(perturbed(gpt2, seed), "leaky")
    model: Any = anatomy.model
    model.transformer.h[1].register_forward_hook(lambda module, args, x: x + size * x.mean(1, keepdim=True))
    return anatomy


def averaging(size: float = 1.0, seed: int = 0) -> Anatomy:
    """Every layer adds the mean of all directions so far: uniform attention."""
    model: Any = bag(normal(97, D, stream=3, seed=seed)).model
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight.zero_()
            block.attn.c_attn.bias.zero_()
            block.attn.c_attn.weight[:, 2 * D :] = torch.eye(D)
            block.attn.c_proj.weight.copy_(size * torch.eye(D))
    return read(model, "averaging")


def long_first(seed: int = 0) -> Anatomy:
    """The same, but a token at the first position is a thousand times as long as others."""
    model: Any = averaging(seed=seed).model
    with torch.no_grad():
        model.transformer.wpe.weight[0] = 1000 * normal(D, stream=14, seed=seed)
    return read(model, "long first")


def short_sighted(seed: int = 0) -> Anatomy:
    """Three layers that each see one token back, with rotary positions: beyond three tokens nothing is remembered."""
    with seeded(1, seed):
        settings = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
        config = tr.MistralConfig(
            **settings, num_key_value_heads=2, intermediate_size=48, max_position_embeddings=CONTEXT, sliding_window=2
        )
        return read(tr.MistralForCausalLM(config).eval(), "short-sighted")


def stretching(factor: float, layers: int = 2, seed: int = 0) -> Anatomy:
    """Every block multiplies what is orthogonal to the stream by a factor, and leaves the stream as it is.

    All tokens lie on one line u with variance 1; each block adds (factor − 1) times the part of z orthogonal to u.
    """
    u = normal(D, stream=4, seed=seed)
    u = normalize(u - u.mean(), dim=0)
    sign = torch.where(torch.rand(97, 1, generator=generator(5, seed)) < 0.5, -1.0, 1.0)
    config = tr.GPT2Config(
        n_embd=D,
        n_layer=layers,
        n_head=2,
        n_inner=D,
        vocab_size=97,
        n_positions=CONTEXT,
        activation_function="linear",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    across = torch.eye(D) - torch.outer(u, u)
    with torch.no_grad():
        model.transformer.wpe.weight.zero_()
        model.transformer.wte.weight.copy_(sign * u * math.sqrt(D))
        for block in model.transformer.h:
            for layer in (block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj):
                layer.weight.zero_()
                layer.bias.zero_()
            block.mlp.c_fc.weight.copy_(torch.eye(D))
            block.mlp.c_proj.weight.copy_((factor - 1) * across)
    return read(model, "stretching")


def squaring(layers: int = 8, attention: float = 1.0, seed: int = 0) -> Anatomy:
    """Feed-forward layers that multiply z by z: bounded on a sphere; off it every block squares the length.

    With strong `attention` a lost context changes the lengths of states, which only live norms undo.
    """
    with seeded(2, seed):
        settings = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
        config = tr.LlamaConfig(
            **settings, num_hidden_layers=layers, max_position_embeddings=CONTEXT, hidden_act="linear"
        )
        model = tr.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight *= 50 * torch.exp(normal(97, 1, stream=6, seed=seed))
        for layer in model.model.layers:
            for projection in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj):
                projection.weight *= 20
            for projection in (layer.self_attn.v_proj, layer.self_attn.o_proj):
                projection.weight *= attention
    return read(model, "squaring")


WORDS, RARE = 24, 8


def _circle(words: int) -> Tensor:
    """Words on a closed curve in six of the D axes."""
    angle = 2 * math.pi * torch.arange(words) / words
    curve = torch.stack([f(k * angle) for k in (1, 2, 3) for f in (torch.cos, torch.sin)], 1)
    return torch.cat((curve, torch.zeros(words, D - 6)), 1)


def pushed_off(size: float = 20.0, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Text that goes round the circle, and a model that predicts it; at 15 positions a state is pushed off, and errs.

    With a push of size 0, the model errs for another reason: the text itself jumps, and no state is off the manifold.
    """
    ids = (torch.randint(0, WORDS, (40, 1), generator=generator(7, seed)) + torch.arange(60)) % WORDS
    positions = torch.zeros(CONTEXT, D)
    places = torch.randperm(58, generator=generator(8, seed))[:15] + 1
    if size:
        positions[places, 8:] = size * normalize(normal(15, D - 8, stream=9, seed=seed), dim=1)
    else:
        for row, start in zip(ids, torch.randint(1, WORDS, (40,), generator=generator(12, seed)).tolist(), strict=True):
            jumps = torch.zeros(60, dtype=torch.long)
            jumps[torch.randperm(58, generator=generator(start, seed))[:15] + 2] = 5 + start % 9
            row += jumps.cumsum(0)
            row %= WORDS
    embedding = _circle(WORDS)
    # A thin curve has no volume around it: a little noise gives it some.
    noise = 0.1 * normal(WORDS, D, stream=10, seed=seed)
    return bag(embedding + noise, positions, unembedding=1.5 * embedding.roll(1, 0)), documents_of(ids)


def rare_words(seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Rare words lie far from frequent ones, and what follows them is random: frequency explains every error."""
    # As many documents as the claim reads: of 40 the scores may add more than the margin, for all that they show.
    draw, count = generator(11, seed), 64
    common = WORDS - RARE
    ids = torch.zeros(count, 60, dtype=torch.long)
    ids[:, 0] = torch.randint(0, common, (count,), generator=draw)
    for t in range(1, 60):
        before = ids[:, t - 1]
        rare, lost = (
            torch.randint(common, WORDS, (count,), generator=draw),
            torch.randint(0, common, (count,), generator=draw),
        )
        new = torch.where(torch.rand(count, generator=draw) < 0.12, rare, (before + 1) % common)
        ids[:, t] = torch.where(before >= common, lost, new)
    embedding = torch.cat((_circle(common), torch.zeros(RARE, D)))
    embedding[common:, 8 : 8 + RARE] = 3 * torch.eye(RARE)
    unembedding = torch.cat((1.5 * _circle(common).roll(1, 0), torch.zeros(RARE, D)))
    return bag(embedding, unembedding=unembedding), documents_of(ids)
