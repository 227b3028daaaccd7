"""A model that writes nothing, so that its stream is what was embedded; and one that attends by given matrices."""

from typing import Any

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import normal

D, VOCABULARY, CONTEXT = 32, 1500, 64


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
    model = blank_gpt2(
        len(embedding),
        embedding.shape[1],
        2,
        heads,
        CONTEXT,
        layer_norm_epsilon=eps,
        tie_word_embeddings=unembedding is None,
    )
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
    model: Any = bag(embedding, heads=heads).model
    d = embedding.shape[1]
    nothing, zeros = torch.zeros(d, d), torch.zeros(d)
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight.copy_(torch.cat((W_Q, W_K, nothing if W_V is None else W_V), 1))
            block.attn.c_attn.bias.copy_(
                torch.cat((zeros if b_Q is None else b_Q, zeros if b_K is None else b_K, zeros))
            )
            block.attn.c_proj.weight.copy_(nothing if W_O is None else W_O)
    return read(model, "planted")


def gaussian(rank: int = D, seed: int = 0) -> Tensor:
    """Independent Gaussian embeddings in `rank` of the D dimensions."""
    basis = torch.linalg.qr(normal(D, D, stream=7, seed=seed))[0][:rank]
    return normal(VOCABULARY, rank, stream=0, seed=seed) @ basis
