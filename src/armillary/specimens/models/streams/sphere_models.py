"""Embeddings and norms for chapter A: spheres, lengths, planes, cones and gains of known shape."""

import math
from typing import Any

import torch
import transformers as tr
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.bag import CONTEXT, VOCABULARY, D, bag, gaussian
from armillary.specimens.models.draws import generator, normal, seeded
from armillary.specimens.models.perturbed import llama, perturbed
from armillary.specimens.models.texts import CLASSES, MEMBERS


def spheres(dimension: int, seed: int = 0) -> Tensor:
    """Embeddings uniform on a sphere of the given dimension, inside the plane ⟂ 1 (LayerNorm leaves them unchanged)."""
    points = normal(VOCABULARY, dimension + 1, stream=3, seed=seed)
    frame = normal(D, D, stream=4, seed=seed)
    frame = torch.linalg.qr(frame - frame.mean(0))[0].T[: dimension + 1]
    return normalize(points, dim=1) @ (frame - frame.mean(1, keepdim=True)) * 5


def lengths(spread: float, seed: int = 0) -> Tensor:
    """Gaussian directions at log-normal lengths."""
    factor = torch.exp(spread * normal(VOCABULARY, 1, stream=5, seed=seed))
    return normalize(gaussian(seed=seed), dim=1) * math.sqrt(D) * factor


def short_words(seed: int = 0) -> Tensor:
    """Gaussian words, of which a few are so short that ε is not small beside their variance."""
    return gaussian(seed=seed) * torch.linspace(1e-4, 1, VOCABULARY)[:, None]


def centred_llama(seed: int = 0) -> Anatomy:
    """An RMSNorm model in the plane: nothing it embeds or writes has a mean."""
    model: Any = perturbed(llama, seed)
    with torch.no_grad():
        model.model.embed_tokens.weight -= model.model.embed_tokens.weight.mean(1, keepdim=True)
        for layer in model.model.layers:
            for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
                projection.weight -= projection.weight.mean(0, keepdim=True)
    return read(model, "centred")


def twinned(columns: int, seed: int = 0) -> Tensor:
    """Embeddings whose first coordinates repeat: each repetition is a linear constraint besides the plane."""
    embedding = gaussian(seed=seed)
    for column in range(columns):
        embedding[:, column + 1] = embedding[:, 0]
    return embedding


def separated_by_direction(size: float = 8.0, seed: int = 0) -> Anatomy:
    """Words of equal length that lie together in classes, for `classed` text: a word's class tells the next word.

    Positions disturb length more than direction. In an untrained model each word of a class has a direction of its own,
    so that directions tell little of the next word.
    """
    classes, signs = (normalize(normal(CLASSES, D, stream=stream, seed=seed), dim=1) for stream in (6, 9))
    own = normalize(normal(CLASSES * MEMBERS, D, stream=8, seed=seed), dim=1)
    words = normalize(classes.repeat(MEMBERS, 1) + 0.3 * own, dim=1)
    reads = torch.cat((0 * words, 0.9 * classes))
    return bag(size * torch.cat((words, signs)), normal(CONTEXT, D, stream=7, seed=seed), unembedding=reads)


def own_words(seed: int = 0) -> Anatomy:
    """The same directions, but every token is read out as itself: nothing is predicted, so turning costs nothing."""
    unit = normalize(normal(60, D, stream=6, seed=seed), dim=1)
    return bag(8 * unit, normal(CONTEXT, D, stream=7, seed=seed))


def separated_by_length(seed: int = 0) -> Anatomy:
    """All tokens in one direction, separated by length alone."""
    ray = normal(1, D, stream=8, seed=seed)
    embedding = ray * torch.linspace(1, 9, 60)[:, None] + 1e-3 * normal(60, D, stream=9, seed=seed)
    return bag(embedding, 1e-3 * normal(CONTEXT, D, stream=7, seed=seed))


def cone(seed: int = 0) -> Tensor:
    """Tokens on a cone around an axis, of any length and any mean: LayerNorm leaves a circle of two dimensions."""
    frame = torch.linalg.qr(torch.cat((torch.ones(4, 1), normal(4, 3, stream=4, seed=seed)), 1))[0].T
    around = normalize(normal(VOCABULARY, 2, stream=5, seed=seed), dim=1)
    spread = 0.3
    stretch = 1 + spread * 3**0.5 * (2 * torch.rand(VOCABULARY, 1, generator=generator(6, seed)) - 1)
    # As much variance along the axis as along each of the two directions around it.
    tilt = math.atan(math.sqrt(2 * spread**2 / (1 + spread**2)))
    level = spread * math.cos(tilt) * 3**0.5 * (2 * torch.rand(VOCABULARY, 1, generator=generator(7, seed)) - 1)
    return 5 * (stretch * (math.cos(tilt) * frame[1] + math.sin(tilt) * around @ frame[2:]) + level * frame[0])


def noisy_gains(seed: int = 0) -> Anatomy:
    """Gains with a tenth of noise on many axes: their extremes differ by more than two, most of them hardly."""
    model = _gpt2(1024, 1, 97, seed)
    with torch.no_grad():
        for norm in (model.transformer.h[0].ln_1, model.transformer.h[0].ln_2, model.transformer.ln_f):
            norm.weight += 0.11 * normal(1024, stream=1, seed=seed)
            norm.bias += 0.2 * normal(1024, stream=2, seed=seed)
    return read(model)


def default_gpt2(seed: int = 0) -> Anatomy:
    """At random initialisation every gain is 1 and every shift 0."""
    return read(_gpt2(D, 2, VOCABULARY, seed))


def _gpt2(width: int, layers: int, vocabulary: int, seed: int) -> Any:
    shape = {"n_embd": width, "n_layer": layers, "n_head": 2, "vocab_size": vocabulary, "n_positions": CONTEXT}
    config = tr.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)
    with seeded(0, seed):
        return tr.GPT2LMHeadModel(config).eval()
