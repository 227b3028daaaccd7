"""The benchmark of parts: each part beside its reference, and one that fails costs no other."""

import json
import runpy
import sys
import time
from pathlib import Path

import pytest
import torch

from armillary.lab.parts.attention.membership import block
from armillary.lab.study.design import SIZES

PATH = Path(__file__).parent.parent / "bench" / "parts.py"
BENCH = runpy.run_path(str(PATH))
Part = BENCH["Part"]
SMOKE = SIZES["smoke"]


def test_every_part_can_be_called_and_has_a_reference():
    parts = BENCH["chosen"](["smoke"])
    assert len({part.label for part in parts}) == len(parts) == 1 + len(BENCH["NORMS"]) + 7
    ready, facts = BENCH["build"](parts, "cpu", time.time() + 60)
    assert facts == {}
    assert {part.reference for part in parts[1:]} <= set(ready) and set(parts) <= set(ready)


def test_the_reference_of_heads_is_what_block_memberships_compute():
    q, k, v = torch.randn(3, 2, 5, SMOKE.width).unbind()
    ours = BENCH["module"](Part("heads", "block", "smoke"), SMOKE)(q, k, v)
    torch.testing.assert_close(ours, BENCH["Sdpa"](SMOKE.heads)(q, k, v))
    assert block(SMOKE.heads, SMOKE.width).sum() == SMOKE.width


def test_a_part_that_fails_or_comes_too_late_is_named_and_the_rest_is_built():
    good, broken = Part("norm", "sphere", "smoke"), Part("norm", "no such norm", "smoke")
    ready, facts = BENCH["build"]([good, broken], "cpu", time.time() + 60)
    assert good in ready and good.reference in ready and "no such norm" in facts[broken.label]["error"]
    ready, facts = BENCH["build"]([good], "cpu", 0.0)
    assert ready == {} and facts[good.label] == {"left_out": "no time left to build it"}


def test_what_a_part_adds_to_a_step_is_its_excess_as_often_as_the_model_has_it():
    step, norm = Part("step", "step", "smoke"), Part("norm", "sphere", "smoke")
    heads, other = Part("heads", "block", "smoke"), Part("norm", "sphere", "cpu")
    times = {"ms": 3.0, "reference_ms": 1.0}
    facts = {step.label: {"ms": 100.0}} | {part.label: dict(times) for part in (norm, heads, other)}
    BENCH["with_shares"](facts, [step, norm, heads, other])
    assert facts[norm.label]["added_share_of_step"] == pytest.approx(0.02 * (2 * SMOKE.layers + 1))
    assert facts[heads.label]["added_share_of_step"] == pytest.approx(0.02 * SMOKE.layers)
    assert "added_share_of_step" not in facts[other.label], "the step was timed at another size"


def test_no_part_is_lost_between_workers():
    parts = BENCH["chosen"](["smoke", "cpu"])
    for jobs in (1, 2, 3, 8):
        tasks = BENCH["shared_out"](parts, jobs)
        assert [part for task in tasks for part in task] == parts and len(tasks) <= jobs


def test_the_whole_benchmark(tmp_path, monkeypatch, capsys):
    out = tmp_path / "parts.json"
    asked = ["parts.py", "--sizes", "smoke", "--only", "sphere", "--jobs", "1", "--rounds", "3", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", asked)
    # Processes of its own would import this file, not the one that runpy has read.
    monkeypatch.setitem(BENCH["main"].__globals__, "measured", in_one_process)
    BENCH["main"]()
    facts = json.loads(out.read_text())["parts"]
    assert facts["norm: sphere, smoke"]["ratio"] > 0 and facts["step: step, smoke"]["ms"] > 0
    assert "× LayerNorm" in capsys.readouterr().out


def in_one_process(parts, device, until, how):
    ready, facts = BENCH["build"](parts, device, until)
    return facts | {part.label: BENCH["timed"](part, ready, device, how.rounds) for part in parts}
