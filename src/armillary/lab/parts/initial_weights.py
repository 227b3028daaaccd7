"""What a GPT-2 is before training: tied or not, and how large its first weights are."""

from typing import Any

import torch
from torch import nn

from armillary.errors import ArmillaryError


def prepare(
    model: Any, untied: bool = False, scale: float = 1.0, embedding_scale: float = 1.0, attention_scale: float = 1.0
) -> None:
    """Change a new GPT-2 in place.

    The unembedding gets its own copy of the embedding if `untied`. Every matrix is multiplied by `scale`; the
    embedding, the positions and the unembedding by `embedding_scale`; the products W_QK and W_VO by `attention_scale`,
    so each of the four matrices by its square root.
    """
    if (least := min(scale, embedding_scale, attention_scale)) <= 0:
        raise ArmillaryError(f"the initial scale must be above 0, got {least}.")
    head = model.get_output_embeddings()
    if untied and head.weight is model.get_input_embeddings().weight:
        head.weight = nn.Parameter(head.weight.detach().clone())
        model.config.tie_word_embeddings = False
    tables = {id(table): table for table in (model.base_model.wte.weight, model.base_model.wpe.weight, head.weight)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
        for table in tables.values():
            table.mul_(embedding_scale)
        for layer in model.base_model.h:
            for projection in (layer.attn.c_attn, layer.attn.c_proj):
                projection.weight.mul_(attention_scale**0.5)
