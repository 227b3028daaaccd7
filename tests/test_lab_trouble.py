"""Runs that fail: losses that are not finite, full disks. Earlier files stay, and the run can be resumed."""

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, dies, fill_disk, log, outcome, prose, small, trainer
from safetensors import safe_open

from armillary import laboratory
from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.lab.checkpoint import CHECKPOINT
from armillary.lab.data import Text
from armillary.lab.train import Trainer, TrainingError

TWO = small(layers=2)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return prose(tmp_path_factory.mktemp("text") / "prose.txt")


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    return outcome(trainer(TWO, text, tmp_path_factory.mktemp("whole") / "run").run())


def spoil(monkeypatch: pytest.MonkeyPatch, step: int, part: str, factor: float, after: bool = False) -> None:
    """Multiply one matrix of the model before (or after) the step that follows `step` steps."""
    real = Trainer._update

    def update(self: Trainer) -> tuple[float, float]:
        now = self.step == step
        if now and not after:
            self.model.get_submodule(part).weight.data *= factor
        loss = real(self)
        if now and after:
            self.model.get_submodule(part).weight.data *= factor
        return loss

    monkeypatch.setattr(Trainer, "_update", update)


def spoil_loss(monkeypatch: pytest.MonkeyPatch, step: int, factor: float) -> None:
    """The forward pass is sound, and what comes out of it is not."""
    real = Trainer._loss
    monkeypatch.setattr(Trainer, "_loss", lambda self, rows: real(self, rows) * (factor if self.step == step else 1.0))


def saved_step(out: Path) -> int:
    with safe_open(out / CHECKPOINT, "pt") as file:
        assert all(bool(file.get_tensor(name).isfinite().all()) for name in file.keys())  # noqa: SIM118
        return int(file.metadata()["step"])


@pytest.mark.parametrize(
    ("part", "site"),
    [
        ("transformer.wte", "L0.ln1"),
        ("transformer.h.0.attn.c_proj", "L0.ln2"),
        ("transformer.h.0.mlp.c_proj", "L1.ln1"),
        ("transformer.h.1.attn.c_proj", "L1.ln2"),
        ("transformer.h.1.mlp.c_proj", "ln_final"),
    ],
)
def test_a_loss_that_is_no_number_names_the_step_and_the_first_broken_site(
    text, tmp_path, monkeypatch, whole, part, site
):
    spoil(monkeypatch, 6, part, math.nan)
    with pytest.raises(TrainingError) as caught:
        trainer(TWO, text, tmp_path / "run").run()
    assert "the loss is nan and the gradient's length nan at step 7; " in str(caught.value)
    assert f"the stream grew most at {site}, from a length of " in str(caught.value)
    assert "to nan; the checkpoint after step 4 is kept; start again" in str(caught.value)
    assert saved_step(tmp_path / "run") == 4
    monkeypatch.undo()
    assert outcome(trainer(TWO, text, tmp_path / "run").run()) == whole


@pytest.mark.parametrize("resumed", [False, True])
def test_a_finite_explosion_is_named_by_the_site_that_grew_most(text, tmp_path, monkeypatch, resumed):
    """The planted factor comes back, also just after a resume, when no look has been taken yet."""
    if resumed:
        with monkeypatch.context() as patch:
            dies(patch, "_update", lambda run: run.step == 8)
            with pytest.raises(Killed):
                trainer(TWO, text, tmp_path / "run").run()
    spoil(monkeypatch, 8, "transformer.h.0.mlp.c_proj", 1e8)
    spoil_loss(monkeypatch, 8, math.inf)
    with pytest.raises(
        TrainingError, match=r"the loss is inf .* at step 9; the stream grew most at L1.ln1, "
    ) as caught:
        trainer(TWO, text, tmp_path / "run").run()
    before, after = str(caught.value).split("from a length of ")[1].split(";")[0].split(" at the last evaluation to ")
    assert float(after) > 1e4 > 10 > float(before)
    assert saved_step(tmp_path / "run") == 8


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_bad_step_changes_no_weight(text, tmp_path, monkeypatch, factor):
    spoil_loss(monkeypatch, 6, factor)
    run = trainer(TWO, text, tmp_path / "run")
    states: list[dict[str, torch.Tensor]] = []
    run.tick = lambda what, done, total: (
        states.append({name: tensor.clone() for name, tensor in run.model.state_dict().items()})
        if what.startswith("step")
        else None
    )
    with pytest.raises(
        TrainingError, match=f"the loss is {factor} .* at step 7; .*the checkpoint after step 4 is kept"
    ):
        run.run()
    assert run.step == len(states) == 6
    assert all(torch.equal(tensor, states[-1][name]) for name, tensor in run.model.state_dict().items())
    assert [row["step"] for row in log(run.out) if "loss" in row] == [1, 2, 3, 4, 5, 6]


def test_before_the_first_checkpoint_there_is_none_to_keep(text, tmp_path, monkeypatch):
    spoil_loss(monkeypatch, 0, math.nan)
    with pytest.raises(TrainingError, match=r"at step 1; .*; no checkpoint was due yet; start again in another --out"):
        trainer(TWO, text, tmp_path / "run").run()
    assert not (tmp_path / "run" / CHECKPOINT).exists()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (4, "the held-out text costs nan bits per byte at step 5; the stream grew most at L0.ln2"),
        (7, "a weight is NaN or infinite at step 8; the stream grew most at L0.ln2"),
    ],
)
def test_a_weight_that_is_no_number_is_found_before_it_is_kept(text, tmp_path, monkeypatch, step, message):
    """Step 5 is looked at and step 8 is saved; the loss of either was still good."""
    spoil(monkeypatch, step, "transformer.h.0.attn.c_proj", math.nan, after=True)
    with pytest.raises(TrainingError, match=f"{message}.*; the checkpoint after step 4 is kept"):
        trainer(TWO, text, tmp_path / "run").run()
    assert saved_step(tmp_path / "run") == 4
    assert [row["step"] for row in log(tmp_path / "run") if "loss" in row][-1] == step + 1


def test_a_stream_that_only_the_geometry_finds_broken(text, tmp_path, monkeypatch):
    """What the callback says of a diverged model becomes the trainer's own sentence, with step and site."""
    spoil(monkeypatch, 4, "transformer.h.0.attn.c_proj", math.nan, after=True)
    monkeypatch.setattr("armillary.lab.train.bits_per_byte", lambda *args: 1.0)
    with pytest.raises(
        TrainingError, match=r"the stream contains NaN or infinity at step 5; the stream grew most at L0.ln2"
    ):
        laboratory.train("smoke", text, tmp_path / "run", progress=False, **_changes())
    assert saved_step(tmp_path / "run") == 4


def _changes() -> dict[str, Any]:
    return {name: value for name, value in TWO.to_dict().items() if name not in ("preset", "architecture")}


def test_what_is_undefined_is_null_in_the_log(text, tmp_path):
    run = trainer(small(steps=1), text, tmp_path / "run", watch=lambda step, model: {"a": 1.5, "b": math.nan})
    run.run()
    raw = (run.out / "log.jsonl").read_text()
    rows = [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) for line in raw.splitlines()
    ]
    assert rows[0]["geometry"] == {"a": 1.5, "b": None}


# A full disk.


def killed(text: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        dies(patch, "_update", lambda run: run.step == 6)
        with pytest.raises(Killed):
            trainer(TWO, text, out).run()


@pytest.mark.parametrize("file", [".recipe.json", ".bpe.json", "train-000", ".valid.json", ".done.json", "log"])
def test_a_disk_that_is_full_from_the_start(text, tmp_path, monkeypatch, whole, file):
    with monkeypatch.context() as patch:
        fill_disk(patch, file)
        with pytest.raises(OutputError, match="cannot be written: the disk is full; free some space"):
            trainer(TWO, text, tmp_path / "run").run()
    assert outcome(trainer(TWO, text, tmp_path / "run").run()) == whole


@pytest.mark.parametrize(
    "file", [".checkpoint.safetensors", ".model.safetensors", ".config.json", ".log.jsonl", "log.jsonl"]
)
def test_a_disk_that_fills_up_leaves_the_checkpoint(text, tmp_path, monkeypatch, whole, file):
    killed(text, tmp_path / "run", monkeypatch)
    before = (tmp_path / "run" / CHECKPOINT).read_bytes()
    with monkeypatch.context() as patch:
        fill_disk(patch, file)
        with pytest.raises(OutputError, match=f"{file.strip('.')} cannot be written: the disk is full; free"):
            trainer(TWO, text, tmp_path / "run").run()
    if "checkpoint" in file or "log" in file:
        assert (tmp_path / "run" / CHECKPOINT).read_bytes() == before
    assert not list((tmp_path / "run").rglob("*.part"))
    assert outcome(trainer(TWO, text, tmp_path / "run").run()) == whole


@pytest.mark.parametrize("file", [CHECKPOINT, "model.safetensors"])
def test_a_rename_that_fails_leaves_the_checkpoint(text, tmp_path, monkeypatch, whole, file):
    def rename(source: Any, target: Path, real: Callable[..., None] = os.replace) -> None:
        if target.name == file:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        real(source, target)

    killed(text, tmp_path / "run", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", rename)
        with pytest.raises(OutputError, match=f"{file} cannot be written: the disk is full; free some space"):
            trainer(TWO, text, tmp_path / "run").run()
    assert saved_step(tmp_path / "run") in (4, 12)
    assert outcome(trainer(TWO, text, tmp_path / "run").run()) == whole


# A folder that was refused can be tried again with what the refusal asked for.


def test_a_run_that_never_began_gives_its_folder_up(text, tmp_path):
    with pytest.raises(ValueError, match="a vocabulary of 60000 was asked for, but the text supports only"):
        trainer(small(vocabulary=60000), text, tmp_path / "run").run()
    trainer(small(), text, tmp_path / "run").run()
    with pytest.raises(OutputError, match=r"contains another run \(vocabulary 280 there, 60000 here\)"):
        trainer(small(vocabulary=60000), text, tmp_path / "run").run()


# Folders and files that are not what they should be.


def test_nothing_is_taken_from_a_folder_that_is_not_ours(text, tmp_path):
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    (tmp_path / ".thesis.tex.deadbeef.part").write_text("mine too", "utf-8")
    with pytest.raises(OutputError, match="contains no run of this program"):
        trainer(TWO, text, tmp_path).run()
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", ".thesis.tex.deadbeef.part"}


def test_a_run_does_not_go_on_elsewhere(text, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        dies(patch, "_update", lambda run: run.step == 5)
        with pytest.raises(Killed):
            trainer(TWO, text, tmp_path / "run").run()
    with pytest.raises(OutputError, match=r"contains another run \(device 'cpu' there, 'cuda' here\)"):
        trainer(TWO, text, tmp_path / "run", device="cuda:0").run()


def test_a_damaged_shard_is_noticed(text, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        dies(patch, "_update", lambda run: run.step == 5)
        with pytest.raises(Killed):
            trainer(TWO, text, tmp_path / "run").run()
    shard = tmp_path / "run" / "tokens" / "train-000.u16"
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(TextError, match=r"tokens is damaged: train should contain \d+ tokens; delete that folder"):
        trainer(TWO, text, tmp_path / "run").run()


def test_a_checkpoint_left_by_a_kill_at_the_very_end_goes(text, tmp_path):
    out = trainer(TWO, text, tmp_path / "run").run()
    (out / CHECKPOINT).write_bytes(b"left over")
    trainer(TWO, text, out).run()
    assert not (out / CHECKPOINT).exists()


def test_a_text_that_can_be_read_only_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TextError, match="is a stream, but the text is read more than once; save it to a file first"):
        Text.of(tmp_path / "pipe")


def test_a_study_of_odd_sizes_is_refused_and_its_name_is_shown_as_text(tmp_path):
    from armillary.lab.study.conclusions.outcome import outcome as study_outcome
    from armillary.views.text.lab.study import study_text

    source = Path(__file__).parents[1] / "docs" / "lab" / "gate"
    for name in ("manifest.json", "runs.jsonl"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    manifest = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "study": "a\x00\u202eb"}), "utf-8")
    shown = study_text(study_outcome(tmp_path))
    assert "\x00" not in shown and "\u202e" not in shown
    (tmp_path / "manifest.json").write_text(
        json.dumps({**manifest, "size": {**manifest["size"], "width": "a\u202eb"}}), "utf-8"
    )
    with pytest.raises(ArmillaryError, match=r"manifest\.json"):
        study_outcome(tmp_path)
