"""An embedding that writes its rows times one learned number; a tied unembedding reads the rows as they are."""

import torch
from torch import Tensor, nn


class ScaledEmbedding(nn.Module):
    """scale · rows. Without a norm after it, an embedding of ordinary size is too quiet (Zhu et al. 2025)."""

    def __init__(self, rows: nn.Embedding, scale: float) -> None:
        super().__init__()
        self.rows = rows
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, ids: Tensor) -> Tensor:
        return self.rows(ids) * self.scale
