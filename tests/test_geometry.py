"""Does the mathematics give back what was planted in closed form, and does it say no where it should?"""

import doctest
import importlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from armillary.geometry.clouds.intrinsic_dimension import pairwise_sq_distances, two_nn
from armillary.geometry.clouds.local_spread import Balls, contracted, pooled_slope, radial_to_tangential
from armillary.geometry.clouds.spectrum import (
    eigenvalues,
    entropy_rank,
    near_zero_count,
    participation_ratio,
)
from armillary.geometry.resample import auc, benjamini_hochberg, bootstrap, jackknife_se, weighted_auc
from armillary.geometry.sphere import angle, cap_ratio, gaussian_shell_cv, monte_carlo_shell


@pytest.mark.parametrize(
    "name", ["clouds.intrinsic_dimension", "clouds.local_spread", "clouds.spectrum", "resample", "sphere"]
)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"armillary.geometry.{name}"))
    assert result.attempted
    assert not result.failed


def _random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _gaussian(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=_random(seed), dtype=torch.float64)


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)


# sphere


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("theta", [0.0, 1e-6, 1e-3, 1.0, math.pi / 2, math.pi - 1e-3, math.pi])
def test_angle_is_accurate_everywhere(theta: float, dtype: torch.dtype) -> None:
    a, b = torch.linalg.qr(_gaussian(64, 2)).Q.T
    turned = (math.cos(theta) * a + math.sin(theta) * b) * 7
    rounding = 4 * torch.finfo(dtype).eps
    assert abs(float(angle(a.to(dtype), turned.to(dtype))) - theta) < rounding


def test_arccos_would_not_be() -> None:
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-4])
    naive = torch.arccos(torch.nn.functional.cosine_similarity(a, b, dim=0))
    assert abs(float(naive) / 1e-4 - 1) > 0.5
    assert abs(float(angle(a, b)) / 1e-4 - 1) < 1e-6


def test_angle_broadcasts_and_has_none_for_zero() -> None:
    assert angle(torch.eye(3)[:, None], torch.eye(3)[None]).shape == (3, 3)
    assert angle(torch.zeros(3), torch.ones(3)).isnan()


def test_shell_law_by_hand() -> None:
    assert math.isclose(gaussian_shell_cv(1).length, math.sqrt(math.pi / 2 - 1))
    assert math.isclose(gaussian_shell_cv(2).length, math.sqrt(4 / math.pi - 1))
    # The claim under test: 4.5 % at d = 1000 is the spread of the squared length; the length's is 2.2 %.
    law = gaussian_shell_cv(1000)
    assert f"{law.squared:.1%} {law.length:.1%}" == "4.5% 2.2%"


def test_shell_law_is_smooth_where_the_series_takes_over() -> None:
    # 1/cv² = 2d − 1/2 + O(1/d): the second difference vanishes, also across d = 1000.
    inverse = [gaussian_shell_cv(d).length ** -2 for d in (998, 999, 1000, 1001)]
    steps = np.diff(inverse)
    assert np.allclose(steps, 2, atol=1e-5)
    assert abs(gaussian_shell_cv(10**8).length * math.sqrt(2e8) - 1) < 1e-8


def test_monte_carlo_agrees_with_the_law() -> None:
    for row in monte_carlo_shell([3, 30, 1000, 10_000], samples=1500, seed=1):
        assert abs(row.cv_length - row.law.length) < 4 * row.cv_length_error
        assert abs(row.cv_squared / row.law.squared - 1) < 0.1 + 2 / row.d
    assert monte_carlo_shell([30], 500, 1) == monte_carlo_shell([3, 30], 500, 1)[1:]


# spectrum


def test_effective_ranks_in_closed_form() -> None:
    d, r = 40, 0.9
    values = r ** np.arange(d)
    total = values.sum()
    assert math.isclose(participation_ratio(values), total**2 / (values**2).sum())
    share = values / total
    assert math.isclose(entropy_rank(values), math.exp(-(share * np.log(share)).sum()))
    for count in (1, 7, d):
        flat = torch.cat([torch.zeros(d - count), torch.full((count,), 3.0)])
        assert math.isclose(participation_ratio(flat), count)
        assert math.isclose(entropy_rank(flat), count)


@pytest.mark.parametrize(("kind", "expected"), [("layer", 1), ("rms", 0)])
def test_the_plane_is_one_vanishing_eigenvalue_and_the_radius_none(kind: str, expected: int) -> None:
    x = _gaussian(4000, 24) + 0.3
    x = x - x.mean(dim=1, keepdim=True) if kind == "layer" else x
    z = x / x.square().mean(dim=1, keepdim=True).sqrt()
    cov = z.T.cov(correction=0)
    assert near_zero_count(eigenvalues(cov)) == expected


def test_what_rounding_made_negative_is_zero() -> None:
    spectrum = eigenvalues(torch.diag(torch.tensor([1.0, -1e-9, 2.0], dtype=torch.float64)))
    assert spectrum.tolist() == [0.0, 1.0, 2.0]
    assert eigenvalues(np.eye(2)).tolist() == [1.0, 1.0]


def test_spectrum_refuses_what_is_no_covariance() -> None:
    with pytest.raises(ValueError, match="too negative"):
        eigenvalues(torch.diag(torch.tensor([1.0, -0.1])))
    with pytest.raises(ValueError, match="not symmetric"):
        eigenvalues(torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="non-negative"):
        participation_ratio(torch.tensor([-1.0, 2.0]))


# dimension


def _ball(n: int, m: int, ambient: int, seed: int = 0) -> Tensor:
    """Uniform in an m-dimensional ball, turned into `ambient` dimensions and moved away from 0."""
    radius = torch.rand(n, 1, generator=_random(seed + 1), dtype=torch.float64) ** (1 / m)
    axes = torch.linalg.qr(_gaussian(ambient, m, seed + 2)).Q
    return (_unit(_gaussian(n, m, seed)) * radius) @ axes.T + 100


def _torus(n: int, m: int, seed: int = 0) -> Tensor:
    """Squared distances of points uniform on a flat torus: no edge, so the estimators' own laws hold."""
    x = torch.rand(n, m, generator=_random(seed), dtype=torch.float64)
    away = (x[:, None] - x[None]).abs()
    return torch.minimum(away, 1 - away).square().sum(dim=2)


@pytest.mark.parametrize("m", [1, 2, 5, 10])
def test_dimension_of_a_torus(m: int) -> None:
    n = 1200
    squared = _torus(n, m)
    # Four standard errors for independent neighbourhoods: d/√n' of the fitted ratios.
    assert abs(two_nn(squared).value - m) < 4 * m / math.sqrt(0.9 * n)


@pytest.mark.parametrize("m", [2, 5, 9])
def test_dimension_of_a_ball_is_low_only_by_its_edge(m: int) -> None:
    n = 2000
    squared = pairwise_sq_distances(_ball(n, m, 30))
    # Points within one neighbour distance r ~ n^(−1/m) of the edge, a share 1 − (1 − r)^m of all, see at
    # worst half a ball: the bias is downward and at most that share of m.
    near = n ** (-1 / m)
    edge = m * (1 - (1 - near) ** m) / 2
    error = 4 * m / math.sqrt(n)
    assert m - edge - error < two_nn(squared).value < m + error


def test_dimension_control_noise_is_not_low_dimensional() -> None:
    assert two_nn(pairwise_sq_distances(_gaussian(1500, 30))).value > 12


def test_two_nn_survives_near_coincidences() -> None:
    x = _ball(1500, 4, 10)
    clean = two_nn(pairwise_sq_distances(x)).value
    x[:15] = x[15:30] + 1e-3 * _gaussian(15, 10, 5)
    squared = pairwise_sq_distances(x)
    assert abs(two_nn(squared).value - clean) < 0.4
    assert clean - two_nn(squared, discard=0.0).value > 0.6


def test_copies_are_dropped_and_counted() -> None:
    x = _ball(600, 3, 8)
    copies = torch.cat([x, x[:100], x[:50]])
    once, thrice = two_nn(pairwise_sq_distances(x)), two_nn(pairwise_sq_distances(copies))
    assert (thrice.points, thrice.dropped) == (600, 150)
    assert math.isclose(once.value, thrice.value, rel_tol=1e-9)
    with pytest.raises(ValueError, match="found 1"):
        two_nn(pairwise_sq_distances(torch.ones(5, 2)))


def test_keep_is_the_same_as_leaving_out() -> None:
    x = _ball(400, 3, 8)
    squared = pairwise_sq_distances(x)
    mask = torch.arange(400) % 5 != 0
    expected = two_nn(pairwise_sq_distances(x[mask]))
    for keep in (mask, mask.nonzero()[:, 0]):
        assert math.isclose(two_nn(squared, keep).value, expected.value, rel_tol=1e-6)


def test_distances_far_from_the_origin() -> None:
    x = torch.tensor([[1e6, 1e6], [1e6, 1e6 + 1e-3], [1e6 + 1, 1e6], [1e6, 1e6]], dtype=torch.float64)
    distances = pairwise_sq_distances(x)
    direct = (x[:, None] - x[None]).square().sum(dim=2)
    assert torch.allclose(distances, direct, rtol=1e-9, atol=0)
    assert distances[0, 3] == 0
    assert torch.equal(distances, distances.T)


# local


def _sphere_points(n: int, m: int, d: int, seed: int = 0) -> Tensor:
    axes = torch.linalg.qr(_gaussian(d, m + 1, seed + 1)).Q
    return _unit(_gaussian(n, m + 1, seed)) @ axes.T


def _cap(n: int, m: int, d: int, alpha: float) -> Tensor:
    """Uniform on a cap of angle α of an m-sphere, by inverting the distribution of the angle to its pole."""
    grid = np.linspace(0, alpha, 20_001)
    rising = np.cumsum(np.sin(grid) ** (m - 1))
    theta = torch.from_numpy(np.interp(np.random.default_rng(1).random(n), rising / rising[-1], grid))[:, None]
    tangent = _unit(_gaussian(n, m)) * theta.sin()
    return torch.cat([theta.cos(), tangent, torch.zeros(n, d - m - 1)], dim=1)


def _slope(balls: Balls) -> float:
    slope = pooled_slope(balls.sums().sum(axis=0))
    assert isinstance(slope, float)
    return slope


def _law(balls: Balls, m: int, d: int) -> float:
    """The slope of the exact law at the radii that these balls have."""
    alpha = np.sqrt((balls.tangential * balls.alpha**2).sum(0) / balls.tangential.sum(0))
    ratio = np.array([cap_ratio(float(a), m, d) for a in alpha])
    return float(np.polyfit(np.log(alpha), np.log(ratio), 1)[0])


@pytest.mark.parametrize("axis", ["mean", "centre"])
@pytest.mark.parametrize("m", [2, 3])
def test_slope_two_on_a_low_dimensional_cap(m: int, axis: str) -> None:
    balls = radial_to_tangential(_cap(3000, m, 32, 0.6), axis=axis)
    # At the cap's edge a ball is lopsided and its centre is not its middle; on the whole sphere both agree.
    assert abs(_slope(balls) - 2) < (0.15 if axis == "mean" else 0.25)
    small = balls.alpha < 0.2
    expected = balls.alpha**2 * 31 / ((m + 2) * (m + 4))
    assert abs(balls.ratio[small].mean() / expected[small].mean() - 1) < 0.15


@pytest.mark.parametrize("axis", ["mean", "centre"])
@pytest.mark.parametrize("m", [7, 15])
def test_slope_follows_the_cap_law_where_balls_are_large(m: int, axis: str) -> None:
    """With m = 15 the law itself has slope 3: 16 neighbours reach 0.9 radians, and the sphere is round."""
    balls = radial_to_tangential(_sphere_points(2500, m, 32), centres=250, axis=axis)
    law = _law(balls, m, 32)
    assert law > 2.2
    assert abs(_slope(balls) - law) < 0.6


def test_off_the_sphere_the_slope_turns_round() -> None:
    assert _slope(radial_to_tangential(_gaussian(3000, 6))) < -1
    thick = _cap(3000, 4, 32, 0.6) * (1 + 0.1 * _gaussian(3000, 1, 9))
    assert _slope(radial_to_tangential(thick)) < -1


def test_the_plug_in_variance_is_biased() -> None:
    """Why the U-statistic: variance along the sample mean direction is too large by about 1 + (m + 8)/k."""
    m, d, k = 12, 32, 16
    points = _sphere_points(3000, m, d)
    balls = radial_to_tangential(points, (k,), centres=400)
    cosine = points[torch.from_numpy(balls.centres)] @ points.T
    inside = points[cosine.topk(k + 1, dim=1).indices[:, 1:]]
    away = inside - inside.mean(dim=1, keepdim=True)
    direction = torch.nn.functional.normalize(inside.mean(dim=1), dim=1)
    plug_in = (away @ direction[:, :, None]).square().sum(dim=(1, 2)) / (k - 1)
    truth = cap_ratio(float(np.sqrt((balls.alpha**2).mean())), m, d) * balls.tangential.mean()
    assert abs(balls.radial.mean() / truth - 1) < 0.25
    assert float(plug_in.mean()) / truth > 1.6


def test_groups_keep_a_document_out_of_its_own_balls() -> None:
    """Each document a tight knot: with its own points allowed a ball never leaves the knot."""
    centre = _unit(_gaussian(60, 8)).repeat_interleave(10, dim=0)
    points = _unit(centre + 1e-3 * _gaussian(600, 8, 3))
    document = torch.arange(60).repeat_interleave(10)
    near = radial_to_tangential(points, (4, 8), centres=50)
    far = radial_to_tangential(points, (4, 8), centres=50, groups=document)
    assert near.alpha.max() < 0.02
    assert far.alpha.min() > 0.1
    with pytest.raises(ValueError, match="outside its own group"):
        radial_to_tangential(points, (4, 8), groups=torch.zeros(600, dtype=torch.int64))


def test_centres_among_copies_are_dropped() -> None:
    points = torch.cat([_sphere_points(300, 3, 8), torch.ones(40, 8)])
    balls = radial_to_tangential(points, (8, 16), centres=340)
    assert balls.dropped == 40
    assert len(balls.centres) == 300


def test_bootstrap_covers_a_known_mean() -> None:
    """Nominal 95 %; percentile intervals of 60 documents are worth about 93.5. Three deviations allowed."""
    random = np.random.default_rng(0)
    hits = 0
    for trial in range(250):
        tokens = random.poisson(30, 60) + 1
        effect = random.normal(size=60)
        rows = np.stack([tokens, tokens * effect + np.sqrt(tokens) * random.normal(size=60)], axis=1)
        interval = bootstrap(rows, lambda s: s[:, 1] / s[:, 0], draws=200, seed=trial)
        hits += bool(interval.low < 0 < interval.high)
    assert abs(hits / 250 - 0.935) < 3 * math.sqrt(0.935 * 0.065 / 250)


def test_bootstrap_over_tokens_would_not() -> None:
    """The control: 60 documents of 30 alike tokens each, resampled as if 1800 were independent."""
    random = np.random.default_rng(0)
    hits = 0
    for trial in range(60):
        tokens = np.repeat(random.normal(size=60), 30)
        rows = np.stack([np.ones(1800), tokens], axis=1)
        interval = bootstrap(rows, lambda s: s[:, 1] / s[:, 0], draws=100, seed=trial)
        hits += bool(interval.low < 0 < interval.high)
    assert hits / 60 < 0.5


def test_bootstrap_shapes_and_undefined_draws() -> None:
    rows = np.zeros((5, 3, 2))
    rows[0, :, 0] = 1
    rows[:, :, 1] = 1
    interval = bootstrap(rows, lambda s: s[:, :, 1] / np.where(s[:, :, 0] > 0, s[:, :, 0], np.nan))
    assert interval.value.tolist() == [5.0] * 3
    # A third of the draws are without the document that counts; the interval is that of the others.
    assert interval.low.shape == (3,) and np.isfinite([interval.low, interval.high]).all()
    nowhere = bootstrap(rows, lambda s: s[:, 0, 0] * np.nan)
    assert np.isnan(nowhere.low)
    with pytest.raises(ValueError, match="at least two"):
        bootstrap(rows[:1], lambda s: s[:, 0, 0])


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    without = (x.sum(axis=0) - x) / 39
    assert np.allclose(jackknife_se(without), x.std(axis=0, ddof=1) / math.sqrt(40))


scores = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(positive=scores, negative=scores)
def test_auc_by_brute_force(positive: list[int], negative: list[int]) -> None:
    p, n = np.array(positive), np.array(negative)
    expected = np.mean((p[:, None] > n) + 0.5 * (p[:, None] == n))
    assert math.isclose(auc(p, n), expected)


@settings(max_examples=60, deadline=None)
@given(data=st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=20))
def test_weighted_auc_repeats_scores(data: list[tuple[int, bool, int]]) -> None:
    score, label, weight = (np.array(column) for column in zip(*data, strict=True))
    again, kinds = np.repeat(score, weight), np.repeat(label, weight)
    areas = weighted_auc(score, label, np.stack([weight, weight]))
    if kinds.any() and not kinds.all():
        assert np.allclose(areas, auc(again[kinds], again[~kinds]))
    else:
        assert np.isnan(areas).all()


def test_auc_refuses_what_has_no_rank() -> None:
    with pytest.raises(ValueError, match="0 negative"):
        auc(np.ones(3), np.ones(0))
    with pytest.raises(ValueError, match="1 scores are NaN"):
        weighted_auc(np.array([1.0, np.nan]), np.array([True, False]), np.ones(2))


@settings(max_examples=60, deadline=None)
@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=15), q=st.sampled_from([0.05, 0.1, 0.3]))
def test_benjamini_hochberg_by_definition(p: list[float], q: float) -> None:
    values = np.array(p)
    m = len(values)
    passing = [t for t in values if t <= q * np.sum(values <= t) / m]
    assert np.array_equal(benjamini_hochberg(values, q), values <= max(passing, default=-1.0))


def test_benjamini_hochberg_holds_its_rate() -> None:
    random = np.random.default_rng(0)
    shares = []
    for _ in range(300):
        z = random.normal(size=100) + np.r_[np.full(20, 3.0), np.zeros(80)]
        p = np.array([math.erfc(v / math.sqrt(2)) / 2 for v in z])
        rejected = benjamini_hochberg(p, 0.1)
        shares.append(rejected[20:].sum() / max(1, rejected.sum()))
    assert abs(np.mean(shares) - 0.08) < 0.02


def _unit(points: Tensor) -> Tensor:
    return points / points.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("d", [8, 200])
def test_balls_drawn_in_show_the_sphere_in_any_dimension(d: int) -> None:
    """Where balls of neighbours are never small, balls drawn in are: slope 2 on the sphere, none off it."""
    x = torch.randn(300, d, generator=torch.Generator().manual_seed(1)) + 0.5
    groups = torch.arange(300) % 20
    on, off = (contracted(x, onto, groups=groups) for onto in (_unit, lambda p: p))
    assert _slope(on) == pytest.approx(2.0, abs=0.2)
    assert abs(_slope(off)) < 0.2
    assert np.all(np.diff(on.alpha, axis=1) < 0)


def test_drawn_in_balls_need_points_outside_the_group() -> None:
    with pytest.raises(ValueError, match="fewer than 24 points outside its own group"):
        contracted(torch.randn(40, 3), _unit, groups=torch.zeros(40, dtype=torch.int64))
