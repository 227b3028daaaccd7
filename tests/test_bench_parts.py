"""The benchmark of parts: every other model once, in turn, and one that fails costs no other."""

import json
import runpy
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from armillary.lab.study.arms import NORMS, PLAIN
from armillary.lab.study.design import SIZES

PATH = Path(__file__).parent.parent / "bench" / "parts.py"
BENCH = runpy.run_path(str(PATH))
SMOKE = SIZES["smoke"]


def test_arms_that_are_the_same_model_are_timed_once():
    names = [name for name, _ in BENCH["chosen"]("norms,heads,scores,activations")]
    assert names[0] == BENCH["REFERENCE"]
    assert len(set(names)) == len(names)
    # A slower gain and other rates are the same computation.
    assert not {"norms: layernorm", "norms: slow gain", "norms: dyt, low rates", "heads: ordinary heads"} & set(names)
    assert {"norms: dyt", "heads: free", "scores: cosine", "activations: relu"} <= set(names)
    with pytest.raises(SystemExit, match="no part 'norm'; known: norms"):
        list(BENCH["chosen"]("norm"))


def test_an_arm_that_fails_is_named_and_the_rest_timed():
    arms = [("plain", PLAIN), ("broken", replace(PLAIN, norm="no such norm")), ("sphere", NORMS[4]), ("late", NORMS[1])]
    ready, facts = BENCH["built"](arms[:3], SMOKE, "cpu", time.perf_counter() + 60)
    assert list(ready) == ["plain", "sphere"] and "no such norm" in facts["broken"]["error"]
    _, late = BENCH["built"]([arms[0], arms[3]], SMOKE, "cpu", 0.0)
    assert late["late"] == {"left_out": "no time left to build it"}
    order = []
    watched = {name: lambda count, name=name: order.append(name) or 1.0 for name in ready}
    found = BENCH["timed"](watched, 0.0, 1)
    assert order[:4] == ["plain", "sphere", "sphere", "plain"], "each round begins with another arm"
    assert [len(seconds) for seconds in found.values()] == [BENCH["LEAST_ROUNDS"]] * 2


def test_the_whole_benchmark(tmp_path, monkeypatch, capsys):
    out = tmp_path / "parts.json"
    asked = ["parts.py", "--parts", "activations", "--size", "smoke", "--seconds", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", asked)
    BENCH["main"]()
    record = json.loads(out.read_text())
    reference = record["arms"][BENCH["REFERENCE"]]
    assert reference["ratio"] == 1 and reference["step_ms"] > 0
    assert record["tokens_per_step"] == SMOKE.batch * SMOKE.context
    assert BENCH["REFERENCE"] in capsys.readouterr().out
