"""Do drawings keep what they say they keep, and do their scores know when they do not?"""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from armillary.errors import ArmillaryError
from armillary.geometry.projection import (
    FEWEST,
    _spearman,
    angles,
    check_installed,
    distances,
    fidelity,
    globe,
    installed,
    on_globe,
    pca,
    principal,
    project,
    span,
)


def directions(count: int, width: int, seed: int = 0) -> np.ndarray:
    u = np.random.default_rng(seed).standard_normal((count, width))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def walk(count: int, width: int, step: float = 0.3, seed: int = 0) -> np.ndarray:
    """A path on the sphere: neighbours in time are neighbours in truth."""
    random = np.random.default_rng(seed)
    u = [random.standard_normal(width)]
    for _ in range(count - 1):
        u.append(u[-1] / np.linalg.norm(u[-1]) + step * random.standard_normal(width) / np.sqrt(width))
    vectors = np.array(u)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def great_circle(a: np.ndarray, b: np.ndarray, count: int = 25) -> np.ndarray:
    angle = np.arccos(a @ b)
    t = np.linspace(0, 1, count)[:, None]
    return (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)


# ---- the globe ------------------------------------------------------------------------------------------


def test_great_circles_stay_great_circles_on_the_pca_globe():
    u = directions(60, 40)
    axes = principal(u)
    for a, b in zip(u[::7], u[3::7], strict=False):
        drawn = on_globe(great_circle(a, b) @ axes.T)
        assert np.linalg.svd(drawn)[1][2] < 1e-9, "all of it in one plane through the centre"
        turns = angles(drawn)[0]
        assert (np.diff(turns) > 0).all(), "from one end to the other, and not the long way round"
        assert turns[-1] == pytest.approx(np.arccos(drawn[0] @ drawn[-1]))


def test_the_tangent_drawing_does_not_keep_them():
    u = directions(60, 40)
    drawn = pca(np.concatenate([u, great_circle(u[0], u[1])]))[60:]
    assert np.linalg.svd(drawn - drawn.mean(0))[1][1] > 1e-3, "no straight line"
    assert np.linalg.svd(drawn)[1][2] > 1e-3, "and no plane through the centre"


def test_the_globe_of_a_globe_is_itself():
    u = np.zeros((50, 12))
    u[:, 3:6] = directions(50, 3)
    drawn = globe("pca", u)
    np.testing.assert_allclose(angles(drawn), angles(u), atol=1e-6)
    assert fidelity(u, drawn).correlation == pytest.approx(1)


def test_principal_axes_are_orthonormal_and_their_signs_settled():
    u = walk(80, 30)
    axes = principal(u)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
    along = u @ axes.T
    assert (along[np.abs(along).argmax(0), np.arange(3)] > 0).all()
    np.testing.assert_allclose(principal(u[::-1]), axes, atol=1e-9)


def test_fewer_dimensions_than_three_leave_axes_empty():
    line = great_circle(*np.eye(5)[:2])
    assert not principal(line)[2].any()
    assert np.isfinite(globe("pca", line)).all()
    same = np.tile(directions(1, 9), (4, 1))
    assert np.isfinite(globe("pca", same)).all()
    assert np.isfinite(pca(same)).all()
    np.testing.assert_array_equal(on_globe(np.zeros((1, 3))), [[1, 0, 0]])


# ---- span -----------------------------------------------------------------------------------------------


def test_span_shows_true_angles_with_its_three():
    start, end, goal, *others = directions(20, 50)
    axes = span(start, end, goal)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
    for corner in (start, end, goal):
        drawn = corner @ axes.T
        assert np.linalg.norm(drawn) == pytest.approx(1), "the three lie on the globe"
        for other in (start, end, goal, *others):
            assert (other @ axes.T) @ drawn == pytest.approx(other @ corner)
    assert all(np.linalg.norm(other @ axes.T) < 1 for other in others), "the others inside"


def test_span_of_fewer_than_three_directions():
    start, end = directions(2, 7)
    axes = span(start, start, end)
    assert not axes[1].any()
    assert (end @ axes.T) @ (start @ axes.T) == pytest.approx(end @ start)


# ---- scores ---------------------------------------------------------------------------------------------


def trustworthiness(true: np.ndarray, drawn: np.ndarray, k: int) -> float:
    """The definition, point by point."""
    n, penalty = len(true), 0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        truly = sorted(others, key=lambda j: true[i, j])
        shown = sorted(others, key=lambda j: drawn[i, j])[:k]
        penalty += sum(truly.index(j) + 1 - k for j in shown if j not in truly[:k])
    return 1 - 2 / (n * k * (2 * n - 3 * k - 1)) * penalty


def test_scores_are_as_defined():
    u = walk(40, 20)
    drawn = pca(u, 2)
    score = fidelity(u, drawn, neighbours=6)
    assert score.trustworthiness == pytest.approx(trustworthiness(angles(u), distances(drawn), 6))
    assert score.continuity == pytest.approx(trustworthiness(distances(drawn), angles(u), 6))


def test_rank_correlation_with_ties_is_scipys():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    for levels in (3, 20, 10_000):
        a, b = random.integers(0, levels, (2, 500)).astype(float)
        assert _spearman(a, a + b) == pytest.approx(spearmanr(a, a + b).statistic)
    assert _spearman(np.ones(5), np.arange(5.0)) == 0, "no order at all"


def test_scores_tell_a_good_drawing_from_none():
    u = walk(120, 30)
    drawn = globe("pca", u)
    shuffled = drawn[np.random.default_rng(1).permutation(len(u))]
    good, bad = fidelity(u, drawn), fidelity(u, shuffled)
    assert good.trustworthiness > 0.9 > 0.6 > bad.trustworthiness
    assert good.continuity > 0.9 > 0.6 > bad.continuity
    assert good.correlation > 0.8 > 0.15 > abs(bad.correlation)
    assert fidelity(u, drawn, shuffled).stability < 0.15 < fidelity(u, drawn, -drawn).stability


def test_no_drawing_keeps_random_directions():
    u = directions(150, 300)
    score = fidelity(u, globe("pca", u))
    assert score.correlation < 0.5
    assert score.trustworthiness < 0.75


def test_two_points_cannot_be_scored():
    with pytest.raises(ValueError, match="three points at least"):
        fidelity(directions(2, 5), directions(2, 3))


# ---- extras ---------------------------------------------------------------------------------------------


def test_a_typo_is_answered():
    with pytest.raises(ArmillaryError, match="did you mean 'pca'"):
        project("pcaa", directions(9, 5))


@pytest.mark.parametrize("name", ["pacmap", "umap"])
def test_extras_say_what_they_need(name, monkeypatch):
    with pytest.raises(ArmillaryError, match=f"needs {FEWEST} points .* use pca"):
        project(name, directions(FEWEST - 1, 5))
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArmillaryError, match=rf"pip install 'armillary\[{name}\]'; pca needs none"):
        project(name, directions(20, 5))
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("armillary.geometry.projection.find_spec", lambda name: None)
    with pytest.raises(ArmillaryError, match="needs the package"):
        check_installed(name)
    check_installed("pca")


def test_a_folder_that_an_uninstalled_package_left_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "pacmap" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pacmap", raising=False)
    assert importlib.util.find_spec("pacmap")
    assert not installed("pacmap")
    with pytest.raises(ArmillaryError, match="needs the package"):
        check_installed("pacmap")


def test_torch_keeps_its_threads(monkeypatch):
    """pacmap with a seed tells OpenMP to use one thread, and torch, which shares it, would go on with one."""

    class Greedy:
        def __init__(self, **settings):
            torch.set_num_threads(1)

        def fit_transform(self, u):
            return u[:, :3]

    monkeypatch.setitem(sys.modules, "pacmap", SimpleNamespace(PaCMAP=Greedy))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        project("pacmap", directions(20, 5))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pacmap", "umap"])
def test_extras_keep_neighbours_and_their_seed(name):
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    u, threads = walk(90, 30), torch.get_num_threads()
    first, again = globe(name, u, 3), globe(name, u, 3)
    assert torch.get_num_threads() == threads
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1)
    assert fidelity(u, first).trustworthiness > 0.85
