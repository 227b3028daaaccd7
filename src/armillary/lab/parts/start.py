"""What a GPT-2 is before training: tied or not, and how large its first weights are."""

from typing import Any

import torch
from torch import nn

from armillary.errors import ArmillaryError


def prepare(model: Any, untied: bool = False, scale: float = 1.0, embedding_scale: float = 1.0) -> None:
    """Give the unembedding its own copy of the embedding, multiply every matrix by `scale`, and the embedding, the
    positions and the unembedding by `embedding_scale`, in place."""
    if min(scale, embedding_scale) <= 0:
        raise ArmillaryError(f"the initial scale must be above 0, got {min(scale, embedding_scale)}.")
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
