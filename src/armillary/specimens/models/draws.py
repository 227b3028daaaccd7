"""Where do a specimen's random numbers come from? From numbered streams, of which each draw has its own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# Larger than the number of any stream, so that no two draws share one.
_STRIDE = 1_000_003


def number(stream: int, seed: int) -> int:
    """The seed of one stream of one draw.

    >>> number(7, 0), number(7, 2)
    (7, 2000013)
    """
    assert 0 <= stream < _STRIDE
    return stream + _STRIDE * seed


def generator(stream: int = 0, seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number(stream, seed))


def normal(*shape: int, stream: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(stream, seed))


@contextmanager
def seeded(stream: int, seed: int = 0) -> Iterator[None]:
    """For what draws from torch's own generator, as Hugging Face's initialisation does."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number(stream, seed))
        yield
