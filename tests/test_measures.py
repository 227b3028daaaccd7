"""Do the measures find what was planted, and does the accuracy they promise survive massive activations?"""

import doctest
import importlib
import math

import pytest
import torch
from laws.bounds import moments_merge
from torch import Tensor

from armillary.measures import GroupedScalars, Moments, Reservoir, TopK
from armillary.measures import moments as moments_module

# The largest of some 20 000 entries' errors varies less than this between two draws of the rows.
DRAWS = 4


@pytest.mark.parametrize("name", ["largest", "moments", "reservoir", "rows", "scalars", "topk", "totals"])
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"armillary.measures.{name}"))
    assert result.attempted
    assert not result.failed


def _random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _reference(rows: Tensor) -> Tensor:
    centred = rows.double() - rows.double().mean(dim=0)
    return centred.T @ centred / len(rows)


def _error(cov: Tensor, rows: Tensor) -> float:
    """The largest error of an entry, relative to √(C_ii·C_jj)."""
    true = _reference(rows)
    spread = true.diagonal().sqrt()
    return float(((cov - true).abs() / torch.outer(spread, spread)).max())


def _noise(rows: Tensor, size: int) -> float:
    """The error of plain float32 products on this machine, for Gaussian rows in batches of this size.

    Relative to √(C_ii·C_jj), the rounding of a sum of products depends on the number of rows and on how the processor's
    product groups them, not on the columns' scales, as long as no entry is far outside its column. So whatever is
    planted, the moments must do no worse than Gaussian rows do, which need no shift.
    """
    plain = torch.randn(rows.shape, generator=_random(9))
    total = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    for part in plain.split(min(size, moments_module.CHUNK)):
        total += part.T @ part
    true = plain.double().T @ plain.double()
    spread = true.diagonal().sqrt()
    return float(((total - true).abs() / torch.outer(spread, spread)).max())


def _batched(rows: Tensor, size: int, exact: bool = False) -> Moments:
    m = Moments.empty(rows.shape[1], exact)
    for start in range(0, len(rows), size):
        m.include(rows[start : start + size])
    return m


def _massive() -> Tensor:
    """Eight columns at 3000 ± 1, and five rows a thousand times longer than the rest."""
    rows = torch.randn(20_000, 160, generator=_random())
    rows[:, :8] += 3000
    rows[torch.randperm(len(rows), generator=_random(1))[:5]] *= 1000
    return rows


def _one_massive_row() -> Tensor:
    rows = torch.randn(20_000, 160, generator=_random())
    rows[:, :8] += 3000
    rows[0] *= 1000
    return rows


def _first_tokens() -> Tensor:
    """What GPT-2 does: two enormous entries in the first token of every sequence of 128."""
    rows = torch.randn(20_000, 160, generator=_random())
    rows[::128, 3], rows[::128, 7] = 2867.0, -3000.0
    return rows


def _vanishing() -> Tensor:
    """Squares of 0.49 beside one of 2^24: each is below half a unit in the last place of the running sum."""
    rows = 0.7 * torch.randint(-1, 2, (20_000, 160), generator=_random())
    rows[5000] = 4096
    return rows


def _dragged_mean() -> Tensor:
    """So many massive rows that the mean lies far from every row: a bad place for the shift."""
    rows = torch.randn(20_000, 160, generator=_random()) + 3000
    rows[torch.rand(20_000, generator=_random(1)) < 0.02] *= 100
    return rows


def _far_column() -> Tensor:
    """At 30 000 ± 1 float32 leaves a column ten bits: as coarse as half precision."""
    rows = torch.randn(20_000, 160, generator=_random())
    rows[:, :4] += torch.tensor([30_000.0, 10_000.0, 5000.0, -1e6])
    return rows


PLANTED = (_massive, _one_massive_row, _first_tokens, _vanishing, _dragged_mean, _far_column)


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("planted", PLANTED)
def test_covariance_with_massive_activations(planted, size) -> None:
    rows = planted()
    moments, bound = _batched(rows, size), DRAWS * _noise(rows, size)
    assert _error(moments.covariance(), rows) < bound
    # A column's sum about the shift has no more roundings than its sum of squares, and smaller ones.
    spread = _reference(rows).diagonal().sqrt()
    assert float(((moments.mean() - rows.double().mean(dim=0)).abs() / spread).max()) < bound


def test_without_the_shift_the_bound_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation that the bound must notice: the same sums, never shifted, are 3000² times as large."""
    rows = torch.randn(20_000, 64, generator=_random())
    rows[:, :8] += 3000
    noise = _noise(rows, 2048)
    assert _error(_batched(rows, 2048).covariance(), rows) < DRAWS * noise
    monkeypatch.setattr(Moments, "_move", lambda self, shift: None)
    assert _error(_batched(rows, 2048).covariance(), rows) > 1000 * noise


def test_a_shift_to_the_mean_would_be_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _dragged_mean()
    error = _error(_batched(rows, 4096).covariance(), rows)
    monkeypatch.setattr(moments_module, "_middle", lambda rows, even: rows.mean(dim=0))
    assert _error(_batched(rows, 4096).covariance(), rows) > 30 * error


@pytest.mark.parametrize("planted", [_one_massive_row, _vanishing])
def test_without_the_far_rows_apart_the_bound_fails(planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments_module, "FAR", math.inf)
    rows = planted()
    assert _error(_batched(rows, 4096).covariance(), rows) > DRAWS * _noise(rows, 4096)


def test_a_first_batch_of_one_massive_row_does_not_set_the_shift() -> None:
    rows = _one_massive_row()
    moments = Moments.of(rows[:1])
    moments.include(rows[1:])
    assert _error(moments.covariance(), rows) < DRAWS * _noise(rows, len(rows))


def test_merging_far_apart_shifts_is_exact() -> None:
    rows = torch.randn(120, 5, generator=_random()) + 1e4 * torch.arange(5)
    rows[60:] -= 1e5
    parts = [Moments.of(rows[start : start + 20]) for start in range(0, 120, 20)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    assert bool(((whole.covariance() - _reference(rows)).abs() <= moments_merge(rows)["cov"]).all())


def _coarse_rows(dtype: torch.dtype) -> Tensor:
    return (torch.randn(3000, 140, generator=_random()) + 5).to(dtype)


@pytest.mark.parametrize("size", [100, 500, 3000])
@pytest.mark.parametrize("widened", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype: torch.dtype, widened: bool, size: int) -> None:
    rows = _coarse_rows(dtype)
    assert _error(_batched(rows.float() if widened else rows, size).covariance(), rows) < DRAWS * _noise(rows, size)


def test_half_precision_would_be_worse_in_float32_products(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _coarse_rows(torch.float16)
    exact = _batched(rows, 3000).covariance()
    assert bool(((exact - _reference(rows)).abs() <= moments_merge(rows)["cov"]).all())
    monkeypatch.setattr(moments_module, "_coarse", lambda centred, raw: False)
    assert _error(_batched(rows, 3000).covariance(), rows) > 0.5 * _noise(rows, 3000)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_a_careless_matmul_setting_costs_no_digits(precision: str) -> None:
    rows = torch.randn(3000, 140, generator=_random())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        error = _error(Moments.of(rows).covariance(), rows)
    finally:
        torch.set_float32_matmul_precision(before)
    assert error < DRAWS * _noise(rows, 3000)


def test_exact_moments_show_a_vanishing_eigenvalue_float32_cannot() -> None:
    """LayerNorm's plane in a very uneven cloud: the null eigenvalue must fall below 1e-6 of the median."""
    d = 128
    axes = torch.linalg.qr(torch.randn(d, d, generator=_random())).Q
    uneven = torch.randn(6000, d, generator=_random(1)) * torch.arange(1, d + 1) ** -2.0
    z = torch.nn.functional.layer_norm(uneven @ axes, (d,))
    share = {}
    for exact in (False, True):
        values = torch.linalg.eigvalsh(Moments.of(z, exact).covariance())
        share[exact] = abs(float(values[0] / values.median()))
    # z is float32: its mean coordinate deviates by about one rounding, so the variance along 1 is (2⁻²³)² of the mean
    # variance, which is 26 000 times the median: 4e-10. Five roundings give 1e-8.
    assert share[True] < 1e-8
    assert share[False] > 1e-6


def test_moments_refuse_what_they_cannot_sum() -> None:
    rows = torch.ones(200, 3)
    rows[7, 1] = math.nan
    with pytest.raises(ValueError, match="1 of 200 rows hold NaN or infinity"):
        Moments.of(rows)
    moments = Moments.of(torch.ones(2000, 3))
    with pytest.raises(ValueError, match="1 of 200 rows"):
        moments.include(rows)
    with pytest.raises(ValueError, match="3 columns"):
        moments.include(torch.ones(2, 4))
    with pytest.raises(ValueError, match="no rows were included"):
        Moments.empty(3).mean()


def test_scalars_by_group() -> None:
    index = torch.tensor([0, 2, 2, 0, 2])
    columns = torch.tensor([[1.0, -1.0], [2.0, 5.0], [4.0, 5.0], [3.0, 0.0], [9.0, -5.0]])
    scalars = GroupedScalars.of(3, ("a", "b"), index, columns)
    assert scalars.count.tolist() == [2, 0, 3]
    assert scalars.mean()[[0, 2]].tolist() == [[2.0, -0.5], [5.0, 5 / 3]]
    assert scalars.mean()[1].isnan().all()
    assert scalars.least.tolist() == columns.amin(0).tolist()
    assert scalars.greatest.tolist() == columns.amax(0).tolist()
    assert scalars.additive()[2, 0].tolist() == [3.0, 15.0, 4 + 16 + 81]
    with pytest.raises(ValueError, match=r"0 … 2, got 0 … 3"):
        scalars.include(torch.tensor([0, 3]), columns[:2])
    columns[0, 1] = math.nan
    scalars.include(index, columns)
    for read in (scalars.mean, scalars.additive):
        with pytest.raises(ValueError, match="the values of b contain NaN"):
            read()


def test_topk_orders_ties_by_place() -> None:
    values = torch.tensor([2.0, 5.0, 5.0, 5.0, 1.0])
    place = torch.tensor([[0, 1], [3, 0], [1, 9], [1, 2], [7, 7]])
    top = TopK.of(values, place, k=2)
    assert top.payload.tolist() == [[1, 2], [1, 9]]
    top.include(torch.tensor([5.0]), torch.tensor([[0, 0]]))
    assert top.payload.tolist() == [[0, 0], [1, 2]]
    top.include(torch.tensor([math.nan]), torch.tensor([[0, 0]]))
    for read in (lambda: top.values, lambda: top.payload):
        with pytest.raises(ValueError, match="1 of the largest values are NaN"):
            read()


def test_topk_agrees_with_a_sort() -> None:
    values = torch.randn(3000, generator=_random())
    place = torch.arange(3000)[:, None]
    top = TopK.of(values[:1500], place[:1500], k=20)
    top.include(values[1500:], place[1500:])
    expected = values.double().sort(descending=True)
    assert torch.equal(top.values, expected.values[:20])
    assert torch.equal(top.payload[:, 0], expected.indices[:20])


def _tokens(documents: int, length: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(documents), torch.arange(length))


def test_reservoir_is_uniform() -> None:
    """Over many seeds every token is kept equally often: χ² within four deviations of its mean."""
    where, capacity, seeds = _tokens(8, 25), 20, 400
    counts = torch.zeros(len(where))
    for seed in range(seeds):
        sample = Reservoir.of(torch.zeros(len(where), 1), where, capacity, seed).sample()
        counts[sample.payload[:, 0] * 25 + sample.payload[:, 1]] += 1
    expected = seeds * capacity / len(where)
    variance = expected * (1 - capacity / len(where))
    chi = float(((counts - expected) ** 2 / variance).sum())
    degrees = len(where) - 1
    assert abs(chi - degrees) < 4 * math.sqrt(2 * degrees)


def test_reservoir_keeps_rows_with_their_tokens() -> None:
    where = _tokens(40, 50)
    rows = (where[:, :1] * 1000 + where[:, 1:]).float().expand(-1, 4)
    reservoir = Reservoir.empty(64, 4)
    for start in range(0, 2000, 130):
        reservoir.include(rows[start : start + 130], where[start : start + 130])
    sample = reservoir.sample()
    assert (reservoir.seen, len(sample.rows)) == (2000, 64)
    assert torch.equal(sample.rows[:, 0], (sample.payload[:, 0] * 1000 + sample.payload[:, 1]).float())
    assert len({tuple(p) for p in sample.payload.tolist()}) == 64


def test_reservoir_offers_a_subset() -> None:
    where, rows = _tokens(10, 20), torch.randn(200, 3, generator=_random())
    among = torch.arange(0, 200, 3)
    part, whole = Reservoir.empty(16, 3), Reservoir.of(rows[among], where[among], 16)
    part.include(rows, where[among], among)
    assert torch.equal(part.sample().rows, whole.sample().rows)
    assert part.seen == len(among)


def test_sites_that_share_a_seed_keep_the_same_tokens() -> None:
    where = _tokens(10, 20)
    a, b = (Reservoir.of(torch.randn(200, d), where, 16).sample() for d in (3, 5))
    assert torch.equal(a.payload, b.payload)
    other = Reservoir.of(torch.randn(200, 3), where, 16, seed=1).sample()
    assert not torch.equal(a.payload, other.payload)


def test_a_promise_of_even_rows_keeps_the_bound_and_still_finds_nan() -> None:
    rows = torch.nn.functional.layer_norm(torch.randn(5000, 64, generator=torch.Generator().manual_seed(0)), [64])
    moments = Moments.empty(64, even=True)
    for part in rows.split(1024):
        without = torch.zeros(len(part), dtype=torch.bool).index_fill_(0, torch.tensor([0, 5]), True)
        moments.include(part.clone(), without, consume=True)
    later = torch.cat([part[[i for i in range(len(part)) if i not in (0, 5)]] for part in rows.split(1024)]).double()
    truth = later.T.cov(correction=0)
    scale = truth.diagonal().sqrt()
    assert moments.count == len(later)
    error = float(((moments.covariance() - truth).abs() / torch.outer(scale, scale)).max())
    assert error < DRAWS * _noise(rows, 1024)
    rows[7, 3] = math.nan
    broken = Moments.empty(64, even=True)
    broken.include(rows)
    for read in (broken.mean, broken.covariance):
        with pytest.raises(ValueError, match="NaN or infinity"):
            read()
