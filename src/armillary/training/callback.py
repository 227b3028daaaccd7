"""Record how a transformer's geometry changes during training.

A `GeometryCallback` takes snapshots of the model on one fixed text and logs them. It works with Hugging Face's Trainer
and, as a plain callable, with any training loop. This module imports torch and transformers: import it on demand.
"""

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.flow.tokens import Corpus, Window
from armillary.lab.log import cut
from armillary.training.snapshot import DivergedError, Snapshot, check_rows, plain, snapshot


# Compared by identity: Hugging Face's Trainer finds callbacks by ==.
@dataclass(eq=False)
class GeometryCallback(TrainerCallback):
    """Measures a model's geometry during training.

    tokens       the text: ids [rows, width], each row a document, or a `Corpus`; 8 × 128 is plenty for a small model
    every        steps between snapshots; None: at every evaluation (as a plain callable: at every call)
    log          a file to which every snapshot appends one line of JSON
    tensorboard  a folder for events; True: the folder of Hugging Face's Trainer

    Under Hugging Face's Trainer there is also a snapshot before the first step and after the last, and the numbers are
    added to `state.log_history`.
    """

    tokens: Any = field(repr=False)
    every: int | None = None
    log: str | os.PathLike[str] | None = None
    tensorboard: str | os.PathLike[str] | bool | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ArmillaryError(
                f"every={self.every} is not an interval; give 1 step or more, or None for evaluations."
            )
        self._corpus = as_corpus(self.tokens)
        self._last_step: int | None = None
        self._writer: Any = None
        self._folder = self.tensorboard
        if self.tensorboard:
            self._open = _summary_writer(self.tensorboard)

    def snapshot(self, model: nn.Module) -> Snapshot:
        """One snapshot, in evaluation mode without gradients; the model and the random state are left unchanged."""
        return snapshot(unwrap(model), self._corpus)

    def __call__(self, step: int, model: nn.Module) -> dict[str, float]:
        """Take a snapshot, log it and return its scalars; an empty dict between snapshots if `every` is given."""
        if self.every is not None and step % self.every:
            return {}
        return self._record(step, model)

    def close(self) -> None:
        """Close TensorBoard's file, if there is one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.tensorboard is True:
            self._folder = _trainer_folder(args)
        self._last_step = None
        if self.log is not None and state.global_step and state.is_world_process_zero:
            cut(Path(self.log), state.global_step - 1)
        self._take(state, given["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.every is not None and state.global_step % self.every == 0:
            self._take(state, given["model"])

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.every is None:
            self._take(state, given["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._take(state, given["model"])
        self.close()

    def _take(self, state: Any, model: nn.Module) -> None:
        """One snapshot per step, by the first process only."""
        if not state.is_world_process_zero or state.global_step == self._last_step:
            return
        self._last_step = state.global_step
        try:
            scalars = self._record(state.global_step, model)
        except DivergedError as error:
            # A callback does not end the run: Hugging Face's Trainer continues after NaN, and so does this.
            warnings.warn(f"step {state.global_step}: {error}", RuntimeWarning, stacklevel=2)
            return self._write({"step": state.global_step, "error": str(error)})
        state.log_history.append({**scalars, "epoch": state.epoch, "step": state.global_step})

    def _record(self, step: int, model: nn.Module) -> dict[str, float]:
        if self._folder is True:
            raise ArmillaryError(
                "tensorboard=True uses the folder of Hugging Face's Trainer; without a Trainer, name a folder."
            )
        taken = self.snapshot(model)
        scalars = taken.scalars()
        notes = {name: value for name, value in vars(taken).items() if isinstance(value, int)}
        self._write({"step": step, **notes, **scalars})
        if self._folder:
            self._writer = self._writer or self._open(str(self._folder))
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
        return scalars

    def _write(self, row: dict[str, Any]) -> None:
        append_row(self.log, row)


def append_row(log: str | os.PathLike[str] | None, row: dict[str, Any]) -> None:
    """One line of JSON at the end of a log; nothing without a log."""
    if log is None:
        return
    try:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(row), allow_nan=False) + "\n")
    except OSError as error:
        raise OutputError(f"log={str(log)!r} cannot be written ({error.strerror}); name a file.") from None


def _summary_writer(asked: Any) -> Callable[[str], Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ArmillaryError(
            f"tensorboard={str(asked)!r} was asked for, and TensorBoard is not installed; pip install tensorboard, or "
            "write JSON lines with log=."
        ) from None
    return SummaryWriter


def _trainer_folder(args: Any) -> str:
    from transformers.integrations.integration_utils import default_logdir

    return os.environ.get("TENSORBOARD_LOGGING_DIR") or os.path.join(args.output_dir, default_logdir())


def as_corpus(tokens: Any) -> Corpus:
    """Rows of ids as documents; a corpus as it is."""
    if not isinstance(tokens, Corpus):
        ids = torch.as_tensor(tokens)
        if ids.ndim != 2 or not ids.numel() or ids.is_floating_point() or ids.dtype == torch.bool or int(ids.min()) < 0:
            raise TextError(
                f"tokens must be ids [rows, width]; got {ids.dtype} of shape {tuple(ids.shape)}. Tokenize the text."
            )
        windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
        tokens = Corpus(windows, "rows of ids", len(windows), ids.numel(), ())
    check_rows(tokens)
    return tokens


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and data parallelism's wrappers."""
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    inner = model.module if isinstance(model, parallel) else getattr(model, "_orig_mod", None)
    return model if inner is None else unwrap(inner)
