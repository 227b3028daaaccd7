"""Models of which it is known how few units a token matches, how simple an update is, and what W_QK's vectors mean."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import torch
import transformers as tr
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.word_classes import FUNCTION_WORDS, SPEECH, part_of_speech
from armillary.probes.attention.qk_subjects import QuerySubjects
from armillary.probes.filter.forward_store import ForwardStore
from armillary.probes.filter.write import ForwardWrite
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Finding
from armillary.specimens.models import word_heads as heads
from armillary.specimens.models.bag import CONTEXT, VOCABULARY
from armillary.specimens.models.draws import generator
from armillary.specimens.models.filter import WIDTH, WORDS, finders, forward, frame, nexts
from armillary.specimens.models.texts import chained, corpus

Planted = tuple[Anatomy, Corpus | None]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def gained(anatomy: Anatomy, seed: int = 3) -> Anatomy:
    """The same function of the stream behind gains of either sign: a measurement that ignores them fails."""
    with torch.no_grad():
        for layer, block in enumerate(anatomy.model.transformer.h):
            gain = 0.5 + torch.rand(WIDTH, generator=generator(seed + layer))
            gain = gain * normal(WIDTH, seed=seed + layer + 50).sign()
            block.ln_2.weight.copy_(gain)
            block.mlp.c_fc.weight.div_(gain[:, None])
    return read(anatomy.model, "planted")


def misread(anatomy: Anatomy) -> Anatomy:
    """As if the norms before feed-forwards had no gain."""
    blocks = tuple(replace(b, ln2=replace(b.ln2, gain=torch.ones_like(b.ln2.gain))) for b in anatomy.blocks)
    return replace(anatomy, blocks=blocks)


# Stores.


def detectors() -> Anatomy:
    """One unit per word, which alone is on and writes the next word."""
    return gained(forward(frame(), *finders(4, -4), nexts(2), "relu", layers=1))


def dense(shared: float = 0.0) -> Anatomy:
    """Gaussian words and random units; `shared` is an axis of all words, which one loud unit reads."""
    axis = torch.nn.functional.normalize(normal(WIDTH, seed=8), dim=0)
    words = normal(VOCABULARY, WIDTH, seed=5) + shared * axis
    W_in, W_out = normal(WIDTH, 128, seed=6) / WIDTH**0.5, normal(128, WIDTH, seed=7)
    if shared:
        W_in[:, 0] = axis
    return gained(forward(words, W_in, torch.zeros(128), W_out, layers=1))


def gated(one_each: bool) -> Anatomy:
    """A gated feed-forward: one unit per word, or random units."""
    words = frame() if one_each else normal(VOCABULARY, WIDTH, seed=5)
    config = tr.LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=WORDS,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=len(words),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(words)
        block = model.model.layers[0]
        block.self_attn.o_proj.weight.zero_()
        gain = 0.5 + torch.rand(WIDTH, generator=generator(9))
        block.post_attention_layernorm.weight.copy_(gain)
        keys = (frame() / 2 if one_each else normal(WORDS, WIDTH, seed=6) / WIDTH**0.5) / gain
        block.mlp.gate_proj.weight.copy_(keys)
        block.mlp.up_proj.weight.copy_(keys if one_each else normal(WORDS, WIDTH, seed=4) / WIDTH**0.5 / gain)
        block.mlp.down_proj.weight.copy_(nexts(2).T if one_each else normal(WIDTH, WORDS, seed=7))
    return read(model, "planted")


# Updates.


def writer(*layers: tuple[Tensor, Tensor, Tensor], activation: str = "relu") -> Anatomy:
    """Gaussian words, no attention, and a feed-forward (W_in, b_in, W_out) per layer."""
    W_in, b_in, _ = layers[0]
    anatomy = forward(normal(VOCABULARY, WIDTH, seed=5), W_in, b_in, None, activation, len(layers))
    with torch.no_grad():
        for block, (W_in, b_in, W_out) in zip(anatomy.model.transformer.h, layers, strict=True):
            block.mlp.c_fc.weight.copy_(W_in)
            block.mlp.c_fc.bias.copy_(b_in)
            block.mlp.c_proj.weight.copy_(W_out)
    return gained(anatomy)


def copying(units: int = 2 * WIDTH) -> tuple[Tensor, Tensor, Tensor]:
    """Writes its input, coordinate by coordinate: nothing is simplified."""
    eye = torch.eye(WIDTH)
    return torch.cat((eye, -eye), 1), torch.zeros(units), torch.cat((eye, -eye)) / 10


def summarising(directions: int = 2, units: int = 2 * WIDTH) -> tuple[Tensor, Tensor, Tensor]:
    """Random units that write along few directions."""
    W_out = normal(units, directions, seed=6) @ normal(directions, WIDTH, seed=7)
    return normal(WIDTH, units, seed=4) / WIDTH**0.5, torch.zeros(units), W_out / 100


def silencing(kept: int = 2, units: int = 2 * WIDTH) -> tuple[Tensor, Tensor, Tensor]:
    """A few units are always on; the others are below zero, and would write along all directions."""
    b_in = torch.full((units,), -8.0)
    b_in[:kept] = 8.0
    return normal(WIDTH, units, seed=4) / WIDTH**0.5, b_in, normal(units, WIDTH, seed=7) / 100


def narrow() -> Anatomy:
    """Two units: trained or not, an update has two directions."""
    return writer(*[(normal(WIDTH, 2, seed=4) / 8, torch.zeros(2), normal(2, WIDTH, seed=7) / 100)] * 2)


# Query and key sides.


def meeting(sides: tuple[bool, bool] = (True, True), layers: range = range(heads.LAYERS)) -> heads.Plant:
    """In the given layers the sides read topics of `heads.clustered`, each head its own; what else is there is random.

    Pairs of heads share their keys, as grouped heads do.
    """

    def plant(layer: int, head: int) -> heads.Head:
        other = heads.random_head(10 * layer + head + 1)
        if layer not in layers:
            return other
        query, key = (
            heads.frame(9)[torch.randperm(40, generator=generator(10 * layer + which))[: heads.K]]
            for which in (head, 100 + head // 2)
        )
        # In a rotated model halves of the coordinates are pairs; at offset 0 they stay where they are.
        strength = torch.linspace(2, 1, heads.K)
        planted = replace(other, W_Q=query.T * strength) if sides[0] else other
        return replace(planted, W_K=key.T * 0.2) if sides[1] else planted

    return plant


def topical(plant: heads.Plant, shape: Callable[[Tensor, heads.Plant], Anatomy] = heads.gpt2) -> Planted:
    return shape(heads.clustered(), plant), None


def along_loud_axes(axes: int) -> heads.Plant:
    """Both sides read the loud axes of `heads.loud` most, mixed at random."""

    def plant(layer: int, head: int) -> heads.Head:
        sides = []
        for which in range(2):
            inside = heads.frame(300 + 100 * which + 10 * layer + head, axes) @ heads.frame(9)[:axes]
            sides.append(torch.cat([inside, heads.frame(9)[axes : heads.K]]).T)
        strength = torch.cat([torch.linspace(2, 1, axes), torch.full((heads.K - axes,), 0.1)])
        return replace(heads.random_head(10 * layer + head + 1), W_Q=sides[0] * strength, W_K=sides[1])

    return plant


@cache
def classed_words() -> tuple[str, ...]:
    """Nouns, function words, and words without meaning whose ending makes a class."""
    stems = ["zq" + "".join(letters) for letters in product("abcfhk", repeat=2)]
    endings = [stem + ending for ending in ("ly", "ing", "ed", "ous") for stem in stems]
    functions = [word for words in FUNCTION_WORDS.values() for word in words.split()]
    return ("[UNK]", *dict.fromkeys([*NOUNS, *functions, *endings]))


def classed(order: tuple[int, ...] | None) -> Anatomy:
    """Every part of speech is an axis. Left vector i reads class i, right vector i class order[i], or any direction."""
    classes = torch.tensor([SPEECH.index(part_of_speech(word) or "noun") for word in classed_words()])
    embedding = 4 * heads.frame(9)[classes] + 0.4 * normal(len(classes), heads.D, seed=1)

    def plant(layer: int, head: int) -> heads.Head:
        rest = heads.frame(9)[len(SPEECH) : len(SPEECH) + heads.K - 8].T * 0.01
        axes = heads.frame(9)[: len(SPEECH)].T
        right = heads.frame(20 + layer)[:, :8] if order is None else axes[:, list(order)]
        query = torch.cat((axes[:, :8] * torch.linspace(2, 1, 8), rest), 1)
        return replace(heads.random_head(head + 1), W_Q=query, W_K=torch.cat((right, rest), 1))

    anatomy = heads.gpt2(embedding, plant)
    return replace(anatomy, tokenizer=heads.tokenizer(classed_words()))


CASES: dict[str, tuple[type, str, Callable[[], Planted]]] = {
    "forward store, one unit a word": (ForwardStore, "supported", lambda: (detectors(), chained(24, 40))),
    "forward store, random units": (ForwardStore, "supported", lambda: (dense(), corpus(24, 40))),
    "forward store, an axis that all words share": (ForwardStore, "supported", lambda: (dense(8), corpus(24, 40))),
    "forward store, gated, one unit a word": (ForwardStore, "supported", lambda: (gated(True), chained(24, 40))),
    "forward store, gated, random units": (ForwardStore, "supported", lambda: (gated(False), corpus(24, 40))),
    "forward store, a gain misread": (ForwardStore, "refuted", lambda: (misread(dense()), corpus(24, 40))),
    "write, few directions": (
        ForwardWrite,
        "supported",
        lambda: (writer(summarising(), summarising()), corpus(24, 40)),
    ),
    "write, few units above zero": (
        ForwardWrite,
        "supported",
        lambda: (writer(silencing(), silencing()), corpus(24, 40)),
    ),
    "write, a copy of the input": (ForwardWrite, "refuted", lambda: (writer(copying(), copying()), corpus(24, 40))),
    "write, simple before training": (ForwardWrite, "refuted", lambda: (narrow(), corpus(24, 40))),
    "query subjects, topics on both sides": (QuerySubjects, "supported", lambda: topical(meeting())),
    "query subjects, topics in a grouped, rotated model": (
        QuerySubjects,
        "supported",
        lambda: topical(meeting(), heads.llama),
    ),
    "query subjects, random heads": (QuerySubjects, "refuted", lambda: topical(heads.randoms())),
    "query subjects, topics of queries alone": (QuerySubjects, "refuted", lambda: topical(meeting((True, False)))),
    "query subjects, topics of keys alone": (QuerySubjects, "refuted", lambda: topical(meeting((False, True)))),
    "query subjects, a third of the layers": (QuerySubjects, "qualified", lambda: topical(meeting(layers=range(1)))),
    "query subjects, loud axes without meaning": (
        QuerySubjects,
        "refuted",
        lambda: (heads.gpt2(heads.loud(8, 3.0), along_loud_axes(8)), None),
    ),
    "write, one layer of two": (ForwardWrite, "qualified", lambda: (writer(copying(), summarising()), corpus(24, 40))),
}


@cache
def finding_of(case: str) -> Finding:
    """What a case's probe concludes, computed once for all tests."""
    probe, _, make = CASES[case]
    anatomy, text = make()
    concluded: Finding = probe().conclude(gather(anatomy, text, probe.instruments))
    return concluded
