"""Models with a grid that is known: heads whose axes can change places, heads with one purpose, states that agree over a
known distance; and text that a model wrote itself, so that whatever is changed in it costs something."""

import math
from collections.abc import Callable

import torch
import transformers as tr
from planted import generator
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.probes.grid.axes import HeadAxes

D, HEADS, K, LAYERS, WORDS, CONTEXT = 32, 4, 8, 2, 60, 64


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def gpt2(
    change: Callable[[int, Tensor, Tensor, Tensor, Tensor], None] | None = None,
    layers: int = LAYERS,
    heads: int = HEADS,
    words: Tensor | None = None,
    places: Tensor | None = None,
    sharp: float = 0.4,
) -> Anatomy:
    """Random heads that write much; `change` may alter a layer's W_Q, W_K, W_V [d, d] and W_O [d, d] in place."""
    words = normal(WORDS, D, seed=1) if words is None else words
    d = words.shape[1]
    config = tr.GPT2Config(
        n_embd=d,
        n_layer=layers,
        n_head=heads,
        vocab_size=len(words),
        n_positions=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(words)
        model.transformer.wpe.weight.copy_(torch.zeros(CONTEXT, d) if places is None else places)
        model.lm_head.weight.copy_(sharp * normal(len(words), d, seed=2))
        for layer, block in enumerate(model.transformer.h):
            block.mlp.c_proj.weight.zero_()
            parts = [normal(d, d, seed=10 * layer + part + 3) / math.sqrt(d) for part in range(4)]
            parts[3] *= 2
            if change is not None:
                change(layer, *parts)
            block.attn.c_attn.weight.copy_(torch.cat(parts[:3], 1))
            block.attn.c_proj.weight.copy_(parts[3])
    return read(model, "planted")


def written(anatomy: Anatomy, documents: int = 24, length: int = 40, seed: int = 5) -> Corpus:
    """Text drawn from the model itself, token by token: no other model foretells it better on average."""
    draw = generator(seed)
    ids = torch.randint(0, anatomy.vocabulary, (documents, 1), generator=draw)
    with still(anatomy.model):
        while ids.shape[1] < length:
            chances = run(anatomy, ids, logits=True)[:, -1].float().softmax(-1)
            ids = torch.cat((ids, torch.multinomial(chances, 1, generator=draw)), 1)
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", len(windows), ids.numel(), ())


# Axes.


def interchangeable(results: bool = True, queries: bool = True) -> Anatomy:
    """All axes of a head are read alike: of its results W_O takes the sum, of its queries the keys do."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        if results:
            rows = W_O.reshape(HEADS, K, D)
            rows.copy_(rows[:, :1].clone().expand_as(rows))
        if queries:
            columns = W_K.reshape(D, HEADS, K)
            columns.copy_(2 * columns[..., :1].clone().expand_as(columns))

    return gpt2(change)


CASES = {
    "axes, interchangeable within heads": (HeadAxes, "supported", interchangeable),
    "axes, interchangeable in results alone": (HeadAxes, "qualified", lambda: interchangeable(queries=False)),
    "axes, each with a part of its own": (HeadAxes, "refuted", gpt2),
    "axes, one head": (HeadAxes, "undecided", lambda: gpt2(heads=1)),
}
