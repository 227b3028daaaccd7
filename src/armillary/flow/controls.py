"""The control model: the same architecture with untrained weights."""

from typing import Any

import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read


def random_twin(anatomy: Anatomy, seed: int) -> Anatomy:
    """The same architecture at Hugging Face's own random initialisation, on the same device and dtype."""
    model: Any = anatomy.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        twin = type(model)(model.config)
    return read(twin.to(device=anatomy.device, dtype=anatomy.dtype).eval(), f"{anatomy.name} at random initialisation")
