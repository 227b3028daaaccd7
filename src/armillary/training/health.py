"""Check a model's health during training.

A `HealthCallback` runs the checks of `armillary health` on one fixed text, at every evaluation or every so many steps.
This module imports torch and transformers: import it on demand.
"""

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, ValuesError
from armillary.flow.capture import still
from armillary.lab.log import cut
from armillary.readouts.health.health_report import check_health
from armillary.results.sheets.health import Health
from armillary.training.callback import append_row, as_corpus, unwrap
from armillary.training.snapshot import plain


# Compared by identity: Hugging Face's Trainer finds callbacks by ==.
@dataclass(eq=False)
class HealthCallback(TrainerCallback):
    """Checks a model's health during training.

    tokens  the text: ids [rows, width], each row a document, or a `Corpus`; 16 × 128 is plenty for a small model
    every   steps between checks; None: at every evaluation (as a plain callable: at every call)
    log     a file to which every check appends one line of JSON
    stop    end the training when a line is bad

    Bad lines also raise a warning. Under Hugging Face's Trainer there is also a check after the last step, and the
    values are added to `state.log_history`.
    """

    tokens: Any = field(repr=False)
    every: int | None = None
    log: str | os.PathLike[str] | None = None
    stop: bool = False

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ArmillaryError(
                f"every={self.every} is not an interval; give 1 step or more, or None for evaluations."
            )
        self._corpus = as_corpus(self.tokens)
        self._last_step: int | None = None

    def check(self, model: nn.Module) -> Health:
        """One check, in evaluation mode without gradients; the model and the random state are left unchanged."""
        inner = unwrap(model)
        devices = [parameter.device for parameter in inner.parameters()][:1]
        with (
            torch.random.fork_rng([device for device in devices if device.type == "cuda"]),
            torch.autocast(devices[0].type, enabled=False),
            still(inner),
        ):
            return check_health(read(inner), self._corpus)

    def __call__(self, step: int, model: nn.Module) -> dict[str, float]:
        """Check, log, and return the values; an empty dict between checks if `every` is given."""
        if self.every is not None and step % self.every:
            return {}
        return self._record(step, model).scalars()

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """A run that resumes leaves out what was logged behind its checkpoint."""
        self._last_step = None
        if self.log is not None and state.global_step and state.is_world_process_zero:
            cut(Path(self.log), state.global_step - 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.every is not None and state.global_step % self.every == 0:
            self._take(state, control, given["model"])

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.every is None:
            self._take(state, control, given["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._take(state, control, given["model"])

    def _take(self, state: Any, control: Any, model: nn.Module) -> None:
        """One check per step, by the first process only."""
        if not state.is_world_process_zero or state.global_step == self._last_step:
            return
        self._last_step = state.global_step
        try:
            health = self._record(state.global_step, model)
        except ValuesError:
            # No weight is NaN, but the stream is: there is nothing to check, and nothing worse to say.
            what = "the stream contains NaN or infinity: training has diverged; use a lower rate."
            warnings.warn(f"step {state.global_step}: {what}", RuntimeWarning, stacklevel=2)
            append_row(self.log, {"step": state.global_step, "status": "bad", "error": what})
            self._end(state, control)
            return
        state.log_history.append({**plain(health.scalars()), "epoch": state.epoch, "step": state.global_step})
        if health.status == "bad":
            self._end(state, control)

    def _end(self, state: Any, control: Any) -> None:
        """Ends the training and says so, unless it ends anyway."""
        if self.stop and not control.should_training_stop:
            control.should_training_stop = True
            what = f"step {state.global_step}: the training ends here, as stop=True asks."
            warnings.warn(what, RuntimeWarning, stacklevel=2)

    def _record(self, step: int, model: nn.Module) -> Health:
        health = self.check(model)
        bad = [f"{line.name}: {line.shown}" for line in health.lines if line.status == "bad"]
        if bad:
            warnings.warn(f"step {step}: {'; '.join(bad)}", RuntimeWarning, stacklevel=2)
        append_row(self.log, {"step": step, "status": health.status, **health.scalars()})
        return health
