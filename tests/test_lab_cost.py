"""What an arm costs is counted, and comparisons at equal cost come back as planted."""

import math
from dataclasses import replace

import pytest

from armillary.lab.model import build
from armillary.lab.study.arm_training import StepClock, recipe_of
from armillary.lab.study.arms import arms_of
from armillary.lab.study.cost import at_equal, at_share, by_best, flops_per_token, median_cost
from armillary.lab.study.design import SIZES

SIZE = SIZES["cpu"]


def flops(name: str, study: str) -> int:
    arm = next(arm for arm in arms_of(study) if arm.name == name)
    model = build(replace(recipe_of(SIZE, 0), feed_forward=arm.feed_forward(SIZE)))
    arm.apply(model)
    return flops_per_token(model, SIZE.context)


def test_flops_are_those_of_the_matrix_products():
    """Two per product and three passes: projections, feed-forward, scores and values, unembedding."""
    layers, d, tokens = SIZE.layers, SIZE.width, SIZE.context
    expected = 6 * (layers * (4 * d * d + 8 * d * d + 2 * tokens * d) + d * SIZE.vocabulary)
    assert flops("layernorm", "norms") == expected
    assert flops("block heads", "gate") == expected, "another kernel, the same products"
    # A soft head scores with all axes in place of its share of them.
    more = 6 * layers * 2 * tokens * d * (SIZE.heads - 1)
    assert flops("free", "softheads") >= expected + more / 2
    assert flops("blocks", "mismatch") < expected


def planted(costs: dict[str, float], curves: dict[str, list[float]], seeds: int = 5, best: float = 0.0) -> list[dict]:
    """Runs whose curves differ by seed only in their level; looks after each fourth of 100 steps."""
    return [
        {
            "arm": arm, "seed": seed, "tuning": False, "diverged": False, "flops": costs[arm],
            "curve": [[25 * (i + 1), loss + seed * 0.1 + 1e-4 * (seed % 2)] for i, loss in enumerate(losses)],
            "loss": losses[-1] + seed * 0.1, "best": min(losses) + seed * 0.1 - (best if arm == "arm" else 0),
        }
        for arm, losses in curves.items()
        for seed in range(seeds)
    ]  # fmt: skip


def test_at_equal_cost_the_dearer_arm_has_fewer_steps():
    curves = {"base": [5.0, 4.5, 4.2, 4.0], "arm": [4.9, 4.3, 4.0, 3.8]}
    (same,) = at_equal(planted({"base": 7.0, "arm": 7.0}, curves), "base", "flops")
    assert (same.difference, same.outcome) == (pytest.approx(-0.2), "better")
    (twice,) = at_equal(planted({"base": 7.0, "arm": 14.0}, curves), "base", "flops")
    assert (twice.difference, twice.outcome) == (pytest.approx(4.3 - 4.0), "worse"), "its loss at half of its steps"
    (half,) = at_equal(planted({"base": 7.0, "arm": 3.5}, curves), "base", "flops")
    assert half.difference == pytest.approx(3.8 - 4.5), "the reference at half of its steps"


def test_without_recorded_costs_nothing_is_said():
    rows = planted({"base": 1.0, "arm": 1.0}, {"base": [4.0, 3.0], "arm": [4.0, 3.0]})
    assert at_equal(rows, "base", "step_seconds") == []
    assert math.isnan(median_cost(rows, "arm", "step_seconds"))


def test_before_the_first_look_there_is_no_loss():
    rows = planted({"base": 1.0, "arm": 9.0}, {"base": [4.0, 3.0], "arm": [4.0, 3.0]})
    (far,) = at_equal(rows, "base", "flops")
    assert (far.seeds, far.outcome) == (0, "undecided")
    assert at_share([[10, None], [20, 4.0]], 0.75) is None


def test_the_best_checkpoint_is_compared_as_well_as_the_end():
    curves = {"base": [4.0, 3.0], "arm": [4.0, 3.0]}
    (row,) = by_best(planted({"base": 1.0, "arm": 1.0}, curves, best=0.05), "base")
    assert (row.difference, row.outcome) == (pytest.approx(-0.05), "better")


def test_the_clock_leaves_evaluations_and_compilation_out(monkeypatch):
    now = iter([0.0, 50.0, 100.0, 102.0, 200.0, 204.0])
    monkeypatch.setattr("armillary.lab.study.arm_training.time.perf_counter", lambda: next(now))
    clock = StepClock("cpu")
    for step in (10, 20, 30):
        clock.pause(step)
        if step < 30:
            clock.go_on()
    # Stretches of 50, 2 and 4 seconds; the first may have compiled.
    assert clock.per_step == pytest.approx(0.3)
