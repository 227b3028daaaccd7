"""Models for chapter F whose heads write much in regions of their own, in the same ones, or in none."""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.specimens.models.draws import normal
from armillary.specimens.models.heads.grid_models import CONTEXT, gpt2

WORDS, AREAS, OTHER = 256, 8, 32
D = CONTEXT + AREAS + OTHER
SPOT, REST = slice(0, CONTEXT), slice(CONTEXT + AREAS, D)
"""Where the stream keeps a token's place, and everything about it besides its region, which is in between."""


def regional(areas: Sequence[Sequence[int]], sizes: Sequence[float], layers: int = 2, seed: int = 0) -> Anatomy:
    """Words in eight regions; every head looks at its own token alone, and writes much in these regions, little in
    others; `sizes` says how much. Heads without a region write what has nothing to do with it."""
    words = torch.zeros(WORDS, D)
    words[torch.arange(WORDS), CONTEXT + torch.arange(WORDS) % AREAS] = 12.0
    words[:, REST] = normal(WORDS, OTHER, stream=3, seed=seed)
    places = torch.zeros(CONTEXT, D)
    places[:, SPOT] = 6 * torch.eye(CONTEXT)
    heads, k = len(areas), D // len(areas)

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        for head, own in enumerate(areas):
            first, last = k * head, k * (head + 1)
            # A head narrower than the places tells them apart well enough by random codes.
            spots = torch.nn.functional.normalize(normal(CONTEXT, k, stream=head, seed=seed), dim=1)
            W_Q[SPOT, first:last], W_K[SPOT, first:last] = 30 * spots, spots
            W_V[REST, first : last - AREAS] = 0.1 * normal(OTHER, k - AREAS, stream=20 + head, seed=seed)
            for area in own:
                W_V[CONTEXT + area, last - AREAS + area] = 0.5 * sizes[head]
            turn = torch.linalg.qr(normal(OTHER, OTHER, stream=40 + head, seed=seed))[0]
            W_O[first:last, REST] = 0.05 * turn[:k]

    return gpt2(change, layers=layers, heads=heads, words=words, places=places, seed=seed)
