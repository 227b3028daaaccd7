"""Models whose stability is known in closed form."""

import math

import torch
import transformers as tr
from planted import CONTEXT, D, bag, generator
from tiny import tiny
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus, Window


def leaky(size: float) -> Anatomy:
    """A GPT-2 whose second block adds a little of the mean over all tokens, later ones included."""
    anatomy = read(tiny("gpt2"), "leaky")
    anatomy.model.transformer.h[1].register_forward_hook(lambda module, args, x: x + size * x.mean(1, keepdim=True))
    return anatomy


def averaging(strength: float = 1.0) -> Anatomy:
    """Every layer adds the mean of all directions so far: uniform attention."""
    anatomy = bag(torch.randn(97, D, generator=generator(3)))
    with torch.no_grad():
        for block in anatomy.model.transformer.h:
            block.attn.c_attn.weight.zero_()
            block.attn.c_attn.bias.zero_()
            block.attn.c_attn.weight[:, 2 * D :] = torch.eye(D)
            block.attn.c_proj.weight.copy_(strength * torch.eye(D))
    return read(anatomy.model, "averaging")


def long_first() -> Anatomy:
    """The same, but a token at the first position is a thousand times as long as others."""
    anatomy = averaging()
    with torch.no_grad():
        anatomy.model.transformer.wpe.weight[0] = 1000 * torch.randn(D, generator=generator(14))
    return read(anatomy.model, "long first")


def short_sighted() -> Anatomy:
    """Three layers that each see one token back, with rotary positions: beyond three tokens nothing is remembered."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        settings = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
        config = tr.MistralConfig(
            **settings, num_key_value_heads=2, intermediate_size=48, max_position_embeddings=CONTEXT, sliding_window=2
        )
        return read(tr.MistralForCausalLM(config).eval(), "short-sighted")


def stretching(factor: float, layers: int = 2) -> Anatomy:
    """Every block multiplies what is orthogonal to the stream by a factor, and leaves the stream as it is.

    All tokens lie on one line u with variance 1; each block adds (factor − 1) times the part of z orthogonal to u.
    """
    u = torch.randn(D, generator=generator(4))
    u = torch.nn.functional.normalize(u - u.mean(), dim=0)
    sign = torch.where(torch.rand(97, 1, generator=generator(5)) < 0.5, -1.0, 1.0)
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


def squaring(layers: int = 8, attention: float = 1.0) -> Anatomy:
    """Feed-forward layers that multiply z by z: bounded on a sphere; off it every block squares the length.

    With strong `attention` a lost context changes the lengths of states, which only live norms undo.
    """
    with torch.random.fork_rng():
        torch.manual_seed(2)
        settings = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
        config = tr.LlamaConfig(
            **settings, num_hidden_layers=layers, max_position_embeddings=CONTEXT, hidden_act="linear"
        )
        model = tr.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight *= 50 * torch.exp(torch.randn(97, 1, generator=generator(6)))
        for layer in model.model.layers:
            for projection in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj):
                projection.weight *= 20
            for projection in (layer.self_attn.v_proj, layer.self_attn.o_proj):
                projection.weight *= attention
    return read(model, "squaring")


def reading(embedding: Tensor, unembedding: Tensor, positions: Tensor | None = None) -> Anatomy:
    """A bag with an unembedding [v, d] of its own."""
    anatomy = bag(embedding, positions)
    anatomy.model.lm_head = torch.nn.Linear(*reversed(unembedding.shape), bias=False)
    with torch.no_grad():
        anatomy.model.lm_head.weight.copy_(unembedding)
    return read(anatomy.model.eval(), "reading")


WORDS, RARE = 24, 8


def _documents(ids: Tensor) -> Corpus:
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", len(windows), ids.numel(), ())


def _circle(words: int) -> Tensor:
    """Words on a closed curve in six of the D axes."""
    angle = 2 * math.pi * torch.arange(words) / words
    curve = torch.stack([f(k * angle) for k in (1, 2, 3) for f in (torch.cos, torch.sin)], 1)
    return torch.cat((curve, torch.zeros(words, D - 6)), 1)


def pushed_off(pushed: bool = True) -> tuple[Anatomy, Corpus]:
    """Text that goes round the circle, and a model that predicts it; at 15 positions a state is pushed off, and errs.

    Not pushed, the model errs for another reason: the text itself jumps, and no state is off the manifold.
    """
    ids = (torch.randint(0, WORDS, (40, 1), generator=generator(7)) + torch.arange(60)) % WORDS
    positions = torch.zeros(CONTEXT, D)
    places = torch.randperm(58, generator=generator(8))[:15] + 1
    if pushed:
        positions[places, 8:] = 20 * torch.nn.functional.normalize(
            torch.randn(15, D - 8, generator=generator(9)), dim=1
        )
    else:
        for row, start in zip(ids, torch.randint(1, WORDS, (40,), generator=generator(12)).tolist(), strict=True):
            jumps = torch.zeros(60, dtype=torch.long)
            jumps[torch.randperm(58, generator=generator(start))[:15] + 2] = 5 + start % 9
            row += jumps.cumsum(0)
            row %= WORDS
    embedding = _circle(WORDS)
    # A thin curve has no volume around it: a little noise gives it some.
    noise = 0.1 * torch.randn(WORDS, D, generator=generator(10))
    return reading(embedding + noise, 1.5 * embedding.roll(1, 0), positions), _documents(ids)


def rare_words() -> tuple[Anatomy, Corpus]:
    """Rare words lie far from frequent ones, and what follows them is random: frequency explains every error."""
    draw = generator(11)
    common = WORDS - RARE
    ids = torch.zeros(40, 60, dtype=torch.long)
    ids[:, 0] = torch.randint(0, common, (40,), generator=draw)
    for t in range(1, 60):
        before = ids[:, t - 1]
        rare, lost = (
            torch.randint(common, WORDS, (40,), generator=draw),
            torch.randint(0, common, (40,), generator=draw),
        )
        new = torch.where(torch.rand(40, generator=draw) < 0.12, rare, (before + 1) % common)
        ids[:, t] = torch.where(before >= common, lost, new)
    embedding = torch.cat((_circle(common), torch.zeros(RARE, D)))
    embedding[common:, 8 : 8 + RARE] = 3 * torch.eye(RARE)
    unembedding = torch.cat((1.5 * _circle(common).roll(1, 0), torch.zeros(RARE, D)))
    return reading(embedding, unembedding), _documents(ids)
