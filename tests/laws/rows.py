"""The measures that the laws run over: a stream for each, its empty state, and what of its state is compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from laws.bounds import Bound, exact, moments_batch, moments_merge, scalars_bound
from torch import Tensor

from armillary.measures import GroupedScalars, Largest, Moments, Reservoir, Rows, TopK, Totals

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


def _sizes(random: np.random.Generator, n: int) -> Stream:
    return (torch.tensor(random.random((n, D)) * 10.0 ** random.integers(-30, 30, (n, 1))),)


def _included(measure: Any, *stream: Tensor) -> Any:
    measure.include(*stream)
    return measure


def _whole_totals(random: np.random.Generator, n: int) -> Stream:
    # Sums of small whole numbers are exact in any order.
    return torch.tensor(random.integers(0, 4, n)), torch.tensor(random.integers(-9, 9, (n, D)), dtype=torch.float64)


def _joined(m: Rows) -> State:
    # Rows come in any order: what reads them sorts them by place.
    rows = m.joined().double()
    return {"count": torch.tensor(float(len(rows))), "sorted": rows[rows[:, 0].argsort()] if len(rows) else rows}


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
    Row(Largest, _sizes, lambda: Largest(D), lambda v: _included(Largest(D), v), lambda m: {"values": m.values}),
    # 60 rows are squared in float64; the longer streams reach the float32 products.
    *(
        Row(Moments, _rows, lambda: Moments.empty(D), Moments.of, _moments, moments_merge, moments_batch, longest)
        for longest in (20, 100, 3000)
    ),
    Row(Rows, _sizes, lambda: Rows((D,), torch.float64), lambda v: _included(Rows((D,), torch.float64), v), _joined),
    Row(
        Totals,
        _whole_totals,
        lambda: Totals(4, (D,)),
        lambda *s: _included(Totals(4, (D,)), *s),
        lambda m: {"sum": m.sum},
    ),
    Row(
        Reservoir,
        _tokens,
        lambda: Reservoir.empty(7, D, 3, seed=5),
        lambda *s: Reservoir.of(*s, capacity=7, seed=5),
        _reservoir,
    ),
    Row(TopK, _tied, lambda: TopK.empty(5, 2), lambda *s: TopK.of(*s, k=5), _topk),
)
