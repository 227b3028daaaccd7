"""Small training runs for tests: texts, recipes of one layer, and ways to end a run."""

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
    """A file with some documents of the built-in sample."""
    path.write_text("\n---\n".join(list(sample().texts)[:documents]), "utf-8")
    return path


def verse(path: Path) -> Path:
    """399 short paragraphs of fifteen words."""
    words = "the cat sat on a mat while rain fell and birds sang of stone and sea".split()
    lines = [" ".join(words[(i * j) % len(words)] for j in range(1, 12)) for i in range(1, 400)]
    path.write_text("\n\n".join(lines), "utf-8")
    return path


def noise(path: Path, characters: int = 20_000) -> Path:
    """Sixteen random letters: four bits each, whatever the model learns."""
    letters = np.random.default_rng(0).integers(16, size=characters)
    text = "".join("abcdefghijklmnop"[i] for i in letters)
    path.write_text("\n".join(text[i : i + 63] for i in range(0, characters, 63)), "utf-8")
    return path


def trainer(plan: Recipe, text: Path, out: Path, **more: Any) -> Trainer:
    return Trainer(plan, Text.of(text), out, **more)


def finished(text: Path, folder: Path) -> dict[str, Trainer]:
    """An uninterrupted run of every recipe."""
    runs = {name: trainer(plan, text, folder / name) for name, plan in RECIPES.items()}
    for run in runs.values():
        run.run()
    return runs


def log(out: Path) -> list[dict[str, Any]]:
    """Every line of the log without its times."""
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def outcome(out: Path) -> dict[str, Any]:
    """The result of a run: its log, and every byte of its models."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.safetensors")}
    return {"log": log(out), **files}


class Killed(BaseException):
    """An exception that the package does not catch."""


def dies(monkeypatch: pytest.MonkeyPatch, name: str, when: Callable[[Trainer], bool], after: bool = False) -> None:
    """Kill the run in a method of the trainer, before or after its work."""
    real = getattr(Trainer, name)

    def method(self: Trainer, *args: Any) -> Any:
        now = when(self)
        if now and not after:
            raise Killed
        result = real(self, *args)
        if now:
            raise Killed
        return result

    monkeypatch.setattr(Trainer, name, method)


def fill_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make writing files with this prefix fail, by redirecting them to /dev/full.

    Temporary files that are renamed later have a dot before their name.
    """
    real = Path.open

    def opened(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if self.name.startswith(name) and mode[0] in "wax":
            return real(Path("/dev/full"), "w" + mode[1:], *args, **more)
        return real(self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", opened)
