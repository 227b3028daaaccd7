"""Models for the second reading of the sphere, positions and axes: words, places, sublayers and norms are given."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.probes.sphere.symmetry.rotations import rotation
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import generator, normal, number
from armillary.specimens.models.texts import corpus, documents_of, written

D, HEADS, K, LAYERS, WORDS, CONTEXT = 32, 4, 8, 2, 60, 64


def assembled(
    words: Tensor,
    places: Tensor | None = None,
    layers: int = LAYERS,
    heads: int = HEADS,
    attention: Callable[[int], tuple[Tensor, Tensor, Tensor, Tensor]] | None = None,
    feed_forward: Callable[[int], tuple[Tensor, Tensor]] | None = None,
    gains: Callable[[int], Tensor] | None = None,
    seed: int = 0,
) -> Anatomy:
    """A GPT-2 that writes nothing, unless `attention` gives W_Q, W_K, W_V, W_O and `feed_forward` W_in, W_out of a
    layer; `gains` gives the γ of both norms of a layer."""
    d = words.shape[1]
    model = blank_gpt2(len(words), d, layers, heads, CONTEXT, tie_word_embeddings=False)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(words)
        model.transformer.wpe.weight.copy_(torch.zeros(CONTEXT, d) if places is None else places)
        model.lm_head.weight.copy_(0.4 * normal(len(words), d, stream=2, seed=seed))
        for layer, block in enumerate(model.transformer.h):
            for projection in (block.attn.c_proj, block.mlp.c_proj):
                projection.weight.zero_()
                projection.bias.zero_()
            if attention is not None:
                *sides, out = attention(layer)
                block.attn.c_attn.weight.copy_(torch.cat(sides, 1))
                block.attn.c_proj.weight.copy_(out)
            if feed_forward is not None:
                inner, out = feed_forward(layer)
                block.mlp.c_fc.weight.copy_(inner)
                block.mlp.c_proj.weight.copy_(out)
            if gains is not None:
                for norm in (block.ln_1, block.ln_2):
                    norm.weight.copy_(gains(layer))
    return read(model, "planted")


# The cycle.

WIDE = 64
"""Twice as wide as other models here: a write along one axis is far from anything that untrained sublayers write."""
STEEP = torch.logspace(-0.6, 0.6, WIDE)
"""How strong the axes of steep words are, from ¼ to 4."""
QUIET = 1e-3
"""Writes so small that the stream stays what the words are."""


def cycling(
    gain: Callable[[int], Tensor],
    write: Tensor | Callable[[int], Tensor],
    seed: int = 0,
    words: Tensor | None = None,
) -> tuple[Anatomy, Corpus]:
    """Words on steep axes, or others; every sublayer writes y through `write` [d, d], or its layer's, attention from
    the token itself."""
    identity, zeros = torch.eye(WIDE), torch.zeros(WIDE, 2 * WIDE)

    def writing(layer: int) -> Tensor:
        return QUIET * (write if isinstance(write, Tensor) else write(layer))

    def attention(layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return 30 * identity, 30 * identity, identity, writing(layer)

    def feed_forward(layer: int) -> tuple[Tensor, Tensor]:
        # gelu(a) − gelu(−a) = a.
        return torch.cat((identity, -identity, zeros), 1), torch.cat((writing(layer), -writing(layer), zeros.T))

    words = normal(400, WIDE, stream=1, seed=seed) * STEEP if words is None else words
    anatomy = assembled(words, attention=attention, feed_forward=feed_forward, gains=gain, seed=seed)
    return anatomy, corpus(20, 40, vocabulary=400, seed=seed)


def equally_long(seed: int = 0) -> Tensor:
    """Words on steep axes that are equally long already: a projection to one length does nothing."""
    words = normal(400, WIDE, stream=1, seed=seed) * STEEP
    return math.sqrt(WIDE) * normalize(words - words.mean(1, keepdim=True), dim=1)


def few_long(times: float, seed: int = 0) -> Tensor:
    """Gaussian words, of which one in twenty lies along one axis and is so many times longer: lengths make them steep,
    not directions, and a projection to one length evens them out."""
    words = normal(400, WIDE, stream=1, seed=seed)
    axis = normal(WIDE, stream=5, seed=seed)
    axis = math.sqrt(WIDE) * normalize(axis - axis.mean(), dim=0)
    signs = torch.tensor([1.0, -1.0]).repeat(10)[:, None]
    words[::20] = times * (signs * axis + 0.1 * words[::20])
    return words


def one_axis(seed: int = 0) -> Tensor:
    """All axes summed into one direction."""
    return torch.outer(normal(WIDE, stream=3, seed=seed), normal(WIDE, stream=4, seed=seed)) / WIDE


# Contrast.


def paired(spread: float, noise: float = 0.15, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Words in pairs of nearly one direction, one of them longer by `spread`, the other as much shorter."""
    directions = normal(150, D, stream=7, seed=seed).repeat_interleave(2, 0)
    directions = directions + noise * normal(300, D, stream=8, seed=seed)
    lengths = torch.tensor([1 + spread, 1 - spread]).repeat(150)[:, None]
    return assembled(lengths * normalize(directions, dim=1), seed=seed), corpus(20, 40, vocabulary=300, seed=seed)


def unpaired(seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Gaussian words."""
    return assembled(normal(300, D, stream=1, seed=seed), seed=seed), corpus(20, 40, vocabulary=300, seed=seed)


# One space, or one for each layer.


def gained(gains: Callable[[int], Tensor], layers: int = 3, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Random heads that write much, behind norms of these gains; on text of its own, so that any change costs."""

    def attention(layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        streams = range(10 * layer + 30, 10 * layer + 34)
        W_Q, W_K, W_V, W_O = (normal(D, D, stream=stream, seed=seed) / math.sqrt(D) for stream in streams)
        return W_Q, W_K, W_V, 2 * W_O

    words = normal(WORDS, D, stream=1, seed=seed)
    anatomy = assembled(words, layers=layers, attention=attention, gains=gains, seed=seed)
    return anatomy, written(anatomy, seed=seed)


def uneven(stream: int, seed: int = 0) -> Tensor:
    """Gains from 0.2 to 5, in an order of their own."""
    return torch.logspace(-0.7, 0.7, D)[torch.randperm(D, generator=generator(stream, seed))]


def alike(share: float, seed: int = 0) -> Callable[[int], Tensor]:
    """Layer → gains that all layers have, to the power of a share, times gains of its own to the power of the rest."""
    return lambda layer: uneven(1, seed) ** share * uneven(layer + 2, seed) ** (1 - share)


# Positions.


def placed(places: Tensor | None, beginnings: int = 0, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Words whose state is word and place; the first `beginnings` words of a document are of few kinds."""
    ids = torch.randint(0, 200, (40, 40), generator=generator(4, seed))
    ids[:, :beginnings] %= 5
    return assembled(normal(200, D, stream=1, seed=seed), places=places, seed=seed), documents_of(ids)


def drifting(size: float = 1.0, seed: int = 0) -> Tensor:
    """Places that move along one direction."""
    return torch.outer(torch.linspace(0, 1, CONTEXT), 8 * size * normal(D, stream=6, seed=seed))


# Axes.

MARKED = [0, 1, 8, 9, 16, 17, 24, 25]
"""Two axes of every head, one for each of eight frequent words."""


def marking(size: float = 1.0, turned: bool = False, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Eight frequent words of this `size` with an axis each; places fill the other axes, alike within a head. Queries,
    keys and values are the stream's own axes, results those of the token itself. `turned`: all of it in rotated
    axes."""
    others = [axis for axis in range(D) if axis not in MARKED]
    words, places = torch.zeros(108, D), torch.zeros(CONTEXT, D)
    words[torch.arange(8), MARKED] = 4.0 * size
    words[8:, others] = 0.3 * normal(100, len(others), stream=11, seed=seed)
    for head in range(HEADS):
        own = [axis for axis in others if axis // K == head]
        common = normal(CONTEXT, 2, stream=12 + head, seed=seed) @ normal(2, len(own), stream=20 + head, seed=seed)
        places[:, own] = 3 * common + 2 * normal(CONTEXT, len(own), stream=40 + head, seed=seed)
    ids = torch.randint(8, 108, (40, 40), generator=generator(2, seed))
    often = torch.rand(40, 40, generator=generator(3, seed)) < 0.5
    turn = rotation(D, number(5, seed), True).float() if turned else torch.eye(D)
    sharp, identity = 30 * torch.eye(D), torch.eye(D)
    anatomy = assembled(
        words @ turn, places=places @ turn, attention=lambda layer: (sharp, sharp, identity, 0 * identity), seed=seed
    )
    return anatomy, documents_of(torch.where(often, ids % 8, ids))
