"""Models whose geometry is known in closed form, and the evidence that a survey would gather of them."""

from collections.abc import Callable

import torch
import transformers as tr
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus, Window
from armillary.probes import PROBES
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.probe import AnyProbe, Experimenter
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Finding

D, VOCABULARY, CONTEXT = 32, 1500, 64


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bag(
    embedding: Tensor,
    positions: Tensor | None = None,
    eps: float = 1e-5,
    heads: int = 2,
    unembedding: Tensor | None = None,
) -> Anatomy:
    """A GPT-2 that writes nothing: its stream is token embedding plus position embedding, at every site.

    It predicts by its embedding, or by an `unembedding` of its own.
    """
    config = tr.GPT2Config(
        n_embd=embedding.shape[1],
        n_layer=2,
        n_head=heads,
        vocab_size=len(embedding),
        n_positions=CONTEXT,
        layer_norm_epsilon=eps,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=unembedding is None,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(embedding)
        if unembedding is not None:
            model.lm_head.weight.copy_(unembedding)
        model.transformer.wpe.weight.zero_()
        if positions is not None:
            model.transformer.wpe.weight.copy_(positions)
        for block in model.transformer.h:
            for projection in (block.attn.c_proj, block.mlp.c_proj):
                projection.weight.zero_()
                projection.bias.zero_()
    return read(model, "planted")


def attentive(
    embedding: Tensor,
    heads: int,
    W_Q: Tensor,
    W_K: Tensor,
    b_Q: Tensor | None = None,
    b_K: Tensor | None = None,
    W_V: Tensor | None = None,
    W_O: Tensor | None = None,
) -> Anatomy:
    """A bag whose layers attend by the given matrices [d, d], heads side by side; they write only if told to."""
    made = bag(embedding, heads=heads)
    d = embedding.shape[1]
    nothing, none = torch.zeros(d, d), torch.zeros(d)
    with torch.no_grad():
        for block in made.model.transformer.h:
            block.attn.c_attn.weight.copy_(torch.cat((W_Q, W_K, nothing if W_V is None else W_V), 1))
            block.attn.c_attn.bias.copy_(torch.cat((none if b_Q is None else b_Q, none if b_K is None else b_K, none)))
            block.attn.c_proj.weight.copy_(nothing if W_O is None else W_O)
    return read(made.model, "planted")


def corpus(documents: int = 40, length: int = 60, vocabulary: int = VOCABULARY, seed: int = 1) -> Corpus:
    """Documents of independent uniform tokens."""
    ids = torch.randint(0, vocabulary, (documents, length), generator=generator(seed))
    return _corpus(ids)


def chained(documents: int = 40, length: int = 60, vocabulary: int = 60, seed: int = 1, follows: float = 0.8) -> Corpus:
    """Documents in which most tokens tell the next: t, t + 1, t + 2 …"""
    draw = generator(seed)
    ids = torch.randint(0, vocabulary, (documents, length), generator=draw)
    for t in range(1, length):
        follow = torch.rand(documents, generator=draw) < follows
        ids[:, t] = torch.where(follow, (ids[:, t - 1] + 1) % vocabulary, ids[:, t])
    return _corpus(ids)


def _corpus(ids: Tensor) -> Corpus:
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", len(windows), ids.numel(), ())


INSTRUMENTS = tuple(dict.fromkeys(instrument for probe in PROBES for instrument in probe.instruments))


def evidence(anatomy: Anatomy, text: Corpus) -> Evidence:
    """What a survey gathers with every instrument of the shared pass."""
    return gather(anatomy, text, INSTRUMENTS)


def concluded(probe: AnyProbe, gathered: Evidence) -> Finding:
    """What a probe concludes; one that experiments does so on a bench of its own."""
    if not isinstance(probe, Experimenter):
        return probe.conclude(gathered)
    return probe.conclude(gathered, probe.experiment(bench_of(gathered)))


def bench_of(gathered: Evidence) -> Bench:
    assert gathered.corpus is not None
    return Bench(gathered.anatomy, gathered.corpus, gathered.untrained, gathered.seed)


def tried(probe: AnyProbe, anatomy: Anatomy, text: Corpus) -> Finding:
    """What a probe that reads no instrument concludes from its own passes."""
    return concluded(probe, gather(anatomy, text, ()))


def gaussian(rank: int = D, seed: int = 0) -> Tensor:
    """Independent Gaussian embeddings in `rank` of the D dimensions."""
    basis = torch.linalg.qr(torch.randn(D, D, generator=generator(seed + 7)))[0][:rank]
    return torch.randn(VOCABULARY, rank, generator=generator(seed)) @ basis


Maker = Callable[[], Evidence]
