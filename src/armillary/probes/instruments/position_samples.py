"""What do norms receive near the beginning of a window, and far into it? As many tokens of every range of positions."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.probes.instruments.samples import SampleWatch, TokenSamples, bar_of, ranks_of
from armillary.probes.machinery import ARMS

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus

# Each range is four times as long as the one before; first positions are no ordinary tokens and are in none.
EDGES = (1, 8, 32, 128, 512)


def ranges() -> list[str]:
    """
    >>> ranges()
    ['1–7', '8–31', '32–127', '128–511', '512 on']
    """
    ends = [f"{start}–{stop - 1}" for start, stop in pairwise(EDGES)]
    return [*ends, f"{EDGES[-1]} on"]


@dataclass(frozen=True)
class PositionSamples:
    """The instrument: up to `each` tokens of every range of positions, at every norm."""

    each: int = 256
    name: str = "samples by position"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "PositionWatch":
        return PositionWatch(anatomy, corpus, self.each)

    def count(self, state: TokenSamples) -> tuple[int, str]:
        return min(int((r.sample().marks == 0).sum()) for r in state.rows.values()), "ordinary tokens"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 4 * self.each * len(EDGES) * anatomy.d * len(anatomy.norms)


class PositionWatch(SampleWatch):
    def __init__(self, anatomy: "Anatomy", corpus: "Corpus", each: int) -> None:
        super().__init__(anatomy, corpus, each * len(EDGES), tuple(anatomy.norms))
        self._bars = _bars(corpus, each)

    def _chosen(self, position: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.bool_]:
        import torch

        chosen: NDArray[np.bool_] = rank <= self._bars.numpy()[range_of(torch.from_numpy(position)).numpy()]
        return chosen


def range_of(position: "Tensor") -> "Tensor":
    """The number of the range that a position (1 or more) lies in."""
    import torch

    return torch.bucketize(position.contiguous(), torch.tensor(EDGES), right=True) - 1


def _bars(corpus: "Corpus", each: int) -> "Tensor":
    """For each range the priority up to which a token is sampled."""
    import torch

    places = corpus.places()
    rank, where = ranks_of(corpus), range_of(places[:, 1])
    return torch.tensor([bar_of(rank[where == index], each) for index in range(len(EDGES))])


POSITION_SAMPLES = PositionSamples()
