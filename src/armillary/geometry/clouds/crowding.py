"""Which directions have many others close by?

All pairs would take v²·d steps: minutes for 50 000 words. Random planes through the origin sort directions into cells:
two that are 26° apart lie on the same side of a plane in six of seven cases, unrelated ones in one of two. Directions
that share a cell often are the candidates, and only their cosines are computed.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from armillary.geometry.readout import SCORES

# Sorted this often, directions in a crowd are found; each time by so many planes that there are 2^SPARSE cells or more
# per direction, so that few share one by chance.
SORTINGS, SPARSE = 16, 4


def crowded(rows: Float[Tensor, "v d"], cosine: float, others: int) -> Bool[Tensor, " v"]:
    """Which rows, centred, have at least so many others at a larger cosine? Others are counted among candidates.

    >>> crowd, apart = torch.ones(5, 32) + 0.1 * torch.eye(5, 32), 9 * torch.eye(32)
    >>> crowded(torch.cat([crowd, apart]), 0.9, 4).nonzero().ravel()
    tensor([0, 1, 2, 3, 4])
    """
    unit = rows - rows.mean(0)
    # In place: of a large vocabulary a copy takes gigabytes.
    unit.div_(unit.norm(dim=-1, keepdim=True).clamp_min_(1e-12))
    candidates = _meetings(unit, planes := _planes(len(unit))) >= _expected(cosine, others, planes) / 2
    some, is_crowded = unit[candidates], torch.zeros(len(unit), dtype=torch.bool, device=unit.device)
    parts = torch.split(some, max(1, SCORES // max(1, len(some))))
    # A direction has the cosine 1 with itself.
    counts = [(part @ some.mT > cosine).sum(1) - 1 for part in parts if len(part)]
    is_crowded[candidates] = torch.cat([*counts, is_crowded.new_zeros(0, dtype=torch.long)]) >= others
    return is_crowded


def _planes(count: int) -> int:
    return math.ceil(math.log2(max(count, 2))) + SPARSE


def _expected(cosine: float, others: int, planes: int) -> float:
    """How often a direction meets others at this cosine: of each plane both lie on the same side with 1 − angle/π."""
    return SORTINGS * others * (1 - math.acos(cosine) / math.pi) ** planes


def _meetings(unit: Float[Tensor, "v d"], planes: int) -> Tensor:
    """[v]: in how many sortings times with how many others a direction shares a cell."""
    # The same planes on every machine and device.
    draw = np.random.default_rng(0)
    met = torch.zeros(len(unit), dtype=torch.long, device=unit.device)
    powers = 2 ** torch.arange(planes, device=unit.device)
    for _ in range(SORTINGS):
        normals = torch.from_numpy(draw.standard_normal((unit.shape[1], planes))).to(unit)
        cells = ((unit @ normals > 0) * powers).sum(1)
        _, cell, sizes = torch.unique(cells, return_inverse=True, return_counts=True)
        met += sizes[cell] - 1
    return met
