"""Heads for chapter B that score by length, by the sphere itself, along the data or beside it, or not at all."""

from dataclasses import replace

import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.specimens.models.bag import VOCABULARY, D, attentive, gaussian
from armillary.specimens.models.draws import generator, normal

EYE = torch.eye(D)


def random(stream: int, size: float = 1.0, seed: int = 0) -> Tensor:
    return size * normal(D, D, stream=stream, seed=seed) / D**0.5


def random_heads(stream: float = 1.0, scores: float = 1.0, seed: int = 0) -> Anatomy:
    """Random heads behind a stream that is so many times as long as the norm makes it, scores as many times as large.

    A stream of 1 has unit variance by itself: there the norm changes nothing.
    """
    return attentive(stream * gaussian(seed=seed), 2, random(1, scores, seed), random(2, seed=seed))


def one_key_direction(seed: int = 0) -> Anatomy:
    """All keys of a head point the same way, and differ in length alone."""
    ray = normal(D, stream=3, seed=seed)
    lengths = normal(D, 1, stream=4, seed=seed) * ray[None] / D**0.5
    keys = lengths + 1e-4 * random(5, seed=seed)
    return attentive(gaussian(seed=seed), 2, random(1, seed=seed), keys, b_K=6 * ray)


def one_axis_repeated(seed: int = 0) -> Anatomy:
    """All axes of a head carry the same number: products add up in step, and grow like k²."""

    def repeated(stream: int) -> Tensor:
        axes = random(stream, seed=seed).reshape(D, 2, D // 2)
        return axes[:, :, :1].expand(-1, -1, D // 2).reshape(D, D)

    return attentive(4 * gaussian(seed=seed), 2, repeated(1), repeated(2))


def the_sphere_itself(share: float = 1.0, seed: int = 0) -> Anatomy:
    """W_Q and W_K are the identity, for a share of them; the rest of each is random and as large."""
    W_Q, W_K = (share * EYE + (1 - share) * random(stream, seed=seed) for stream in (1, 2))
    return attentive(gaussian(seed=seed), 1, W_Q, W_K)


def few_axes(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Embeddings with eight long axes, and the projector on them."""
    frame = normal(D, D, stream=11, seed=seed)
    frame = torch.linalg.qr(frame - frame.mean(0))[0].T[:8]
    frame = frame - frame.mean(1, keepdim=True)
    projector = frame.T @ torch.linalg.solve(frame @ frame.T, frame)
    return gaussian(seed=seed) @ (0.2 * EYE + 3 * projector), projector


def along_the_data(share: float = 1.0, seed: int = 0) -> Anatomy:
    """Heads that read the long axes; the others they read less by this share."""
    embedding, projector = few_axes(seed)
    reads = EYE - share * (EYE - projector)
    return attentive(embedding, 2, reads @ random(1, seed=seed), reads @ random(2, seed=seed))


def across_the_data(seed: int = 0) -> Anatomy:
    """Heads that read all but the long axes."""
    embedding, projector = few_axes(seed)
    across = EYE - projector
    return attentive(embedding, 2, across @ random(1, seed=seed), across @ random(2, seed=seed))


def half_blind(seed: int = 0) -> Anatomy:
    """Words that a head sees and words that it does not: W_Q reads the first half of the axes, words lie in either."""
    embedding = gaussian(seed=seed)
    seen = torch.rand(VOCABULARY, 1, generator=generator(12, seed))
    embedding[:, : D // 2] *= 2 * seen
    embedding[:, D // 2 :] *= 2 * (1 - seen)
    reads = 3 * random(1, seed=seed)
    reads[D // 2 :] = 0
    return attentive(embedding, 2, reads, 2 * random(2, seed=seed))


def unseen_words(share: float = 0.2, seed: int = 0) -> Anatomy:
    """Some words lie where no head reads: as a query such a word attends to all keys equally, as a key it scores 0."""
    embedding = gaussian(seed=seed)
    hidden = torch.randperm(VOCABULARY, generator=generator(12, seed))[: round(share * VOCABULARY)]
    rest = embedding[:, D // 2 :]
    # Of mean 0, so that the norm's centring leaves the visible half empty.
    embedding[hidden] = torch.cat((0 * rest, rest - rest.mean(1, keepdim=True)), 1)[hidden]
    reads, keys = 3 * random(1, seed=seed), 2 * random(2, seed=seed)
    reads[D // 2 :] = keys[D // 2 :] = 0
    return attentive(embedding, 2, reads, keys)


def query_bias_alone(seed: int = 0) -> Anatomy:
    """What a query is counts for nothing: all queries ask the same."""
    bias = normal(D, stream=13, seed=seed)
    return attentive(gaussian(seed=seed), 2, random(1, 1e-6, seed), random(2, seed=seed), b_Q=bias)


def misread(anatomy: Anatomy, share: float = 1.0) -> Anatomy:
    """Gains before attention are read as 1, by a share of the difference: they are not those of the running model."""

    def wrong(norm: Norm | None) -> Norm | None:
        return norm and replace(norm, gain=norm.gain + share * (1 - norm.gain))

    return replace(anatomy, blocks=tuple(replace(block, ln1=wrong(block.ln1)) for block in anatomy.blocks))
