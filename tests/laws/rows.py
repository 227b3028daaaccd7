"""The measures that the laws run over: a stream for each, its empty state, and what of its state is compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from laws.bounds import Bound, exact, moments_batch, moments_merge, scalars_bound
from torch import Tensor

from armillary.measures import GroupedScalars, Histogram, Moments, QuantileSketch, Reservoir, TopK

Stream = tuple[Tensor, ...]  # aligned along the first axis
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Row:
    kind: type
    stream: Callable[[np.random.Generator, int], Stream]
    empty: Callable[[], Any]
    of: Callable[..., Any]
    state: Callable[[Any], State]
    merge: Callable[..., Bound] = exact
    batch: Callable[..., Bound] = exact
    longest: int = 60

    def __repr__(self) -> str:
        return self.kind.__name__


D = 3


def _rows(random: np.random.Generator, n: int) -> Stream:
    rows = random.normal(size=(n, D)) * [1.0, 30.0, 0.01] + [3000.0, 0.0, -5.0]
    rows[random.random(n) < 0.02] *= 100
    return (torch.tensor(rows, dtype=torch.float32),)


def _moments(m: Moments) -> State:
    count = torch.tensor(float(m.count))
    return {"count": count, "mean": m.mean(), "cov": m.covariance()} if m.count else {"count": count}


def _scalars_stream(random: np.random.Generator, n: int) -> Stream:
    return torch.tensor(random.integers(0, 4, n)), torch.tensor(random.normal(size=(n, 2)) * [1.0, 1e4])


def _scalars(m: GroupedScalars) -> State:
    exact_parts = {"count": m.count.double(), "least": m.least, "greatest": m.greatest}
    return exact_parts | {"sum": m.sum, "square": m.square}


def _numbers(random: np.random.Generator, n: int) -> Stream:
    values = random.normal(size=n) * 10.0 ** random.integers(-45, 40, n)
    values[random.random(n) < 0.3] = random.choice([0.0, -0.0, 1.0, 2.0, 0.5, np.nan, np.inf, -np.inf])
    return (torch.tensor(values),)


EDGES = (-10.0, 0.0, 0.5, 1.0, 2.0)


def _histogram(m: Histogram) -> State:
    return {"all": torch.cat([m.counts, torch.tensor([m.below, m.above, m.nan])]).double()}


def _sketch(m: QuantileSketch) -> State:
    return {"all": torch.cat([m.negative, m.positive, torch.tensor([m.zero, m.nan])]).double()}


def _tied(random: np.random.Generator, n: int) -> Stream:
    # Few values and few places: ties everywhere, and the same (value, place) more than once.
    return torch.tensor(random.integers(0, 4, n) / 2), torch.tensor(random.integers(0, 5, (n, 2)))


def _topk(m: TopK) -> State:
    return {"values": m.values, "payload": m.payload.double()}


def _tokens(random: np.random.Generator, n: int) -> Stream:
    payload = np.stack([random.integers(0, 50, n), random.integers(0, 2**40, n), random.integers(0, 9, n)], 1)
    return torch.tensor(random.normal(size=(n, D)), dtype=torch.float32), torch.tensor(payload)


def _reservoir(m: Reservoir) -> State:
    sample = m.sample()
    return {"rows": sample.rows, "payload": sample.payload.double(), "seen": torch.tensor(float(m.seen))}


NAMES = ("length", "radius")
TABLE = (
    Row(
        GroupedScalars,
        _scalars_stream,
        lambda: GroupedScalars.empty(4, NAMES),
        lambda *s: GroupedScalars.of(4, NAMES, *s),
        _scalars,
        merge=scalars_bound,
        batch=scalars_bound,
    ),
    Row(Histogram, _numbers, lambda: Histogram.empty(EDGES), lambda v: Histogram.of(v, EDGES), _histogram),
    # 60 rows are squared in float64; the longer streams reach the float32 products.
    *(
        Row(Moments, _rows, lambda: Moments.empty(D), Moments.of, _moments, moments_merge, moments_batch, longest)
        for longest in (20, 100, 3000)
    ),
    Row(QuantileSketch, _numbers, QuantileSketch.empty, QuantileSketch.of, _sketch),
    Row(
        Reservoir,
        _tokens,
        lambda: Reservoir.empty(7, D, 3, seed=5),
        lambda *s: Reservoir.of(*s, capacity=7, seed=5),
        _reservoir,
    ),
    Row(TopK, _tied, lambda: TopK.empty(5, 2), lambda *s: TopK.of(*s, k=5), _topk),
)
