"""Training runs and generators of which the answer is known: roles that follow the gradient or flee it."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import transformers as tr
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.steps import find_checkpoints
from armillary.anatomy.read import read
from armillary.flow.capture import run as run_model
from armillary.flow.capture import still
from armillary.flow.tokens import Corpus, Window
from armillary.probes.grid.emerge import HeadEmergence
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.stability.generation import Generation
from armillary.results import Finding

# Emergence.

WORDS, CONTEXT, HEADS, COPYING, CODE = 60, 64, 4, 2, 64
D = HEADS * CODE
PLACE, WORD, BEFORE, GUESS = (slice(CODE * i, CODE * (i + 1)) for i in range(4))
"""Where the stream keeps a token's place, its word, the word before it, and what is guessed to come next."""
USEFUL = torch.linspace(0.1, 0.9, COPYING * HEADS).reshape(HEADS, COPYING).T
"""[copying layer, head]: how much of what a head writes is the word that it looks at."""


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def words(documents: int = 16, length: int = 40, seed: int = 1) -> Corpus:
    """Documents of independent uniform words."""
    ids = torch.randint(0, WORDS, (documents, length), generator=torch.Generator().manual_seed(seed))
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", documents, ids.numel(), ())


def copier(sharpness: Tensor) -> tr.GPT2LMHeadModel:
    """Layer 0 looks one token back. Each head of the later layers looks for what followed the same word, as sharply as
    told [layer, head]; useful heads write the word they find, the others mostly noise. So the loss on repeated words
    sends its gradient to useful heads, that on other words to the others."""
    config = tr.GPT2Config(
        n_embd=D,
        n_layer=1 + COPYING,
        n_head=HEADS,
        n_inner=8,
        vocab_size=WORDS,
        n_positions=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    codes = torch.eye(CODE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for norm in (model.transformer.ln_f, *(n for b in model.transformer.h for n in (b.ln_1, b.ln_2))):
            norm.weight.fill_(1.0)
        model.transformer.wte.weight[:, WORD] = 6 * codes[:WORDS]
        model.transformer.wpe.weight[:, PLACE] = 6 * codes
        model.lm_head.weight[:, GUESS] = codes[:WORDS]
        first, *others = (block.attn for block in model.transformer.h)
        first.c_attn.weight[PLACE, :CODE] = 3 * codes.roll(-1, 1)
        first.c_attn.weight[PLACE, D : D + CODE] = codes
        first.c_attn.weight[WORD, 2 * D : 2 * D + CODE] = codes
        first.c_proj.weight[:CODE, BEFORE] = codes
        for layer, attention in enumerate(others):
            for head in range(HEADS):
                q, k, v = (slice(side * D + CODE * head, side * D + CODE * (head + 1)) for side in range(3))
                attention.c_attn.weight[WORD, q] = float(sharpness[layer, head]) * codes
                attention.c_attn.weight[BEFORE, k] = codes
                attention.c_attn.weight[WORD, v] = codes
                noise, use = normal(CODE, CODE, seed=HEADS * layer + head) / CODE**0.5, float(USEFUL[layer, head])
                attention.c_proj.weight[q, GUESS] = 0.2 * (use * codes + (1 - use) * noise)
    return model


def run_folder(folder: Path, models: Sequence[tr.PreTrainedModel], name: str = "checkpoint-{}") -> Path:
    """Models as the checkpoints of one run, in the layout of Hugging Face's Trainer."""
    for number, model in enumerate(models):
        model.save_pretrained(folder / name.format(100 * number))
    return folder


def emerged(models: Sequence[tr.PreTrainedModel], text: Corpus | None = None, seed: int = 0) -> Finding:
    """What heads.emerge concludes from these checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = find_checkpoints(run_folder(Path(folder), models))
        anatomy = replace(load_model(checkpoints.last), checkpoints=checkpoints)
        evidence = gather(anatomy, text or words(), (), seed)
        bench = Bench(anatomy, text or words(), (), seed)
        probe = HeadEmergence()
        return probe.conclude(evidence, probe.experiment(bench))


def sharpening(towards: Tensor, steps: int = 4) -> list[tr.GPT2LMHeadModel]:
    """Heads that look for repeated words more sharply from checkpoint to checkpoint, each by its own amount."""
    return [copier(0.3 * step * towards) for step in range(steps)]


def followed() -> Finding:
    """The more useful a head is, the more of the role it gains."""
    return emerged(sharpening(USEFUL))


def fled() -> Finding:
    """The less useful a head is, the more of the role it gains."""
    return emerged(sharpening(1 - USEFUL))


def unmoved() -> Finding:
    """Nothing changes from checkpoint to checkpoint."""
    return emerged(sharpening(0 * USEFUL))


# Long generations.

SMALL = 64
"""Width of the models that write, and their context: windows of 32 tokens."""


def writer(embedding: Tensor, unembedding: Tensor, attends: float = 0.0) -> Anatomy:
    """A GPT-2 without positions whose only layer adds `attends` times the mean of what its norm gave so far."""
    config = tr.GPT2Config(
        n_embd=embedding.shape[1],
        n_layer=1,
        n_head=1,
        vocab_size=len(embedding),
        n_positions=SMALL,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        block = model.transformer.h[0]
        for norm in (model.transformer.ln_f, block.ln_1, block.ln_2):
            norm.weight.fill_(1.0)
        model.transformer.wte.weight.copy_(embedding)
        model.lm_head.weight.copy_(unembedding)
        eye = torch.eye(embedding.shape[1])
        block.attn.c_attn.weight[:, 2 * len(eye) :] = eye
        block.attn.c_proj.weight.copy_(attends * eye)
    return read(model, "planted")


def plane_words(count: int = 48) -> Tensor:
    """Orthonormal words in the plane that LayerNorm leaves: all have one length."""
    columns = torch.cat((torch.ones(SMALL, 1), normal(SMALL, SMALL - 1, seed=3)), 1)
    return torch.linalg.qr(columns)[0][:, 1 : count + 1].T


def own_text(anatomy: Anatomy, documents: int = 30, length: int = 60, seed: int = 5) -> Corpus:
    """Text drawn from the model itself, with norms live."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, anatomy.vocabulary, (documents, 1), generator=draw)
    with still(anatomy.model):
        while ids.shape[1] < length:
            chances = run_model(anatomy, ids[:, -SMALL:], logits=True)[:, -1].softmax(-1)
            ids = torch.cat((ids, torch.multinomial(chances, 1, generator=draw)), 1)
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", documents, ids.numel(), ())


def loud() -> Anatomy:
    """One word is 60 times as long as the others. Live norms make it as loud as any; frozen ones let it drown the mean
    of the context, which predicts the word itself: it is written for ever."""
    embedding = plane_words()
    unembedding = 0.2 * embedding
    embedding[0] *= 60
    return writer(embedding, unembedding, attends=0.5)


def alike() -> Anatomy:
    """All states have one length, so freezing the norms changes nothing."""
    embedding = plane_words()
    return writer(embedding, 0.2 * embedding)


def absorbing() -> Anatomy:
    """Once a certain word is written, it is written for ever; in most texts that happens after the first window."""
    embedding = plane_words()
    unembedding = torch.zeros_like(embedding)
    # States are 8 long: after another word it is a third as likely as any, about once in 140 tokens.
    unembedding[0] = 1.5 * embedding[0] - 0.14 * embedding[1:].sum(0)
    return writer(embedding, unembedding)


def generated(anatomy: Anatomy, text: Corpus, seed: int = 0) -> Finding:
    probe = Generation()
    return probe.conclude(gather(anatomy, text, (), seed), probe.experiment(Bench(anatomy, text, (), seed)))


CASES: dict[str, tuple[type, str, Callable[[], Finding]]] = {
    "emergence, roles follow the gradient": (HeadEmergence, "supported", followed),
    "emergence, roles flee the gradient": (HeadEmergence, "refuted", fled),
    "emergence, nothing emerges": (HeadEmergence, "undecided", unmoved),
    "generation, a loud word": (Generation, "supported", lambda: generated(loud(), own_text(loud()))),
    "generation, words of one length": (Generation, "refuted", lambda: generated(alike(), own_text(alike()))),
    "generation, a word without return": (Generation, "refuted", lambda: generated(absorbing(), own_text(alike()))),
}


@cache
def finding_of(case: str) -> Finding:
    """What a case's probe concludes, computed once for all tests."""
    return CASES[case][2]()
