"""Where are the largest coordinates of the stream, how large are they beside the others, and what depends on them?"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import changing
from armillary.flow.tokens import Batch
from armillary.probes.machinery import Floats, Ints, T
from armillary.probes.machinery.bench import Bench, Trials

ZERO, MEAN, OTHERS = "set to zero", "set to their mean", "other coordinates set to zero"


@dataclass(frozen=True, eq=False)
class Extremes:
    """The largest coordinate of every document at every state of the stream: [document, state]."""

    states: tuple[str, ...]
    document: Ints
    value: Floats
    """Signed."""
    dimension: Ints
    position: Ints
    token: Ints
    magnitude: Floats
    """The median |x| of the document's tokens."""
    elsewhere: Floats
    """Share of the document's other tokens that reach half of the largest value in its dimension."""

    @property
    def typical(self) -> Floats:
        """[state]: the state's median magnitude."""
        return np.asarray(np.median(self.magnitude, axis=0))

    @property
    def ratios(self) -> Floats:
        """[document, state]: the largest magnitude, over the state's median."""
        return np.asarray(np.abs(self.value) / np.maximum(self.typical, 1e-300))


def states_of(anatomy: Anatomy) -> tuple[str, ...]:
    return ("L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(anatomy.layers)))


def extremes(bench: Bench) -> Extremes:
    """On the evaluation text, one row per window (its beginning is all that is read of a document)."""
    states, rows = states_of(bench.anatomy), []
    for batch in bench.batches():
        streams = bench.states(batch, states)
        for row, window in enumerate(batch.windows):
            ids = window.ids
            largest = [_largest(streams[state][row, : len(ids)]) for state in states]
            rows.append([(window.document, value, d, t, ids[t], *rest) for value, d, t, *rest in largest])
    columns = np.moveaxis(np.array(rows, dtype=np.float64), -1, 0)
    whole = [columns[i].astype(np.int64) for i in (0, 2, 3, 4)]
    dimension, position, token = whole[1:]
    return Extremes(states, whole[0][:, 0], columns[1], dimension, position, token, columns[5], columns[6])


def _largest(stream: Tensor) -> tuple[float, int, int, float, float]:
    """Value, dimension and position of the largest coordinate of [t, d], the median magnitude, and the share of other
    tokens that reach half of the value there."""
    size = stream.abs()
    place = int(size.argmax())
    t, dimension = divmod(place, stream.shape[1])
    reach = int((size[:, dimension] >= size[t, dimension] / 2).sum()) - 1
    return float(stream[t, dimension]), dimension, t, float(size.median()), reach / max(1, len(stream) - 1)


@dataclass(frozen=True, eq=False)
class SetOutliers:
    """Set coordinates of a state that reach `bound` to given values [d], or as many others of the same tokens to 0."""

    state: str
    bound: float
    values: Tensor
    others: int = 0
    """How far to roll to the other coordinates; 0 for the outliers themselves."""
    example: ClassVar[str] = 'SetOutliers("L2.resid_post", bound=100.0, values=zeros)'

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        def change(stream: Tensor, given: Tensor | None) -> Tensor:
            large = stream.abs() >= self.bound
            if self.others:
                large = large.roll(self.others, -1) & ~large
            return torch.where(large, self.values.to(stream), stream)

        with changing(anatomy, self.state, change):
            yield


def intervene(bench: Bench, largest: Extremes) -> tuple[str, Trials] | None:
    """What it costs to set the outliers to zero or to their mean, where they first appear; None where there are none,
    or where nothing is predicted."""
    large = np.median(largest.ratios, axis=0) >= T.massive_outlier
    if not large.any() or not bench.scored:
        return None
    at = int(np.argmax(large))
    state, bound = largest.states[at], float(T.massive_outlier * largest.typical[at])
    means = _means(bench, state, bound)
    nothing = torch.zeros_like(means)
    trials = {
        ZERO: (SetOutliers(state, bound, nothing),),
        MEAN: (SetOutliers(state, bound, means),),
        OTHERS: (SetOutliers(state, bound, nothing, others=bench.anatomy.d // 3 + 1),),
    }
    return state, bench.compare(trials)


def _means(bench: Bench, state: str, bound: float) -> Tensor:
    """[d]: the mean of each coordinate over the tokens where it reaches the bound."""
    total, count = torch.zeros(bench.anatomy.d), torch.zeros(bench.anatomy.d)
    for batch in bench.batches():
        stream = bench.states(batch, (state,))[state].float().cpu()
        large = (stream.abs() >= bound) & _real(batch)
        total += (stream * large).sum((0, 1))
        count += large.sum((0, 1))
    return total / count.clamp_min(1)


def _real(batch: Batch) -> Tensor:
    return batch.mask[..., None]
