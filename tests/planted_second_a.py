"""Models of which it is known how few units a token matches, how simple an update is, and what W_QK's vectors mean."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
import transformers as tr
from planted import CONTEXT, VOCABULARY, chained, corpus, generator
from planted_filter import WIDTH, WORDS, finders, forward, frame, nexts
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.probes.filter.forward_store import ForwardStore
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Finding

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


CASES: dict[str, tuple[type, str, Callable[[], Planted]]] = {
    "forward store, one unit a word": (ForwardStore, "supported", lambda: (detectors(), chained(24, 40))),
    "forward store, random units": (ForwardStore, "supported", lambda: (dense(), corpus(24, 40))),
    "forward store, an axis that all words share": (ForwardStore, "supported", lambda: (dense(8), corpus(24, 40))),
    "forward store, gated, one unit a word": (ForwardStore, "supported", lambda: (gated(True), chained(24, 40))),
    "forward store, gated, random units": (ForwardStore, "supported", lambda: (gated(False), corpus(24, 40))),
    "forward store, a gain misread": (ForwardStore, "refuted", lambda: (misread(dense()), corpus(24, 40))),
}


@cache
def finding_of(case: str) -> Finding:
    """What a case's probe concludes, computed once for all tests."""
    probe, _, make = CASES[case]
    anatomy, text = make()
    concluded: Finding = probe().conclude(gather(anatomy, text, probe.instruments))
    return concluded
