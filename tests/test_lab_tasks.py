"""Tasks beyond any linear map: their bounds hold, and a norm passes them where a constant scale cannot."""

import numpy as np
import pytest
import torch
from scipy import stats

from armillary.errors import ArmillaryError
from armillary.lab.study.small_tasks.norm_tasks import TASKS, Lesson, Network

SHORT = Lesson(steps=400)


@pytest.mark.parametrize("task", ["xor", "parity of 3"])
def test_no_threshold_is_right_on_more_corners(task):
    draw, bits, bound = TASKS[task]
    x, y = draw(0, torch.Generator())
    assert len(x) == 2**bits
    assert y.mean() == 0.5
    chance = np.random.default_rng(0)
    weights, thresholds = chance.normal(size=(100_000, bits)), chance.normal(size=(100_000, 1)) * 1.5
    right = ((weights @ x.numpy().T > thresholds) == (y.numpy() > 0)).mean(1)
    assert right.max() == bound


def test_no_half_plane_separates_the_circle():
    radius = np.sqrt(2 * np.log(2))
    x = np.linspace(-8, 8, 64_001)
    inside = np.where(abs(x) < radius, 1 - 2 * stats.norm.sf(np.sqrt(np.clip(radius**2 - x**2, 0, None))), 0)
    # What is gained if points beyond the edge are called outside.
    gained = np.cumsum((stats.norm.pdf(x) * (1 - 2 * inside) * (x[1] - x[0]))[::-1])
    assert 0.5 + gained.max() == pytest.approx(TASKS["circle"][2], abs=1e-4)
    _, answers = TASKS["circle"][0](100_000, torch.Generator().manual_seed(0))
    # Four standard errors of a share of one half.
    assert float(answers.mean()) == pytest.approx(0.5, abs=4 * 0.5 / 100_000**0.5)


@pytest.mark.parametrize("task", ["xor", "circle"])
def test_norms_alone_solve_it_and_a_constant_scale_cannot(task):
    solved, floor = (SHORT.accuracy(task, Network(norm), seed=1) for norm in ("layernorm", "constant"))
    # Two standard errors of 4000 points above the bound of a linear map.
    assert floor <= TASKS[task][2] + 2 * 0.5 / SHORT.examined**0.5
    assert solved > 0.98


def test_the_floor_is_one_linear_map():
    model = Network("constant").build(2, 0).double()
    a, b = torch.randn(2, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    zero = model(torch.zeros(1, 2, dtype=torch.float64))
    torch.testing.assert_close(model(a + b) - zero, model(a) - zero + model(b) - zero, rtol=1e-10, atol=1e-10)


def test_unknown_tasks_are_refused():
    with pytest.raises(ArmillaryError, match="no task 'xnor'"):
        SHORT.accuracy("xnor", Network())
