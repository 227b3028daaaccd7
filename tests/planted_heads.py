"""Models whose heads have a known purpose: they match listed pairs, copy, store, write topics, or are random."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import torch
import transformers as tr
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.related_nouns import related_pairs
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.shared_pass import gather

D, HEADS, K, LAYERS = 64, 4, 16, 3


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


@cache
def words() -> tuple[str, ...]:
    """[UNK], every listed noun, plurals of the frequent ones, and words without meaning."""
    listed = [word for pair in related_pairs() for word in pair[1:]]
    plurals = [noun + "s" for noun in NOUNS[:40]]
    meaningless = ["zq" + "".join(letters) for letters in product("abcfhk", repeat=3)]
    return ("[UNK]", *dict.fromkeys([*NOUNS, *listed, *plurals, *meaningless]))


def tokenizer(vocabulary: tuple[str, ...]) -> tr.PreTrainedTokenizerFast:
    model = WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    return tr.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="[UNK]")


@dataclass(frozen=True)
class Head:
    """On directions z: W_Q, W_K, W_V [d, k] and W_O [k, d]."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor


Plant = Callable[[int, int], Head]
"""From layer and head to the planted matrices."""


def random_head(seed: int) -> Head:
    return Head(*(0.2 * normal(D, K, seed=100 * seed + i) for i in range(3)), 0.2 * normal(K, D, seed=100 * seed + 3))


def randoms(seed: int = 0) -> Plant:
    return lambda layer, head: random_head(1000 * seed + 10 * layer + head + 1)


def gpt2(embedding: Tensor, plant: Plant, layers: int = LAYERS) -> Anatomy:
    """Gains of either sign and biases stand before the heads: a measurement that ignores them fails."""
    config = tr.GPT2Config(
        n_embd=D,
        n_layer=layers,
        n_head=HEADS,
        vocab_size=len(embedding),
        n_positions=8,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(embedding)
        for layer, block in enumerate(model.transformer.h):
            gain = (0.5 + torch.rand(D, generator=generator(layer))) * normal(D, seed=layer + 50).sign()
            block.ln_1.weight.copy_(gain)
            block.ln_1.bias.copy_(0.1 * normal(D, seed=layer + 60))
            block.attn.c_attn.bias.copy_(0.1 * normal(3 * D, seed=layer + 70))
            heads = [plant(layer, head) for head in range(HEADS)]
            sides = [torch.cat([getattr(head, name) for head in heads], 1) for name in ("W_Q", "W_K", "W_V")]
            block.attn.c_attn.weight.copy_(torch.cat(sides, 1) / gain[:, None])
            block.attn.c_proj.weight.copy_(torch.cat([head.W_O for head in heads]))
    return replace(read(model, "planted"), tokenizer=tokenizer(words()[: len(embedding)]))


def llama(embedding: Tensor, plant: Plant, layers: int = LAYERS) -> Anatomy:
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
            gain = (0.5 + torch.rand(D, generator=generator(layer))) * normal(D, seed=layer + 50).sign()
            block.input_layernorm.weight.copy_(gain)
            heads = [plant(layer, head) for head in range(HEADS)]
            attention = block.self_attn
            attention.q_proj.weight.copy_((torch.cat([h.W_Q for h in heads], 1) / gain[:, None]).T)
            attention.k_proj.weight.copy_((torch.cat([h.W_K for h in heads[::2]], 1) / gain[:, None]).T)
            attention.v_proj.weight.copy_((torch.cat([h.W_V for h in heads[::2]], 1) / gain[:, None]).T)
            attention.o_proj.weight.copy_(torch.cat([h.W_O for h in heads]).T)
    return replace(read(model, "planted"), tokenizer=tokenizer(words()[: len(embedding)]))


def evidence(anatomy: Anatomy) -> Evidence:
    """What a survey of the weights alone gathers, untrained twins among it."""
    return gather(anatomy, None, ())


def frame(seed: int, size: int = D) -> Tensor:
    return torch.linalg.qr(normal(size, size, seed=seed))[0]


# Embeddings.


def gaussian(seed: int = 0) -> Tensor:
    return normal(len(words()), D, seed=seed)


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
        code = normal(K, seed=10_000 + i)
        rows[row[pair.first], :K] += code
        second = slice(0, K) if together else slice(K, 2 * K)
        rows[row[pair.second], second] += code
    return rows


def one_axis_each(seed: int = 0) -> Tensor:
    """Every word has one large coordinate and small ones elsewhere."""
    rows = 0.3 * gaussian(seed)
    rows[torch.arange(len(rows)), torch.randint(0, D, (len(rows),), generator=generator(seed + 1))] += 6
    return rows


def one_axis_for_all(seed: int = 0) -> Tensor:
    """Gaussian words that share one large direction."""
    return gaussian(seed) + 8 * frame(5)[0]


def loud(axes: int, times: float, seed: int = 0) -> Tensor:
    """Gaussian words that vary more along some axes of `frame(9)`, and mean nothing."""
    rows = gaussian(seed) @ frame(9).T
    rows[:, :axes] *= times
    return rows @ frame(9)


def clustered(topics: int = 40, seed: int = 0) -> Tensor:
    """Words in topics, each topic an axis of `frame(9)`."""
    of = torch.randint(0, topics, (len(words()),), generator=generator(seed + 1))
    return 4 * frame(9)[of] + 0.4 * gaussian(seed)


# Heads.


def matching(layers: range = range(LAYERS)) -> Plant:
    """In the given layers queries read the code of first words and keys that of second ones; other heads are random."""

    def plant(layer: int, head: int) -> Head:
        rotation = frame(10 * layer + head, K)
        other = random_head(10 * layer + head + 1)
        first, second = torch.zeros(D, K), torch.zeros(D, K)
        first[:K], second[K : 2 * K] = rotation, rotation
        return replace(other, W_Q=first, W_K=second) if layer in layers else other

    return plant


def same_code() -> Plant:
    """Queries and keys both read the coordinates of the code: words that lie together before do so after."""

    def plant(layer: int, head: int) -> Head:
        side = torch.zeros(D, K)
        side[:K] = frame(10 * layer + head, K)
        return replace(random_head(10 * layer + head + 1), W_Q=side, W_K=side)

    return plant


def copying(layers: range) -> Plant:
    """In the given layers a query scores its own key highest; other heads are random. Pairs of heads share keys."""

    def plant(layer: int, head: int) -> Head:
        other = random_head(10 * layer + head + 1)
        side = frame(100 + 10 * layer + head // 2)[:, :K]
        return replace(other, W_Q=side, W_K=side) if layer in layers else other

    return plant


def storing() -> Plant:
    """Each head's keys are sixteen of the coordinates, each with a value of its own."""

    def plant(layer: int, head: int) -> Head:
        keys = torch.eye(D)[:, head * K : (head + 1) * K] * torch.linspace(2, 1, K)
        return replace(random_head(head + 1), W_V=keys, W_O=frame(20 + layer * HEADS + head)[:K])

    return plant


def shared_key() -> Plant:
    """The strongest left vector is what all words share: every word matches it, and nothing is looked up."""

    def plant(layer: int, head: int) -> Head:
        rest = frame(30 + 10 * layer + head)[:, : K - 1]
        shared = frame(5)[0]
        keys = torch.cat([shared[:, None], rest - shared[:, None] * (shared @ rest)], 1)
        return replace(random_head(head + 1), W_V=keys * torch.linspace(2, 1, K), W_O=frame(40 + head)[:K])

    return plant


def half_early() -> Plant:
    """The first layer copies by the coordinates that every second word of `halved` lacks, all others by any."""
    early, late = same_code(), copying(range(LAYERS))
    return lambda layer, head: (late if layer else early)(layer, head)


def behind_random_keys(plant: Plant, seed: int = 0) -> Plant:
    """The same written directions and strengths, read by random left vectors."""

    def turned(layer: int, head: int) -> Head:
        planted = plant(layer, head)
        strength = planted.W_V.norm(dim=0)
        left = frame(7000 + seed + 10 * layer + head)[:, :K]
        return replace(planted, W_V=left * strength)

    return turned


def on_loud_axes(axes: int, layers: range) -> Plant:
    """In the given layers a head writes the loud axes of `loud` most, mixed at random; elsewhere it is random."""

    def plant(layer: int, head: int) -> Head:
        other = random_head(10 * layer + head + 1)
        if layer not in layers:
            return other
        inside = frame(300 + 10 * layer + head, axes) @ frame(9)[:axes]
        strength = torch.cat([torch.linspace(2, 1, axes), torch.full((K - axes,), 0.1)])
        left = frame(8000 + 10 * layer + head)[:, :K]
        return replace(other, W_V=left * strength, W_O=torch.cat([inside, frame(9)[axes:K]]))

    return plant


def on_topic(layers: range) -> Plant:
    """In the given layers a head reads and writes sixteen of the topics of `clustered`; elsewhere heads are random."""

    def plant(layer: int, head: int) -> Head:
        other = random_head(10 * layer + head + 1)
        chosen = frame(9)[torch.randperm(40, generator=generator(10 * layer + head))[:K]]
        if layer not in layers:
            return other
        return replace(other, W_V=chosen.T * torch.linspace(2, 1, K), W_O=chosen)

    return plant
