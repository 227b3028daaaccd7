"""Models for chapter D that write text of their own: with a loud word, with words of one length, or into a loop."""

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import normal

WIDTH, WORDS, CONTEXT = 64, 48, 64
"""A context of 64: windows of 32 tokens."""


def writer(embedding: Tensor, unembedding: Tensor, attends: float = 0.0) -> Anatomy:
    """A GPT-2 without positions whose only layer adds `attends` times the mean of what its norm gave so far."""
    model = blank_gpt2(len(embedding), WIDTH, 1, 1, CONTEXT, tie_word_embeddings=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        block = model.transformer.h[0]
        for norm in (model.transformer.ln_f, block.ln_1, block.ln_2):
            norm.weight.fill_(1.0)
        model.transformer.wte.weight.copy_(embedding)
        model.lm_head.weight.copy_(unembedding)
        eye = torch.eye(WIDTH)
        block.attn.c_attn.weight[:, 2 * WIDTH :] = eye
        block.attn.c_proj.weight.copy_(attends * eye)
    return read(model, "planted")


def plane_words(seed: int = 0) -> Tensor:
    """Orthonormal words in the plane that LayerNorm leaves: all have one length."""
    columns = torch.cat((torch.ones(WIDTH, 1), normal(WIDTH, WIDTH - 1, stream=3, seed=seed)), 1)
    return torch.linalg.qr(columns)[0][:, 1 : WORDS + 1].T


def loud(times: float = 60.0, seed: int = 0) -> Anatomy:
    """One word is so many times as long as the others. Live norms make it as loud as any; frozen ones let it drown the
    mean of the context, which predicts the word itself: it is written for ever."""
    embedding = plane_words(seed)
    unembedding = 0.2 * embedding
    embedding[0] *= times
    return writer(embedding, unembedding, attends=0.5)


def even(seed: int = 0) -> Anatomy:
    """All states have one length, so freezing the norms changes nothing."""
    embedding = plane_words(seed)
    return writer(embedding, 0.2 * embedding)


def absorbing(seed: int = 0) -> Anatomy:
    """Once a certain word is written, it is written for ever; in most texts that happens after the first window."""
    embedding = plane_words(seed)
    unembedding = torch.zeros_like(embedding)
    # States are 8 long: after another word it is a third as likely as any, about once in 140 tokens.
    unembedding[0] = 1.5 * embedding[0] - 0.14 * embedding[1:].sum(0)
    return writer(embedding, unembedding)
