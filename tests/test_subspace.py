"""Do angles between subspaces come out as planted, however small, and does chance come out as chance?"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from armillary.geometry.subspace import orthonormal, overlap, principal_angles

F64 = torch.float64


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def at_angles(angles: list[float], extra: int = 0, d: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two subspaces with these principal angles, the second larger by `extra` dimensions, in bases that hide them."""
    r = len(angles)
    frame = torch.linalg.qr(gaussian(d, 2 * r + extra, seed=seed)).Q
    theta = torch.tensor(angles, dtype=F64)
    first, away, more = frame[:, :r], frame[:, r : 2 * r], frame[:, 2 * r :]
    second = torch.cat([first * theta.cos() + away * theta.sin(), more], 1)
    return first @ gaussian(r, r, seed=seed + 1), second @ gaussian(r + extra, r + extra, seed=seed + 2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 1e-9, 1e-4, 0.3, math.pi / 4, 1.2, math.pi / 2 - 1e-9, math.pi / 2]),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 3),
    st.integers(0, 1000),
)
def test_planted_angles_come_back(angles: list[float], extra: int, seed: int) -> None:
    a, b = at_angles(angles, extra, seed=seed)
    spoiled = max(float(torch.linalg.cond(x)) for x in (a, b))
    expected = torch.tensor(sorted(angles), dtype=F64)
    for measured in (principal_angles(a, b), principal_angles(b, a)):
        assert torch.allclose(measured, expected, rtol=0, atol=1e-14 * spoiled)
    assert float(overlap(a, b)) == pytest.approx(float(expected.cos().square().mean()), abs=1e-13 * spoiled)


def test_the_arccosine_would_not_see_small_angles() -> None:
    a, b = at_angles([1e-9])
    cosine = float((orthonormal(a).mT @ orthonormal(b)).abs().clamp(max=1))
    assert abs(math.acos(cosine) - 1e-9) > 1e-10
    assert float(principal_angles(a, b)) == pytest.approx(1e-9, rel=1e-4)


def test_containing_and_avoiding() -> None:
    frame = torch.linalg.qr(gaussian(10, 6)).Q
    assert float(overlap(frame[:, :2], frame)) == pytest.approx(1)
    assert float(overlap(frame[:, :2], frame[:, 2:])) == pytest.approx(0, abs=1e-15)
    assert torch.allclose(principal_angles(frame, torch.eye(10, dtype=F64)), torch.zeros(6, dtype=F64), atol=1e-14)


def test_batches_broadcast() -> None:
    heads, axes = gaussian(4, 3, 12, 2), gaussian(12, 5, seed=1)
    assert overlap(heads, axes).shape == (4, 3)
    assert principal_angles(axes, heads).shape == (4, 3, 2)
    assert float(overlap(heads[1, 2], axes)) == pytest.approx(float(overlap(heads, axes)[1, 2]))
    angles = principal_angles(heads, axes)
    assert torch.allclose(angles.cos().square().mean(-1), overlap(heads, axes))
    assert torch.allclose(angles[1, 2], principal_angles(heads[1, 2], axes))


@pytest.mark.parametrize(("d", "r", "s"), [(10, 1, 3), (10, 3, 3), (10, 2, 5), (10, 5, 2), (30, 4, 8), (6, 4, 5)])
def test_chance_is_what_it_is_said_to_be(d: int, r: int, s: int) -> None:
    overlaps = overlap(gaussian(4000, d, r, seed=d + r), torch.eye(d, dtype=F64)[:, :s])
    error = float(overlaps.std() / math.sqrt(len(overlaps)))
    assert abs(float(overlaps.mean()) - max(r, s) / d) < 4 * error + 1e-15
    # Control: the law is not so loose that its neighbour would pass.
    assert abs(float(overlaps.mean()) - max(r, s) / (d + 1)) > 4 * error


def test_what_spans_nothing_is_refused() -> None:
    good = gaussian(5, 2)
    for bad in (torch.zeros(5, 2, dtype=F64), torch.cat([good, good], 1), gaussian(5, 6), gaussian(5, 0)):
        with pytest.raises(ValueError, match="linearly dependent"):
            overlap(good, bad)
        with pytest.raises(ValueError, match="linearly dependent"):
            principal_angles(bad, good)


def test_float32_stays() -> None:
    a, b = at_angles([0.1, 0.7])
    angles = principal_angles(a.float(), b.float())
    assert angles.dtype == torch.float32
    assert torch.allclose(angles, torch.tensor([0.1, 0.7]), atol=1e-5)
