"""The control models: the same architecture with untrained weights, several times."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.encoder import hearing
from armillary.anatomy.read import read
from armillary.anatomy.signal import with_table

# How many initialisations a survey compares with, by the model's parameters: a pass of each costs as much as the
# model's own.
TWINS = ((50e6, 5), (1e9, 3), (float("inf"), 2))
# Twins are kept while all of them take less memory than this; beyond it only the one in use is.
KEPT_BYTES = 2 << 30
# Tells the seeds of twins from all other seeds that a survey draws.
_STREAM = 0x7717


class Twins(Sequence[Anatomy]):
    """Untrained twins of a model, each made when it is first asked for."""

    def __init__(self, anatomy: Anatomy, seed: int, number: int | None = None) -> None:
        self._anatomy, self._seed = anatomy, seed
        self._number = twins_for(anatomy) if number is None else number
        size = sum(p.numel() * p.element_size() for p in anatomy.model.parameters())
        self._most = self._number if self._number * size <= KEPT_BYTES else 1
        self._twins: dict[int, Anatomy] = {}

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Anatomy: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Anatomy]: ...
    def __getitem__(self, index: int | slice) -> Anatomy | Sequence[Anatomy]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._number))]
        if not -self._number <= index < self._number:
            raise IndexError(f"there are {self._number} twins, not {index + 1}")
        index %= self._number
        if index not in self._twins:
            while len(self._twins) >= self._most:
                self._twins.pop(next(iter(self._twins)))
            self._twins[index] = random_twin(self._anatomy, twin_seed(self._seed, index))
        return self._twins[index]


def twins_for(anatomy: Anatomy) -> int:
    """Five twins of a small model, fewer of a large one."""
    parameters = sum(p.numel() for p in anatomy.model.parameters())
    return next(number for most, number in TWINS if parameters <= most)


def twin_seed(seed: int, index: int) -> int:
    """The seed of one twin of a survey."""
    return int(np.random.SeedSequence([_STREAM, seed, index]).generate_state(1, np.uint64)[0] >> 1)


def random_twin(anatomy: Anatomy, seed: int) -> Anatomy:
    """The same architecture at Hugging Face's own random initialisation, on the same device and dtype."""
    model: Any = anatomy.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        twin = type(model)(model.config)
        # A model with swapped parts is compared with untrained models that have them, too.
        for again in getattr(model, "swapped_by", ()):
            again(twin)
    name = f"{anatomy.name} at random initialisation"
    made = read(twin.to(device=anatomy.device, dtype=anatomy.dtype).eval(), name)
    if anatomy.encoder is not None and anatomy.encoder.sound is not None:
        made = hearing(made, anatomy.encoder.sound)
    return made if anatomy.signal is None else with_table(made, anatomy.signal.table)
