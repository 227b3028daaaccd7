"""Heads for chapter B that act on words: they match listed pairs, copy, store, write topics, or are random."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import torch
import transformers as tr
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.related_nouns import related_pairs
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import generator, normal

D, HEADS, K, LAYERS = 64, 4, 16, 3
# How much of a head matches pairs of nouns where its AUC lies about the limit of qk.related.
BARELY = 0.26


@cache
def words() -> tuple[str, ...]:
    """[UNK], every listed noun, plurals of the frequent ones, and words without meaning."""
    listed = [word for pair in related_pairs() for word in pair[1:]]
    plurals = [noun + "s" for noun in NOUNS[:40]]
    meaningless = ["zq" + "".join(letters) for letters in product("abcfhk", repeat=3)]
    return ("[UNK]", *dict.fromkeys([*NOUNS, *listed, *plurals, *meaningless]))


def tokenizer(vocabulary: tuple[str, ...]) -> Any:
    model = WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    return tr.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="[UNK]")


@dataclass(frozen=True)
class PlantedHead:
    """On directions z: W_Q, W_K, W_V [d, k] and W_O [k, d]."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor


Plant = Callable[[int, int], PlantedHead]
"""From layer and head to the planted matrices."""


def random_head(stream: int, seed: int = 0) -> PlantedHead:
    W_Q, W_K, W_V = (0.2 * normal(D, K, stream=100 * stream + i, seed=seed) for i in range(3))
    return PlantedHead(W_Q, W_K, W_V, 0.2 * normal(K, D, stream=100 * stream + 3, seed=seed))


def randoms(seed: int = 0) -> Plant:
    return lambda layer, head: random_head(_place(layer, head) + 1, seed)


def _place(layer: int, head: int) -> int:
    """A number for each head of the model, from which its streams count."""
    return 10 * layer + head


def gpt2(embedding: Tensor, plant: Plant, layers: int = LAYERS, seed: int = 0) -> Anatomy:
    """Gains of either sign and biases stand before the heads: a measurement that ignores them fails."""
    model = blank_gpt2(len(embedding), D, layers, HEADS, 8)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(embedding)
        for layer, block in enumerate(model.transformer.h):
            gain = _gain(layer, seed)
            block.ln_1.weight.copy_(gain)
            block.ln_1.bias.copy_(0.1 * normal(D, stream=layer + 60, seed=seed))
            block.attn.c_attn.bias.copy_(0.1 * normal(3 * D, stream=layer + 70, seed=seed))
            heads = [plant(layer, head) for head in range(HEADS)]
            sides = [torch.cat([getattr(head, name) for head in heads], 1) for name in ("W_Q", "W_K", "W_V")]
            block.attn.c_attn.weight.copy_(torch.cat(sides, 1) / gain[:, None])
            block.attn.c_proj.weight.copy_(torch.cat([head.W_O for head in heads]))
    return replace(read(model, "planted"), tokenizer=tokenizer(words()[: len(embedding)]))


def llama(embedding: Tensor, plant: Plant, layers: int = LAYERS, seed: int = 0) -> Anatomy:
    """RMSNorm, rotation, and two query heads to a key: the first head of a group gives the keys and values."""
    config = tr.LlamaConfig(
        hidden_size=D,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        vocab_size=len(embedding),
        max_position_embeddings=8,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(embedding)
        for layer, block in enumerate(model.model.layers):
            gain = _gain(layer, seed)
            block.input_layernorm.weight.copy_(gain)
            heads = [plant(layer, head) for head in range(HEADS)]
            attention = block.self_attn
            attention.q_proj.weight.copy_((torch.cat([h.W_Q for h in heads], 1) / gain[:, None]).T)
            attention.k_proj.weight.copy_((torch.cat([h.W_K for h in heads[::2]], 1) / gain[:, None]).T)
            attention.v_proj.weight.copy_((torch.cat([h.W_V for h in heads[::2]], 1) / gain[:, None]).T)
            attention.o_proj.weight.copy_(torch.cat([h.W_O for h in heads]).T)
    return replace(read(model, "planted"), tokenizer=tokenizer(words()[: len(embedding)]))


def _gain(layer: int, seed: int) -> Tensor:
    size = 0.5 + torch.rand(D, generator=generator(layer, seed))
    return size * normal(D, stream=layer + 50, seed=seed).sign()


def frame(stream: int, size: int = D, seed: int = 0) -> Tensor:
    return torch.linalg.qr(normal(size, size, stream=stream, seed=seed))[0]


# Embeddings.


def gaussian(seed: int = 0) -> Tensor:
    return normal(len(words()), D, stream=0, seed=seed)


def halved(seed: int = 0) -> Tensor:
    """Gaussian words; every second one has nothing in the first coordinates."""
    rows = gaussian(seed)
    rows[::2, :K] = 0
    return rows


def coded(together: bool, seed: int = 0) -> Tensor:
    """Each listed pair shares a code: in the same coordinates (so the words lie together), or in different ones."""
    row = {word: i for i, word in enumerate(words())}
    rows = 0.3 * gaussian(seed)
    rows[:, 2 * K :] *= 4
    for i, pair in enumerate(related_pairs()):
        code = normal(K, stream=10_000 + i, seed=seed)
        rows[row[pair.first], :K] += code
        second = slice(0, K) if together else slice(K, 2 * K)
        rows[row[pair.second], second] += code
    return rows


def one_axis_each(seed: int = 0) -> Tensor:
    """Every word has one large coordinate and small ones elsewhere."""
    rows = 0.3 * gaussian(seed)
    rows[torch.arange(len(rows)), torch.randint(0, D, (len(rows),), generator=generator(1, seed))] += 6
    return rows


def one_axis_for_all(seed: int = 0) -> Tensor:
    """Gaussian words that share one large direction."""
    return gaussian(seed) + 8 * frame(5, seed=seed)[0]


def loud(axes: int, times: float, seed: int = 0) -> Tensor:
    """Gaussian words that vary more along some axes of `frame(9)`, and mean nothing."""
    turn = frame(9, seed=seed)
    rows = gaussian(seed) @ turn.T
    rows[:, :axes] *= times
    return rows @ turn


def clustered(topics: int = 40, seed: int = 0) -> Tensor:
    """Words in topics, each topic an axis of `frame(9)`."""
    of = torch.randint(0, topics, (len(words()),), generator=generator(1, seed))
    return 4 * frame(9, seed=seed)[of] + 0.4 * gaussian(seed)


# Heads.


def matching(layers: range = range(LAYERS), share: float = 1.0, seed: int = 0) -> Plant:
    """In a share of the heads of these layers, queries read the code of first words and keys that of second ones."""

    def plant(layer: int, head: int) -> PlantedHead:
        rotation = frame(_place(layer, head), K, seed)
        first, second = torch.zeros(D, K), torch.zeros(D, K)
        first[:K], second[K : 2 * K] = rotation, rotation
        return replace(random_head(_place(layer, head) + 1, seed), W_Q=first, W_K=second)

    return _some(plant, layers, share, seed)


def barely_matching(seed: int = 0) -> Plant:
    """The first layer matches; in the others queries and keys read the codes by so small a share of their matrices that
    the AUC of a head is about 0.58, by chance above 0.6 or below it."""
    full = matching(seed=seed)

    def plant(layer: int, head: int) -> PlantedHead:
        planted = full(layer, head)
        return planted if layer == 0 else _diluted(planted, random_head(_place(layer, head) + 1, seed), BARELY)

    return plant


def _diluted(planted: PlantedHead, other: PlantedHead, share: float) -> PlantedHead:
    """Queries and keys that are planted by a share of their matrices; the rest of each is random and as large."""
    sides = ((planted.W_Q, other.W_Q), (planted.W_K, other.W_K))
    W_Q, W_K = (share * side + (1 - share) * random / random.norm(dim=0) for side, random in sides)
    return replace(other, W_Q=W_Q, W_K=W_K)


def _some(plant: Plant, layers: range, share: float, seed: int) -> Plant:
    """The planted heads in a share of all heads of these layers, evenly over layers; other heads are random."""
    order = torch.randperm(HEADS, generator=generator(90, seed)).tolist()
    chosen = set(order[: round(share * HEADS)])
    random = randoms(seed)
    return lambda layer, head: (plant if layer in layers and head in chosen else random)(layer, head)


def same_code(seed: int = 0) -> Plant:
    """Queries and keys both read the coordinates of the code: words that lie together before do so after."""

    def plant(layer: int, head: int) -> PlantedHead:
        side = torch.zeros(D, K)
        side[:K] = frame(_place(layer, head), K, seed)
        return replace(random_head(_place(layer, head) + 1, seed), W_Q=side, W_K=side)

    return plant


def copying(layers: range, share: float = 1.0, seed: int = 0) -> Plant:
    """In the given layers a query scores its own key highest; other heads are random. Pairs of heads share keys.

    Queries and keys agree by a `share` of their matrices; the rest of each is random and as large.
    """

    def plant(layer: int, head: int) -> PlantedHead:
        other = random_head(_place(layer, head) + 1, seed)
        side = frame(100 + 10 * layer + head // 2, seed=seed)[:, :K]
        return _diluted(replace(other, W_Q=side, W_K=side), other, share) if layer in layers else other

    return plant


def storing(seed: int = 0) -> Plant:
    """Each head's keys are sixteen of the coordinates, each with a value of its own."""

    def plant(layer: int, head: int) -> PlantedHead:
        keys = torch.eye(D)[:, head * K : (head + 1) * K] * torch.linspace(2, 1, K)
        updates = frame(20 + layer * HEADS + head, seed=seed)[:K]
        return replace(random_head(head + 1, seed), W_V=keys, W_O=updates)

    return plant


def shared_key(seed: int = 0) -> Plant:
    """The strongest left vector is what all words share: every word matches it, and nothing is looked up."""

    def plant(layer: int, head: int) -> PlantedHead:
        rest = frame(30 + _place(layer, head), seed=seed)[:, : K - 1]
        shared = frame(5, seed=seed)[0]
        keys = torch.cat([shared[:, None], rest - shared[:, None] * (shared @ rest)], 1)
        updates = frame(40 + head, seed=seed)[:K]
        return replace(random_head(head + 1, seed), W_V=keys * torch.linspace(2, 1, K), W_O=updates)

    return plant


def half_early(seed: int = 0) -> Plant:
    """The first layer copies by the coordinates that every second word of `halved` lacks, all others by any."""
    early, late = same_code(seed), copying(range(LAYERS), seed=seed)
    return lambda layer, head: (late if layer else early)(layer, head)


def behind_random_keys(plant: Plant, seed: int = 0) -> Plant:
    """The same written directions and strengths, read by random left vectors."""

    def turned(layer: int, head: int) -> PlantedHead:
        planted = plant(layer, head)
        strength = planted.W_V.norm(dim=0)
        left = frame(7000 + _place(layer, head), seed=seed)[:, :K]
        return replace(planted, W_V=left * strength)

    return turned


def on_loud_axes(axes: int, layers: range, seed: int = 0) -> Plant:
    """In the given layers a head writes the loud axes of `loud` most, mixed at random; elsewhere it is random."""

    def plant(layer: int, head: int) -> PlantedHead:
        turn = frame(9, seed=seed)
        inside = frame(300 + _place(layer, head), axes, seed) @ turn[:axes]
        strength = torch.cat([torch.linspace(2, 1, axes), torch.full((K - axes,), 0.1)])
        left = frame(8000 + _place(layer, head), seed=seed)[:, :K]
        other = random_head(_place(layer, head) + 1, seed)
        return replace(other, W_V=left * strength, W_O=torch.cat([inside, turn[axes:K]]))

    return _some(plant, layers, 1.0, seed)


def on_topic(layers: range, share: float = 1.0, seed: int = 0, alike: bool = False) -> Plant:
    """In the given layers a share of the heads reads and writes sixteen topics of `clustered`; others are random.

    Every head has topics of its own, or those of the head of the same number in all layers (`alike`).
    """

    def plant(layer: int, head: int) -> PlantedHead:
        other = random_head(_place(layer, head) + 1, seed)
        drawn = torch.randperm(40, generator=generator(_place(0 if alike else layer, head), seed))[:K]
        chosen = frame(9, seed=seed)[drawn]
        return replace(other, W_V=chosen.T * torch.linspace(2, 1, K), W_O=chosen)

    return _some(plant, layers, share, seed)
