"""Which checkpoints of one training run does a folder hold, sorted by step, all of one shape?

Read from names and headers alone, without torch: `armillary lab train` writes DIR/steps/000400/, Hugging Face's Trainer
DIR/checkpoint-400/.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.anatomy.loading.weights import check_folder, read_config, weight_shapes
from armillary.errors import ModelError

LEAST = 3
"""Two intervals between checkpoints: with one, nothing is pooled."""
LAYOUTS = ("steps/*", "checkpoint-*", "*")
NUMBER = re.compile(r"(?:checkpoint-)?(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    step: int
    path: Path


@dataclass(frozen=True)
class Checkpoints:
    """The whole checkpoints of a run, earliest first."""

    folder: Path
    each: tuple[Checkpoint, ...]
    damaged: tuple[str, ...] = ()
    """One sentence for each that cannot be read."""

    @property
    def last(self) -> Path:
        return self.each[-1].path


def find_checkpoints(source: Any) -> Checkpoints:
    """All checkpoints in a folder; an error where there are fewer than three, or where their shapes differ."""
    folder = Path(str(source)).expanduser()
    if not folder.is_dir():
        raise ModelError(
            f"{source} is not a folder of checkpoints; --steps takes the folder of a run, with steps/000400/ "
            "(armillary lab train) or checkpoint-400/ (Hugging Face's Trainer) inside."
        )
    numbered = _numbered(folder)
    whole, damaged, shapes = list[Checkpoint](), list[str](), dict[Path, dict[str, tuple[int, ...]]]()
    for checkpoint in numbered:
        try:
            read_config(checkpoint.path)
            check_folder(checkpoint.path)
            shapes[checkpoint.path] = weight_shapes(checkpoint.path)
            whole.append(checkpoint)
        except ModelError as error:
            damaged.append(f"step {checkpoint.step} was left out: {error}")
    if len(whole) < LEAST:
        raise ModelError(
            f"{folder} holds {_count(len(whole))} that can be read{_named(damaged)}; at least {LEAST} of one run are "
            "needed: give the folder of a run with steps/000400/ or checkpoint-400/ inside, or leave out --steps."
        )
    _check_shapes(whole, shapes)
    return Checkpoints(folder, tuple(whole), tuple(damaged))


def _numbered(folder: Path) -> list[Checkpoint]:
    """The folders named by a step, of the first layout that has any."""
    for layout in LAYOUTS:
        paths = [path for path in folder.glob(layout) if path.is_dir() and NUMBER.fullmatch(path.name)]
        if paths:
            # A name that is not a number was left out above.
            steps = [Checkpoint(int(re.sub(r"\D", "", path.name)), path) for path in paths]
            return sorted(steps, key=lambda checkpoint: (checkpoint.step, checkpoint.path.name))
    return []


def _check_shapes(whole: list[Checkpoint], shapes: dict[Path, dict[str, tuple[int, ...]]]) -> None:
    last = whole[-1]
    for checkpoint in whole[:-1]:
        early, late = shapes[checkpoint.path], shapes[last.path]
        for name in sorted({*early, *late}):
            if early.get(name) != late.get(name):
                raise ModelError(
                    f"the checkpoints of {last.path.parent} are not of one model: {name} is "
                    f"{_shape(early.get(name))} at step {checkpoint.step} and {_shape(late.get(name))} at step "
                    f"{last.step}; keep those of one run."
                )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " × ".join(map(str, shape)) or "a single number"


def _count(number: int) -> str:
    return "no checkpoint" if not number else "one checkpoint" if number == 1 else f"{number} checkpoints"


def _named(damaged: list[str]) -> str:
    return f" ({'; '.join(damaged)})" if damaged else ""
