"""Training runs small enough for a test: a text that repeats itself, a model of one layer, and ways to end a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.flow.documents import sample
from armillary.lab.data import Text
from armillary.lab.recipe import Recipe, recipe
from armillary.lab.train import Trainer

SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "kv_heads": 2,
    "feed_forward": 32,
    "context": 16,
    "vocabulary": 280,
    "batch": 4,
    "steps": 12,
    "look": 5,
    "save": 4,
    "keep": 4,
}


def small(architecture: str = "gpt", **changes: Any) -> Recipe:
    return recipe("smoke", architecture, **{**SMALL, **changes})


RECIPES: dict[str, Recipe] = {
    "gpt": small(),
    "llama": small("llama"),
    "gpt-dropout": small(dropout=0.2),
    "llama-dropout": small("llama", dropout=0.2),
}


def prose(path: Path, documents: int = 8) -> Path:
    """Some of the package's own prose."""
    path.write_text("\n---\n".join(list(sample().texts)[:documents]), "utf-8")
    return path


def noise(path: Path, characters: int = 20_000) -> Path:
    """Sixteen letters at random: four bits each, whatever is learnt."""
    letters = np.random.default_rng(0).integers(16, size=characters)
    text = "".join("abcdefghijklmnop"[i] for i in letters)
    path.write_text("\n".join(text[i : i + 63] for i in range(0, characters, 63)), "utf-8")
    return path


def trainer(plan: Recipe, text: Path, out: Path, **more: Any) -> Trainer:
    return Trainer(plan, Text.of(text), out, **more)


def finished(text: Path, folder: Path) -> dict[str, Trainer]:
    """A run of every recipe that nothing interrupted."""
    made = {name: trainer(plan, text, folder / name) for name, plan in RECIPES.items()}
    for run in made.values():
        run.run()
    return made


def log(out: Path) -> list[dict[str, Any]]:
    """Every line of the log but for the clock."""
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def outcome(out: Path) -> dict[str, Any]:
    """What a run has come to: its log, and every byte of its models."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.safetensors")}
    return {"log": log(out), **files}


class Killed(BaseException):
    """An end that no code of ours catches."""


def dies(monkeypatch: pytest.MonkeyPatch, name: str, when: Callable[[Trainer], bool], after: bool = False) -> None:
    """A method of the trainer in which the run is killed, before it does its work or after."""
    real = getattr(Trainer, name)

    def method(self: Trainer, *args: Any) -> Any:
        now = when(self)
        if now and not after:
            raise Killed
        found = real(self, *args)
        if now:
            raise Killed
        return found

    monkeypatch.setattr(Trainer, name, method)


def fill_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on no file whose name begins so can be written: Linux's own full device stands in for it.

    What is written aside and renamed has a dot before its name.
    """
    real = Path.open

    def opened(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if self.name.startswith(name) and mode[0] in "wax":
            return real(Path("/dev/full"), "w" + mode[1:], *args, **more)
        return real(self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", opened)
