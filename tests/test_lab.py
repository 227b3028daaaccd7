"""A run and what it leaves: a killed one comes to the same bytes, and the folder loads like any model's."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as tr
from runs import RECIPES, Killed, dies, finished, log, outcome, prose, small, trainer
from safetensors.torch import load_file

import armillary
from armillary.errors import OutputError
from armillary.flow.laws import LAWS
from armillary.lab.checkpoint import CHECKPOINT
from armillary.lab.data import END, Text
from armillary.lab.model import build
from armillary.lab.recipe import ARCHITECTURES
from armillary.lab.train import Trainer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return prose(tmp_path_factory.mktemp("text") / "prose.txt")


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """A run of every recipe that nothing interrupted."""
    return finished(text, tmp_path_factory.mktemp("whole"))


# A killed run.


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("method", "step", "after"),
    [("_update", 2, False), ("_update", 4, False), ("_update", 9, True), ("_evaluate", 5, True), ("_save", 8, False)],
)
def test_a_killed_run_resumes_to_the_same_bytes(whole, text, tmp_path, monkeypatch, recipe, method, step, after):
    with monkeypatch.context() as patch:
        dies(patch, method, lambda run: run.step == step, after)
        with pytest.raises(Killed):
            trainer(RECIPES[recipe], text, tmp_path / "run").run()
    assert (tmp_path / "run" / CHECKPOINT).exists() == (step >= 4)
    torch.rand(7)
    resumed = trainer(RECIPES[recipe], text, tmp_path / "run")
    learnt: list[int] = []
    resumed.tick = lambda what, done, total: learnt.append(done) if what.startswith("step") else None
    resumed.run()
    assert learnt[0] == {2: 1, 4: 5, 9: 9, 5: 5, 8: 5}[step], "it went on from the last checkpoint"
    assert outcome(tmp_path / "run") == outcome(whole[recipe].out)
    assert not (tmp_path / "run" / CHECKPOINT).exists()


def test_a_run_killed_over_and_over(whole, text, tmp_path, monkeypatch):
    for step in (1, 5, 6, 9, 12):
        with monkeypatch.context() as patch:
            dies(patch, "_evaluate" if step == 12 else "_update", lambda run, step=step: run.step == step)
            with pytest.raises(Killed):
                trainer(RECIPES["gpt-dropout"], text, tmp_path / "run").run()
        with (tmp_path / "run" / "log.jsonl").open("a") as stream:
            stream.write('{"step": 13, "loss": 4.0')  # torn
    trainer(RECIPES["gpt-dropout"], text, tmp_path / "run").run()
    assert outcome(tmp_path / "run") == outcome(whole["gpt-dropout"].out)


def test_a_process_killed_by_the_system(whole, text, tmp_path):
    code = (
        "import os, signal, sys; sys.path.insert(0, 'tests'); from pathlib import Path; import torch\n"
        "torch.set_num_threads(1); from runs import small, trainer\n"
        f"run = trainer(small(dropout=0.2), Path({str(text)!r}), Path({str(tmp_path / 'run')!r}))\n"
        "run.tick = lambda what, done, total: done == 7 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "run.run()"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, cwd=root, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [row["step"] for row in log(tmp_path / "run") if "loss" in row] == [1, 2, 3, 4, 5, 6, 7]
    # What the kill may have left of a file half written.
    (tmp_path / "run" / ".checkpoint.safetensors.0a1b2c3d.part").write_bytes(b"half")
    trainer(RECIPES["gpt-dropout"], text, tmp_path / "run").run()
    assert outcome(tmp_path / "run") == outcome(whole["gpt-dropout"].out)
    assert not list((tmp_path / "run").rglob("*.part"))


@pytest.mark.parametrize("recipe", ["gpt-dropout", "llama-dropout"])
def test_the_random_state_is_part_of_a_checkpoint(text, tmp_path, monkeypatch, whole, recipe):
    """Control for the tests above: a resumed run that draws its dropout afresh is another run."""
    with monkeypatch.context() as patch:
        dies(patch, "_update", lambda run: run.step == 5)
        with pytest.raises(Killed):
            trainer(RECIPES[recipe], text, tmp_path / "run").run()
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    trainer(RECIPES[recipe], text, tmp_path / "run").run()
    ours, theirs = log(tmp_path / "run"), log(whole[recipe].out)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    assert ours != theirs


def test_a_finished_run_is_not_trained_again(whole, text, monkeypatch):
    out = whole["gpt"].out
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(Trainer, "_make", lambda self: pytest.fail("trained again"))
    assert trainer(RECIPES["gpt"], text, out).run() == out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


def test_a_damaged_checkpoint_is_named(text, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        dies(patch, "_update", lambda run: run.step == 5)
        with pytest.raises(Killed):
            trainer(RECIPES["gpt"], text, tmp_path / "run").run()
    path = tmp_path / "run" / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OutputError, match=r"checkpoint.safetensors cannot be read \(.*\); delete it to start again"):
        trainer(RECIPES["gpt"], text, tmp_path / "run").run()


# What a run writes.


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_log(whole, recipe):
    rows = log(whole[recipe].out)
    steps, looks = ([row["step"] for row in rows if key in row] for key in ("loss", "valid_bits_per_byte"))
    assert steps == list(range(1, 13))
    assert looks == [0, 1, 2, 4, 5, 10, 12], "doubling steps, every fifth, the kept ones, and the last"
    assert [row["step"] for row in rows] == sorted(steps + looks)
    plan = RECIPES[recipe]
    assert [row["rate"] for row in rows if "loss" in row] == [plan.rate_at(step) for step in range(12)]
    assert all(row["norm"] > 0 for row in rows if "loss" in row)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_folder_loads_everywhere(whole, architecture):
    out = whole[architecture].out
    anatomy = armillary.load(str(out), device="cpu", progress=False)
    assert len(anatomy.laws) == len(LAWS)
    assert (anatomy.layers, anatomy.context, anatomy.vocabulary) == (1, 16, 280)
    words = tr.AutoTokenizer.from_pretrained(out)
    assert (words.eos_token, words.bos_token, words.model_max_length) == (END, END, 16)
    assert words.encode("The cat, äöü.") == whole[architecture].bpe.encode("The cat, äöü.").ids
    assert words.decode(words.encode(" The cat , äöü .")) == " The cat , äöü ."
    model = tr.AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype is torch.float16
    trained = whole[architecture].model.state_dict()
    assert trained.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, trained[name].half()) for name, tensor in model.state_dict().items())
    stored = load_file(out / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters()), "tied once"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_kept_steps_load(whole, architecture):
    steps = sorted((whole[architecture].out / "steps").iterdir())
    assert [int(path.name) for path in steps] == list(RECIPES[architecture].kept_steps) == [0, 2, 5, 12]
    first, last = (tr.AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (steps[0], steps[-1]))
    untrained = build(RECIPES[architecture], whole[architecture].bpe.token_to_id(END)).state_dict()
    assert all(torch.equal(first[name], untrained[name].half()) for name in first)
    end = load_file(whole[architecture].out / "model.safetensors")
    assert all(torch.equal(last[name], tensor) for name, tensor in end.items())
    assert any(not torch.equal(first[name], last[name]) for name in first)
    assert len(armillary.load(str(steps[1]), device="cpu", progress=False).laws) == len(LAWS)


def test_a_folder_belongs_to_one_run(text, tmp_path, whole):
    out = whole["gpt"].out
    with pytest.raises(OutputError, match=r"contains another run \(seed 0 there, 1 here\); choose another --out"):
        trainer(small(seed=1), text, out).run()
    with pytest.raises(OutputError, match=r"contains another run \(of another text\); choose another --out"):
        trainer(small(), prose(tmp_path / "other.txt", 4), out).run()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(
        OutputError, match="mine is not empty and contains no run of this program; choose another --out"
    ):
        trainer(small(), text, tmp_path / "mine").run()
    assert json.loads((out / "recipe.json").read_text())["recipe"] == small().to_dict()
    assert json.loads((out / "recipe.json").read_text())["text"] == Text.of(text).sha256
