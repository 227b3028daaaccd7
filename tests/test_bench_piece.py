"""A piece of GPU time: studies go on from known runs, share their tokens, and an arm that fails costs no other."""

import runpy
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest

from armillary.errors import ArmillaryError
from armillary.lab import data
from armillary.lab.study.arms import arms_of
from armillary.lab.study.queue import Study, read_runs

PIECE = runpy.run_path(str(Path(__file__).parent.parent / "bench" / "piece.py"))


@pytest.fixture
def text(tmp_path):
    words = "the cat sat on a mat while rain fell and birds sang of stone and sea".split()
    lines = [" ".join(words[(i * j) % len(words)] for j in range(1, 12)) for i in range(1, 400)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(lines))
    return data.Text.of(path)


@pytest.fixture
def asked(tmp_path):
    return Namespace(out=tmp_path / "out", known=tmp_path / "known", size="smoke", seeds=1, device="cpu")


def test_arms_of_two_studies_go_on_and_a_failure_costs_no_other(text, asked, monkeypatch, capsys):
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3,))
    Study("metric", "smoke", text, asked.known / "metric-smoke", 1, "cpu").run(["dot"])
    before = len(read_runs(asked.known / "metric-smoke"))
    studies = {name: PIECE["prepared"](name, "smoke", text, asked) for name in ("metric", "layout")}
    assert len(read_runs(asked.out / "metric-smoke")) == before == 3
    assert len({(asked.out / f"{name}-smoke" / "tokens").resolve() for name in studies}) == 1
    assert PIECE["digest"](asked.out / "tokens") == PIECE["digest"](asked.known / "metric-smoke" / "tokens")
    broken, plain = replace(arms_of("metric")[1], score="no such score"), arms_of("layout")[0]
    tasks = Queue()
    for task in (({}, studies["metric"], broken), ({}, studies["layout"], plain), None):
        tasks.put(task)
    PIECE["worker"](tasks, 7)
    output = capsys.readouterr().out
    assert "metric:cosine failed" in output and "no score 'no such score'" in output and "nothing left" in output
    # The plain model of the other study is the same model.
    rows = read_runs(asked.out / "layout-smoke")
    assert len(rows) == 3
    assert all(row["taken_from"].startswith("metric/") for row in rows)


def test_known_runs_of_another_text_are_refused(text, asked, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(text.source.read_text() + "\n\nAnd more of it.")
    study = Study("metric", "smoke", data.Text.of(other), asked.known / "metric-smoke", 1, "cpu")
    study.out.mkdir(parents=True)
    study._claim()
    (study.out / "runs.jsonl").touch()
    with pytest.raises(ArmillaryError, match="text differ"):
        PIECE["prepared"]("metric", "smoke", text, asked)


def test_an_arm_names_its_study_size_and_seeds(asked):
    assert PIECE["parts"]("norms/xs-scarce:dyt, loud@9", asked) == ("norms", "xs-scarce", "dyt, loud", 9)
    assert PIECE["parts"]("norms:sphere", asked) == ("norms", "smoke", "sphere", 1)


def test_without_mps_processes_share_the_gpu_plainly(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert PIECE["shared_gpu"]() == {}
    assert "no MPS" in capsys.readouterr().out
