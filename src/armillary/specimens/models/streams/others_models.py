"""Models for chapter H: massive tokens that heads rest on, cones, linear and bent blocks, words along a curve."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.specimens.models.assembled import assembled
from armillary.specimens.models.bag import CONTEXT, VOCABULARY, D, bag, gaussian
from armillary.specimens.models.draws import generator, normal
from armillary.specimens.models.texts import chained, corpus

WORDS = 60
MASSIVE_AXIS, FIRST_AXIS = 5, 6


def resting(size: float = 1.0, used: bool = True, seed: int = 0, everywhere: bool = False) -> tuple[Anatomy, Corpus]:
    """A first token with one coordinate of 4000 times `size`, which every head attends to; words tell the next word.

    Heads copy what they attend to, loudly. The first token has nothing to copy, so that nothing happens as long as they
    rest there; once it is gone they write the mean of all words over the prediction. Heads that do not use it do so
    from the start. With `everywhere` all tokens have the coordinate, and heads know the first by another one.
    """
    words = normal(WORDS, D, stream=1, seed=seed)
    places, known = torch.zeros(CONTEXT, D), FIRST_AXIS if everywhere else MASSIVE_AXIS
    places[0, known] = 3600 * size
    places[: None if everywhere else 1, MASSIVE_AXIS] = 4000 * size
    key, identity = torch.zeros(D, D), torch.eye(D)
    key[known] = float(used)
    copied = identity.clone()
    for axis in {known, MASSIVE_AXIS}:
        words[:, axis] = 0
        copied[axis] = 0
    anatomy = assembled(
        words, places, attention=lambda layer: (0 * identity, key, copied, 3 * identity), heads=2, seed=seed
    )
    model: Any = anatomy.model
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.bias[:D] = 2.0
        # Each word is read out as the one after it, as `chained` text goes on.
        model.lm_head.weight.copy_(4 * normalize(words, dim=1).roll(1, 0))
    return read(model, "planted"), chained(seed=seed)


def offset(sizes: Tensor, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Gaussian words with a mean [d]."""
    return bag(gaussian(seed=seed) + sizes), corpus(seed=seed)


def rogue(size: float = 1.0) -> Tensor:
    """A mean along two axes."""
    mean = torch.zeros(D)
    mean[3], mean[17] = 6 * size, -5 * size
    return mean


def spread_mean(seed: int = 0) -> Tensor:
    """A mean of the same length along all axes alike."""
    signs = torch.randint(0, 2, (D,), generator=generator(31, seed)) * 2.0 - 1
    return signs * float(rogue().norm()) / math.sqrt(D)


def unit_words(count: int, seed: int = 0) -> Tensor:
    """Words of one length without a mean of coordinates: the norm scales all of them alike."""
    words = normal(count, D, stream=1, seed=seed)
    return math.sqrt(D) * normalize(words - words.mean(1, keepdim=True), dim=1)


def writing(bent: float, size: float, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Blocks whose feed-forward writes `size` times a random linear map of y, and `bent` times a map of |y| instead."""
    identity, zeros = 3 * torch.eye(D), torch.zeros(D, 2 * D)

    def feed_forward(layer: int) -> tuple[Tensor, Tensor]:
        straight, even = (normal(D, D, stream=50 + 2 * layer + i, seed=seed) / math.sqrt(D) for i in (0, 1))
        # gelu(a) − gelu(−a) = a, and their sum is about |a|.
        up, down = (1 - bent) * straight + bent * even, -(1 - bent) * straight + bent * even
        return torch.cat((identity, -identity, zeros), 1), size * torch.cat((up, down, zeros.T)) / 3

    words = unit_words(VOCABULARY, seed)
    return assembled(words, feed_forward=feed_forward, seed=seed), corpus(seed=seed)


CURVE_AXES = 8


def curved(clears: bool = True, noise: float = 3.0, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Words along a slow closed curve in a few axes, under noise in the others, which the first block takes away. The
    text follows the curve."""
    angle = 2 * math.pi * torch.arange(WORDS) / WORDS
    words = torch.zeros(WORDS, D)
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = angle.cos(), -angle.cos(), angle.sin(), -angle.sin()
    rest = normal(WORDS, D - CURVE_AXES, stream=2, seed=seed)
    words[:, CURVE_AXES:] = noise * normalize(rest - rest.mean(1, keepdim=True), dim=1)
    scale = math.sqrt((2 + noise**2) / D)
    identity, zeros, away = torch.eye(D), torch.zeros(D, 2 * D), torch.zeros(D, D)
    away[range(CURVE_AXES, D), range(CURVE_AXES, D)] = -scale

    def feed_forward(layer: int) -> tuple[Tensor, Tensor]:
        write = away if clears and layer == 0 else 0 * away
        return torch.cat((identity, -identity, zeros), 1), torch.cat((write, -write, zeros.T))

    return assembled(words, layers=3, feed_forward=feed_forward, seed=seed), chained(follows=0.95, seed=seed)


def averaging(seed: int = 0) -> tuple[Anatomy, Corpus]:
    """The first block replaces each word by the mean of all words so far, whose steps are nearly at right angles: a
    trajectory that is straighter than the words', in whatever order these come."""
    half = D // 2
    words = torch.zeros(VOCABULARY, D)
    words[:, :half] = normal(VOCABULARY, half, stream=1, seed=seed)
    words[:, :half] -= words[:, :half].mean(1, keepdim=True)
    words = normalize(words, dim=1)
    own, mean = torch.zeros(D, D), torch.zeros(D, D)
    own[:half, :half] = torch.eye(half)
    mean[:half, half:] = torch.eye(half)
    scale = 1 / math.sqrt(D)

    def attention(layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # One head looks at its own token and takes it away, the other at all tokens alike.
        write = scale * (mean.T - own) if layer == 0 else 0 * own
        return 30 * own, 30 * own, own + mean, write

    # Many documents: what text adds to shuffled text is 0, and must be told from 1°.
    return assembled(words, layers=3, heads=2, attention=attention, seed=seed), corpus(120, seed=seed)


SHEET_AXES, FAINT = 24, 1e-3


def unfolding(amplifies: bool = True, seed: int = 0, layers: int = 4, until: int = 3) -> tuple[Anatomy, Corpus]:
    """Words on a sheet of two dimensions, and faint noise in the other axes, which the first block makes loud and the
    last one, or block `until`, faint again. All words are equally long at every depth, so that norms change nothing."""
    angle = 2 * math.pi * torch.rand(VOCABULARY, 2, generator=generator(1, seed))
    sheet = torch.stack((angle.cos(), -angle.cos(), angle.sin(), -angle.sin()), -1).flatten(1).repeat(1, 3)
    rest = normal(VOCABULARY, D - SHEET_AXES, stream=2, seed=seed)
    rest = normalize(rest - rest.mean(1, keepdim=True), dim=1)
    words = torch.cat((sheet, FAINT * rest), 1)
    identity, zeros, axes = torch.eye(D), torch.zeros(D, 2 * D), range(SHEET_AXES, D)
    loud = 2.0
    scales = {0: math.sqrt((12 + FAINT**2) / D), until: math.sqrt((12 + loud**2) / D)}
    writes = {0: loud / FAINT - 1, until: FAINT / loud - 1}

    def feed_forward(layer: int) -> tuple[Tensor, Tensor]:
        write = torch.zeros(D, D)
        if amplifies and layer in writes:
            write[axes, axes] = writes[layer] * scales[layer]
        return torch.cat((identity, -identity, zeros), 1), torch.cat((write, -write, zeros.T))

    return assembled(words, layers=layers, feed_forward=feed_forward, seed=seed), corpus(seed=seed)


COMMON_AXIS = 6


def parked(itself: bool = False, seed: int = 0, mean: float = 0.0, loud: float = 1.0) -> tuple[Anatomy, Corpus]:
    """Heads that look nearly at the first token alone, whose value lies along one axis; feed-forwards that take that
    axis away and make the rest loud. With `itself`, heads look at their own token alone. All words share a `mean` along
    that axis. `loud` times louder, writes drown what the skips carry."""
    words = normal(400, D, stream=1, seed=seed)
    words[:, MASSIVE_AXIS] = 0
    words[:, COMMON_AXIS] = mean
    places = torch.zeros(CONTEXT, D)
    places[0, MASSIVE_AXIS] = 4000
    identity, zeros, key, value = torch.eye(D), torch.zeros(D, 2 * D), torch.zeros(D, D), torch.eye(D)
    key[MASSIVE_AXIS] = 1.0
    value[MASSIVE_AXIS] = 0
    value[MASSIVE_AXIS, COMMON_AXIS] = 0.5
    rest = 30 * torch.eye(D)
    rest[COMMON_AXIS] = 0
    rest[:, COMMON_AXIS] = 0

    def attention(layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return (
            (30 * identity, 30 * identity, identity, identity)
            if itself
            else (0 * identity, key, value, loud * identity)
        )

    def feed_forward(layer: int) -> tuple[Tensor, Tensor]:
        return torch.cat((identity, -identity, zeros), 1), torch.cat((rest, -rest, zeros.T))

    anatomy = assembled(words, places, attention=attention, feed_forward=feed_forward, heads=2, seed=seed)
    model: Any = anatomy.model
    with torch.no_grad():
        for block in model.transformer.h:
            # A score of about 7 for the first token: the others share a twentieth of the attention.
            block.attn.c_attn.bias[:D] = 0.0 if itself else 0.31
    return read(model, "planted"), corpus(24, 40, vocabulary=400, seed=seed)


KEY_AXES = 6


def looking(spread: float = 1.0, heads: int = 1, normal_bias: float = 0.0, seed: int = 0) -> tuple[Anatomy, Corpus]:
    """Words in a few directions of the plane ⟂ 1, whose lengths have logarithms that differ by `spread`, and a mean of
    coordinates, which the norm removes. Queries and keys are the words themselves; queries have a bias along 1. One
    head sees all axes of the stream, 1 among them."""
    ones = torch.ones(D, 1) / math.sqrt(D)
    basis = torch.linalg.qr(torch.cat((ones, normal(D, KEY_AXES, stream=7, seed=seed)), 1))[0][:, 1:]
    words = normalize(normal(400, KEY_AXES, stream=1, seed=seed), dim=1) @ basis.T
    lengths = (spread * normal(400, 1, stream=2, seed=seed)).exp()
    words = lengths * words + normal(400, 1, stream=3, seed=seed) * ones.T
    identity = torch.eye(D)
    anatomy = assembled(
        words, heads=heads, attention=lambda layer: (3 * identity, identity, identity, 0 * identity), seed=seed
    )
    model: Any = anatomy.model
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.bias[:D] = normal_bias
    return read(model, "planted"), corpus(24, 60, vocabulary=400, seed=seed)
