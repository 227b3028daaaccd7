"""The control models: the same architecture with untrained weights, several times."""

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, overload

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.encoder import hearing
from armillary.anatomy.entries.signal import with_table
from armillary.anatomy.read import read

# How many initialisations a survey compares with, by the model's parameters: a pass of each costs as much as the
# model's own.
TWINS = ((50e6, 5), (1e9, 3), (float("inf"), 2))
# Twins are kept while all of them take less memory than this; beyond it only the one in use is. On a GPU, this share of
# its memory.
KEPT_BYTES = 2 << 30
KEPT_SHARE = 1 / 4
# A GPU draws the weights of a larger model itself: a CPU takes 18 s for a billion. They are other draws of the same
# distribution than a CPU's.
DRAWN_THERE = 200e6
# Tells the seeds of twins from all other seeds that a survey draws.
_STREAM = 0x7717


class Twins(Sequence[Anatomy]):
    """Untrained twins of a model, each made when it is first asked for."""

    def __init__(self, anatomy: Anatomy, seed: int, number: int | None = None) -> None:
        self._anatomy, self._seed = anatomy, seed
        self._number = twins_for(anatomy) if number is None else number
        room = _room(anatomy.device)
        self._most = self._number if self._number * anatomy.weight_bytes <= room else 1
        self._twins: dict[int, Anatomy] = {}
        # Sites are measured in threads, and each asks for the model.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self._number

    @property
    def one_at_a_time(self) -> bool:
        """Are twins too large to keep all of them?"""
        return self._most < self._number

    @overload
    def __getitem__(self, index: int) -> Anatomy: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Anatomy]: ...
    def __getitem__(self, index: int | slice) -> Anatomy | Sequence[Anatomy]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._number))]
        if not -self._number <= index < self._number:
            raise IndexError(f"there are {self._number} twins, not {index + 1}")
        with self._lock:
            return self._twin(index % self._number)

    def _twin(self, index: int) -> Anatomy:
        if index not in self._twins:
            if len(self._twins) >= self._most:
                while len(self._twins) >= self._most:
                    self._twins.pop(next(iter(self._twins)))
                # A model's modules refer to each other in circles, and its gigabytes do not make Python look for them.
                gc.collect()
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
    there = anatomy.device.type == "cuda" and sum(p.numel() for p in model.parameters()) > DRAWN_THERE
    devices = [anatomy.device] if there else []
    with torch.random.fork_rng(devices=devices), _drawn_by(anatomy) if there else nullcontext():
        torch.manual_seed(seed)
        twin = type(model)(model.config)
        # A model with swapped parts is compared with untrained models that have them, too.
        for again in getattr(model, "swapped_by", ()):
            again(twin)
    name = f"{anatomy.name} at random initialisation"
    untrained = read(twin.to(device=anatomy.device, dtype=anatomy.dtype).eval(), name)
    if anatomy.encoder is not None and anatomy.encoder.sound is not None:
        untrained = hearing(untrained, anatomy.encoder.sound)
    return untrained if anatomy.signal is None else with_table(untrained, anatomy.signal.table)


def _room(device: torch.device) -> float:
    """How much memory twins may take."""
    if device.type != "cuda":
        return KEPT_BYTES
    return max(KEPT_BYTES, KEPT_SHARE * torch.cuda.get_device_properties(device).total_memory)


@contextmanager
def _drawn_by(anatomy: Anatomy) -> Iterator[None]:
    """New parameters are made on the model's device and in its dtype: a float32 copy of a large one would not fit."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(anatomy.dtype)
    try:
        with anatomy.device:
            yield
    finally:
        torch.set_default_dtype(before)
