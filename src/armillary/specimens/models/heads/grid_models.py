"""Models for chapter F: heads whose axes can change places, heads with one purpose, maps that bend, states correlated
over a known distance."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import normal
from armillary.specimens.models.texts import TOPIC_WORDS, TOPICS

D, HEADS, K, LAYERS, CONTEXT = 32, 4, 8, 2, 64
WORDS = TOPICS * TOPIC_WORDS
Change = Callable[[int, Tensor, Tensor, Tensor, Tensor], None]


def gpt2(
    change: Change | None = None,
    layers: int = LAYERS,
    heads: int = HEADS,
    words: Tensor | None = None,
    places: Tensor | None = None,
    sharp: float = 0.4,
    seed: int = 0,
) -> Anatomy:
    """Random heads that write much; `change` may alter a layer's W_Q, W_K, W_V [d, d] and W_O [d, d] in place."""
    words = normal(WORDS, D, stream=1, seed=seed) if words is None else words
    d = words.shape[1]
    model = blank_gpt2(len(words), d, layers, heads, CONTEXT, tie_word_embeddings=False)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(words)
        model.transformer.wpe.weight.copy_(torch.zeros(CONTEXT, d) if places is None else places)
        model.lm_head.weight.copy_(sharp * normal(len(words), d, stream=2, seed=seed))
        for layer, block in enumerate(model.transformer.h):
            block.mlp.c_proj.weight.zero_()
            parts = [normal(d, d, stream=10 * layer + part + 3, seed=seed) / math.sqrt(d) for part in range(4)]
            parts[3] *= 2
            if change is not None:
                change(layer, *parts)
            block.attn.c_attn.weight.copy_(torch.cat(parts[:3], 1))
            block.attn.c_proj.weight.copy_(parts[3])
    return read(model, "planted")


# Axes.


def interchangeable(results: float = 1.0, queries: float = 1.0, seed: int = 0) -> Anatomy:
    """All axes of a head are read alike, by these shares: of its results W_O takes the sum, of its queries the keys
    do."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        rows = W_O.reshape(HEADS, K, D)
        rows.copy_((1 - results) * rows + results * rows[:, :1])
        columns = W_K.reshape(D, HEADS, K)
        columns.copy_((1 - queries) * columns + queries * 2 * columns[..., :1])

    return gpt2(change, seed=seed)


def separate(seed: int = 0) -> Anatomy:
    """Random heads: each axis has a part of its own. They are many and wide, so that no head stands out by chance."""
    return gpt2(layers=4, words=normal(WORDS, 3 * D, stream=1, seed=seed), seed=seed)


# Heads with one purpose.

PLACE, WORD, BEFORE = slice(0, 64), slice(64, 128), slice(128, 192)
"""Where the stream of `purposeful` keeps a token's place, its word, and the word before it."""


def purposeful(plan: Sequence[Sequence[str]], words: int = 40, sharp: float = 1.0, seed: int = 0) -> Anatomy:
    """One purpose per head: previous, first, self, same, induction (a layer after previous), uniform or random.

    `sharp` multiplies all scores.
    """
    codes = torch.eye(192)
    table = 6 * codes[WORD][:words]
    places = 6 * codes[PLACE]

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        for head, purpose in enumerate(plan[layer]):
            own = slice(64 * head, 64 * head + 64)
            Q, K = (side[:, own] for side in (W_Q, W_K))
            if purpose in ("previous", "first", "self"):
                K[PLACE] = torch.eye(64)
                Q[PLACE] = {
                    "previous": torch.eye(64).roll(-1, 1),
                    "first": torch.eye(64)[:1].expand(64, 64),
                    "self": torch.eye(64),
                }[purpose]
            elif purpose in ("same", "induction"):
                Q[WORD], K[WORD if purpose == "same" else BEFORE] = torch.eye(64), torch.eye(64)
            elif purpose == "random":
                Q.copy_(normal(192, 64, stream=90 + head, seed=seed))
                K.copy_(normal(192, 64, stream=80 + head, seed=seed))
            Q *= 3 * sharp
            if purpose == "previous":
                W_V[WORD, own] = torch.eye(64)
                W_O[own, BEFORE] = torch.eye(64)

    return gpt2(change, layers=len(plan), heads=3, words=table, places=places, seed=seed)


# Heads that matter to each other.


def writing(size: float, seed: int = 0) -> Anatomy:
    """Random heads that write much or little: the less they write, the less they depend on each other."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O.mul_(size)

    return gpt2(change, seed=seed)


def independent(seed: int = 0) -> Anatomy:
    """Heads whose writes change no gradient: a large direction that all words share, that no head writes and that the
    output layer does not read, keeps the norm's scale, and predictions are nearly flat."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O[:, :2] = 0

    words = normal(WORDS, D, stream=1, seed=seed)
    words[:, 0], words[:, 1] = 400.0, -400.0
    model: Any = gpt2(change, layers=1, words=words, sharp=0.001, seed=seed).model
    with torch.no_grad():
        model.lm_head.weight[:, :2] = 0
    return read(model, "planted")


# Spaces of heads.


def reading(
    rank: int, words: Tensor | None = None, others: int | None = None, share: float = 1.0, seed: int = 0
) -> Anatomy:
    """Heads that read `rank` directions each, every second one `others` if given, and write nothing.

    All other directions of a head they read less by a `share`.
    """

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O.zero_()
        for part, side in enumerate((W_Q, W_K, W_V)):
            for head in range(HEADS):
                stream, axes = 100 * layer + 10 * head + part, others if others and head % 2 else rank
                left, right = (torch.linalg.qr(normal(n, n, stream=stream + n, seed=seed))[0][:, :K] for n in (D, K))
                sizes = torch.where(torch.arange(K) < axes, 1.0, 1 - share)
                side[:, K * head : K * (head + 1)] = (left * sizes) @ right.T

    return gpt2(change, words=words, seed=seed)


def leaning(size: float = 3.0, seed: int = 0) -> Tensor:
    """Gaussian words that share one direction."""
    return normal(WORDS, D, stream=1, seed=seed) + size * normal(1, D, stream=3, seed=seed)


# Matrices that bend the sphere, or do not.


def plane(seed: int = 0) -> Tensor:
    """An orthonormal frame [d, d − 1] of the plane ⟂ 1 that LayerNorm leaves."""
    return torch.linalg.qr(torch.cat((torch.ones(D, 1), normal(D, D - 1, stream=21, seed=seed)), 1))[0][:, 1:]


def bending(steep: float, seed: int = 0) -> Anatomy:
    """Every matrix has singular values 1 to 10^−steep, on the plane ⟂ 1; 0 makes isometries."""
    flat = plane(seed)

    def steep_matrix(rows: int, columns: int, stream: int) -> Tensor:
        left = flat if rows == D else torch.linalg.qr(normal(rows, D - 1, stream=stream, seed=seed))[0]
        right = torch.linalg.qr(normal(columns, D - 1, stream=stream + 1, seed=seed))[0]
        return (left * torch.logspace(0, -steep, D - 1)) @ right.T

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V):
            values = torch.logspace(0, -steep, K)[:, None]
            for head in range(HEADS):
                # The same for queries and keys, so that their product is as steep as they are.
                turn = torch.linalg.qr(normal(K, K, stream=50 * layer + 10 * head, seed=seed))[0]
                side[:, K * head : K * (head + 1)] = flat[:, 7 * head : 7 * head + K - 1] @ (values * turn)[1:]
        W_O.copy_(torch.linalg.qr(normal(D, D, stream=layer, seed=seed))[0] * torch.logspace(0, -steep, D))

    model: Any = gpt2(change, seed=seed).model
    with torch.no_grad():
        for layer, block in enumerate(model.transformer.h):
            block.mlp.c_fc.weight.copy_(steep_matrix(D, 4 * D, 31 + layer))
            block.mlp.c_proj.weight.copy_(steep_matrix(4 * D, D, 41 + layer))
    return read(model, "planted")


def bulging(share: float, seed: int = 0) -> Anatomy:
    """Words at three angles to one direction, to all sides of it. Matrices read all directions alike (share 0), or that
    direction alone (1), whose cosine no linear map of a word's shadow tells. Heads and feed-forwards write nothing."""
    flat = plane(seed)
    angles = torch.tensor([20.0, 50.0, 80.0]).deg2rad().repeat(WORDS // 3)[:, None]
    sides = normalize(normal(WORDS, D - 2, stream=22, seed=seed), dim=1)
    sides[WORDS // 2 :] = -sides[: WORDS // 2]
    words = 6 * (torch.cos(angles) * flat[:, :1].T + torch.sin(angles) * (sides @ flat[:, 1:].T))
    reads = (1 - 0.98 * share) * torch.eye(D) + share * flat[:, :1] @ flat[:, :1].T

    def turn(rows: int, stream: int) -> Tensor:
        return torch.linalg.qr(normal(rows, D, stream=stream, seed=seed))[0]

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O.zero_()
        for side, stream in ((W_Q, 1), (W_K, 2), (W_V, 3)):
            side.copy_(reads @ turn(D, stream))

    # One head: W_QK of a narrow head is a projection and no rotation.
    model: Any = gpt2(change, heads=1, words=words, seed=seed).model
    with torch.no_grad():
        for block in model.transformer.h:
            block.mlp.c_fc.weight.copy_(reads @ turn(4 * D, 4).T)
            block.mlp.c_proj.weight.zero_()
    return read(model, "planted")


# States that are correlated over a distance.

TOPIC = slice(128 - TOPICS, 128)
"""Where the stream of `topical` keeps a word's topic."""


def topical(gains: Sequence[float], seed: int = 0) -> Anatomy:
    """A word's topic is a faint part of it, which each layer multiplies: no layer looks at any other word."""
    codes = torch.eye(128)
    table = torch.cat(
        (torch.zeros(WORDS, 64), normal(WORDS, 64 - TOPICS, stream=1, seed=seed), torch.zeros(WORDS, TOPICS)), 1
    )
    table[torch.arange(WORDS), TOPIC.start + torch.arange(WORDS) % TOPICS] = 1.0

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        W_Q[PLACE, :64], W_K[PLACE, :64] = 30 * torch.eye(64), torch.eye(64)
        W_V[TOPIC, :TOPICS] = torch.eye(TOPICS)
        W_O[:TOPICS, TOPIC] = gains[layer] * torch.eye(TOPICS)

    return gpt2(change, layers=len(gains), heads=2, words=table, places=12 * codes[PLACE], seed=seed)


def averaging(windows: Sequence[int], size: float = 3.0, seed: int = 0) -> Anatomy:
    """Layers that add the mean of the last n words to each word, by position; 0 adds nothing."""
    codes = torch.eye(128)
    table = torch.cat((torch.zeros(WORDS, 64), normal(WORDS, 64, stream=1, seed=seed)), 1)

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        if windows[layer]:
            apart = torch.arange(64)[:, None] - torch.arange(64)
            W_Q[PLACE, :64] = ((apart >= 0) & (apart < windows[layer])).float() * 30
            W_K[PLACE, :64] = torch.eye(64)
            W_V[WORD, :64] = torch.eye(64)
            W_O[:64, WORD] = size * torch.eye(64)

    return gpt2(change, layers=len(windows), heads=2, words=table, places=12 * codes[PLACE], seed=seed)
