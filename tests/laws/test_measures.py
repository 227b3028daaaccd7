"""Is every measure a commutative monoid, and does it depend on the stream alone, not on its batches?

One row per measure inherits every law. `merge` is the tolerance of laws that only add states (float64
rounding), `batch` that of laws that cut the stream differently (float32 products, for the moments). 0 means
bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from armillary.measures import MEASURES, GroupedScalars, Histogram, Moments, QuantileSketch, Reservoir, TopK

Stream = tuple[Tensor, ...]  # aligned along the first axis
State = dict[str, tuple[Tensor, Tensor | float]]  # each part with the scale its rounding is measured in


@dataclass(frozen=True)
class Row:
    kind: type
    stream: Callable[[np.random.Generator, int], Stream]
    empty: Callable[[], Any]
    of: Callable[..., Any]
    state: Callable[[Any], State]
    merge: float = 0.0
    batch: float = 0.0
    longest: int = 60

    def __repr__(self) -> str:
        return self.kind.__name__


D = 3


def _rows(random: np.random.Generator, n: int) -> Stream:
    rows = random.normal(size=(n, D)) * [1.0, 30.0, 0.01] + [3000.0, 0.0, -5.0]
    rows[random.random(n) < 0.02] *= 100
    return (torch.tensor(rows, dtype=torch.float32),)


def _moments(m: Moments) -> State:
    if m.count == 0:
        return {"count": (torch.tensor(0.0), 1.0)}
    cov, mean = m.covariance(), m.mean()
    spread = cov.diagonal().clamp(min=0).sqrt()
    # One row, or equal ones, have no variance to be relative to; the rows' own float32 digits then set the
    # scale.
    floor = 1e-6 * mean.abs() + 1e-12
    scale = spread + floor
    count = torch.tensor(float(m.count))
    return {"count": (count, 1.0), "mean": (mean, scale), "cov": (cov, torch.outer(scale, scale))}


def _scalars_stream(random: np.random.Generator, n: int) -> Stream:
    return torch.tensor(random.integers(0, 4, n)), torch.tensor(random.normal(size=(n, 2)) * [1.0, 1e4])


def _scalars(m: GroupedScalars) -> State:
    parts = {"count": m.count.double(), "least": m.least, "greatest": m.greatest}
    exact: State = {name: (part, 0.0) for name, part in parts.items()}
    scale = m.count[:, None] * torch.maximum(m.least.abs(), m.greatest.abs()).nan_to_num(0, 0, 0)
    return exact | {"sum": (m.sum, scale), "square": (m.square, scale.square())}


def _numbers(random: np.random.Generator, n: int) -> Stream:
    values = random.normal(size=n) * 10.0 ** random.integers(-45, 40, n)
    values[random.random(n) < 0.3] = random.choice([0.0, -0.0, 1.0, 2.0, 0.5, np.nan, np.inf, -np.inf])
    return (torch.tensor(values),)


EDGES = (-10.0, 0.0, 0.5, 1.0, 2.0)


def _histogram(m: Histogram) -> State:
    return {"all": (torch.cat([m.counts, torch.tensor([m.below, m.above, m.nan])]).double(), 0.0)}


def _sketch(m: QuantileSketch) -> State:
    return {"all": (torch.cat([m.negative, m.positive, torch.tensor([m.zero, m.nan])]).double(), 0.0)}


def _tied(random: np.random.Generator, n: int) -> Stream:
    # Few values and few places: ties everywhere, and the same (value, place) more than once.
    return torch.tensor(random.integers(0, 4, n) / 2), torch.tensor(random.integers(0, 5, (n, 2)))


def _topk(m: TopK) -> State:
    return {"values": (m.values, 0.0), "payload": (m.payload.double(), 0.0)}


def _tokens(random: np.random.Generator, n: int) -> Stream:
    payload = np.stack([random.integers(0, 50, n), random.integers(0, 2**40, n), random.integers(0, 9, n)], 1)
    return torch.tensor(random.normal(size=(n, D)), dtype=torch.float32), torch.tensor(payload)


def _reservoir(m: Reservoir) -> State:
    kept = m.sample()
    seen = torch.tensor(float(m.seen))
    return {"rows": (kept.rows, 0.0), "payload": (kept.payload.double(), 0.0), "seen": (seen, 0.0)}


NAMES = ("length", "radius")
TABLE = (
    Row(
        GroupedScalars,
        _scalars_stream,
        lambda: GroupedScalars.empty(4, NAMES),
        lambda *s: GroupedScalars.of(4, NAMES, *s),
        _scalars,
        merge=1e-14,
        batch=1e-14,
    ),
    Row(Histogram, _numbers, lambda: Histogram.empty(EDGES), lambda v: Histogram.of(v, EDGES), _histogram),
    # Short batches are summed in float64 throughout; the second of these rows reaches the float32 products.
    Row(Moments, _rows, lambda: Moments.empty(D), Moments.of, _moments, merge=1e-9, batch=1e-9, longest=20),
    Row(Moments, _rows, lambda: Moments.empty(D), Moments.of, _moments, merge=1e-9, batch=1e-6, longest=3000),
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


def _same(row: Row, a: Any, b: Any, tolerance: float) -> bool:
    left, right = row.state(a), row.state(b)
    if left.keys() != right.keys():
        return False
    for name, (part, scale) in left.items():
        other, other_scale = right[name]
        if part.shape != other.shape:
            return False
        allowed = tolerance * torch.maximum(torch.as_tensor(scale), torch.as_tensor(other_scale))
        close = ((part - other).abs() <= allowed) | (part == other)
        if not bool(close.all()):
            return False
    return True


def _join(*streams: Stream) -> Stream:
    return tuple(torch.cat(parts) for parts in zip(*streams, strict=True))


def _cut(stream: Stream, start: int, stop: int) -> Stream:
    return tuple(part[start:stop] for part in stream)


def law(test: Callable[..., None]) -> Callable[..., None]:
    """Run one law over the table, each time with a fresh seed and three fresh lengths."""
    drawn = given(seed=st.integers(0, 2**32 - 1), sizes=st.tuples(*[st.integers(0, 100)] * 3))
    quick = settings(max_examples=15, deadline=None)
    return pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r}-{r.longest}")(quick(drawn(test)))


def _three(row: Row, seed: int, sizes: tuple[int, int, int]) -> list[Stream]:
    random = np.random.default_rng(seed)
    return [row.stream(random, size * row.longest // 100) for size in sizes]


def test_table_is_complete() -> None:
    assert {row.kind for row in TABLE} == set(MEASURES)


@law
def test_identity(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    m = row.of(*_three(row, seed, sizes)[0])
    assert _same(row, row.empty() + m, m, 0)
    assert _same(row, m + row.empty(), m, 0)


@law
def test_commutativity(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    a, b, _ = (row.of(*s) for s in _three(row, seed, sizes))
    assert _same(row, a + b, b + a, row.merge)


@law
def test_associativity(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    a, b, c = (row.of(*s) for s in _three(row, seed, sizes))
    assert _same(row, (a + b) + c, a + (b + c), row.merge)


@law
def test_homomorphism(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    a, b, _ = _three(row, seed, sizes)
    assert _same(row, row.of(*a) + row.of(*b), row.of(*_join(a, b)), row.batch)


@law
def test_include_is_addition(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    a, b, _ = _three(row, seed, sizes)
    m = row.of(*a)
    m.include(*b)
    assert _same(row, m, row.of(*a) + row.of(*b), row.batch)


@law
def test_addition_changes_nothing_else(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    a, b, c = _three(row, seed, sizes)
    left, right = row.of(*a), row.of(*b)
    (left + right).include(*c)
    assert _same(row, left, row.of(*a), 0)
    assert _same(row, right, row.of(*b), 0)


@law
def test_batches_do_not_matter(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    stream = _join(*_three(row, seed, sizes))
    random = np.random.default_rng(seed)
    n = len(stream[0])
    cuts = [0, *sorted(random.integers(0, n + 1, 4).tolist()), n]
    m = row.empty()
    for start, stop in pairwise(cuts):
        m.include(*_cut(stream, start, stop))
    assert _same(row, m, row.of(*stream), row.batch)


@law
def test_order_does_not_matter(row: Row, seed: int, sizes: tuple[int, int, int]) -> None:
    stream = _join(*_three(row, seed, sizes))
    mixed = torch.tensor(np.random.default_rng(seed).permutation(len(stream[0])))
    assert _same(row, row.of(*(part[mixed] for part in stream)), row.of(*stream), row.batch)


# Mutations: each breaks one rule, and a law above must notice.


class _SameShift(Moments):
    """Adds sums about different shifts as if they were about one."""

    def __add__(self, other: Moments) -> Moments:
        both = Moments.of(torch.zeros(0, self.d))
        both.count, both.shift = self.count + other.count, self.shift
        both._sum = self._sum + other._sum
        both._strips = [a + b for a, b in zip(self._strips, other._strips, strict=True)]
        return both


class _FirstComeTopK(TopK):
    """Breaks ties by arrival."""

    def _keep(self, values: Tensor, payload: Tensor) -> None:
        values, payload = torch.cat([self.values, values]), torch.cat([self.payload, payload])
        order = values.sort(descending=True, stable=True).indices[: self.k]
        self.values, self.payload = values[order], payload[order]

    def __add__(self, other: TopK) -> TopK:
        both = _FirstComeTopK(self.k, self.width)
        both._keep(self.values, self.payload)
        both._keep(other.values, other.payload)
        return both


def test_mutation_of_the_shift_is_noticed() -> None:
    row = next(r for r in TABLE if r.kind is Moments)
    a, b, _ = _three(row, 0, (90, 50, 0))
    assert not _same(row, _SameShift.of(*a) + _SameShift.of(*b), row.of(*_join(a, b)), row.batch)


def test_mutation_of_tie_breaking_is_noticed() -> None:
    row = next(r for r in TABLE if r.kind is TopK)
    a, b, _ = (_FirstComeTopK.of(*s, k=5) for s in _three(row, 0, (90, 90, 0)))
    assert not _same(row, a + b, b + a, 0)


def test_mutation_of_priorities_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservoir that draws priorities as rows arrive is uniform, but depends on the order."""
    random = np.random.default_rng(0)
    monkeypatch.setattr(
        "armillary.measures.reservoir._hash",
        lambda seed, payload: torch.tensor(random.integers(0, 2**62, len(payload))),
    )
    row = next(r for r in TABLE if r.kind is Reservoir)
    a, b, _ = _three(row, 0, (90, 90, 0))
    assert not _same(row, row.of(*a) + row.of(*b), row.of(*_join(a, b)), 0)
