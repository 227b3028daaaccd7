"""Heads as a grid: axes that may or may not change places. Planted truth comes back, and its opposite is refuted."""

from functools import cache

import numpy as np
import pytest
from planted import corpus, tried
from planted_grid import CASES, gpt2, written
from tiny import tiny

from armillary.anatomy.read import read
from armillary.probes.bench import Bench
from armillary.probes.grid.axes import SEEDS, Case, HeadAxes, cases
from armillary.results import VERDICTS, Finding


def on_its_own_text(probe, anatomy) -> Finding:
    return tried(probe, anatomy, written(anatomy))


@cache
def found(case: str) -> Finding:
    probe, _, make = CASES[case]
    return on_its_own_text(probe(), make())


def whole(finding: Finding) -> None:
    """Every cell is a number or a word, every column is described, and the interval holds the value."""
    assert finding.verdict in VERDICTS and finding.reading and finding.headline
    for table in (finding.table, *finding.more_tables.values()):
        assert all(column.meaning for column in table.columns)
        for cell in (cell for row in table.rows for cell in row):
            assert not (isinstance(cell, float) and np.isnan(cell)), finding.claim.id
    if finding.verdict != "undecided":
        assert finding.controls and finding.quantities and finding.table.rows and finding.n > 0
        assert finding.statistic.low <= finding.statistic.value + 1e-9
        assert finding.statistic.value <= finding.statistic.high + 1e-9


@pytest.mark.parametrize("case", list(CASES))
def test_planted_truth_comes_back(case):
    finding = found(case)
    whole(finding)
    assert finding.verdict == CASES[case][1], f"{finding.statistic}: {finding.reading}"


# One of each kind: fused and split projections, grouped heads, q/k-norms, soft caps, windows, parallel sublayers, encoders.
KINDS = ("gpt2", "llama", "mistral", "qwen3", "gemma2", "gpt_neox", "opt-post", "bert")


@pytest.mark.parametrize("name", KINDS)
def test_every_family_can_be_asked(name):
    text = corpus(9, 12, vocabulary=97)
    whole(tried(HeadAxes(), read(tiny(name)), text))


def test_interchangeable_axes_cost_nothing_within_their_head():
    finding = found("axes, interchangeable within heads")
    frame = finding.to_frame()
    assert frame.within.abs().max() < 1e-5 < 0.05 < frame.across.min()
    assert finding.statistic.value == pytest.approx(1, abs=1e-3)


def test_q_and_k_alike_are_the_exact_zero():
    finding = found("axes, each with a part of its own")
    alike = next(control for control in finding.controls if "alike" in control.name)
    assert abs(alike.value) < 1e-5 < 0.05 < finding.to_frame().across.min()


def test_fewer_axes_within_than_across_would_support_anything():
    """The mutation that moving the same axes guards against: a quarter of them within beside all of them across."""
    anatomy = gpt2()
    trials = HeadAxes().experiment(Bench(anatomy, written(anatomy)))
    some = {case.moved: case for case in cases(anatomy) if case.where == "z" and len(case.layers) == 2}
    quarter, full = some[2], some[8]

    def cost(case: Case, kind: str) -> float:
        return float(np.mean([trials.cost(case.name(kind, seed))[0] for seed in range(SEEDS)]))

    assert 1 - cost(quarter, "within") / cost(full, "across") > 0.2 > 1 - cost(full, "within") / cost(full, "across")


def test_what_cannot_be_asked_says_what_would_decide():
    assert "several heads would decide" in found("axes, one head").reading
    encoder = tried(HeadAxes(), read(tiny("bert")), corpus(9, 12, vocabulary=97))
    assert encoder.verdict == "undecided" and "language-model head" in encoder.reading
