"""The training loop: evaluated on the way, and resumable to the same losses."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, OutputError
from armillary.flow.capture import run, still, watching
from armillary.lab import data
from armillary.lab.checkpoint import (
    CHECKPOINT,
    claim_folder,
    is_finished,
    read_checkpoint,
    write_checkpoint,
    write_finished,
    write_model,
)
from armillary.lab.exam import bits_per_byte
from armillary.lab.log import Log
from armillary.lab.model import build, unmasked
from armillary.lab.recipe import Recipe
from armillary.results.disk.lock import locked
from armillary.results.store import check_writable

Watch = Callable[[int, Any], dict[str, float]]
"""Called with the step and the model at every evaluation; the result goes into the log."""
BETAS = (0.9, 0.95)


class TrainingError(ArmillaryError):
    """A run whose loss, weights or stream became NaN or infinite."""


@dataclass
class Trainer:
    """One run in one folder: the model in the hub's layout, log.jsonl, steps/, and a checkpoint."""

    recipe: Recipe
    text: data.Text
    out: Path
    device: str = "cpu"
    watch: Watch | None = None
    tick: Callable[[str, int, int], None] = lambda what, done, total: None
    step: int = field(default=0, init=False)

    def run(self) -> Path:
        """Train to the end, from the folder's checkpoint if there is one; returns the folder."""
        with locked(check_writable(self.out)):
            return self._run()

    def _run(self) -> Path:
        resumed = claim_folder(self.out, self.recipe, self.text.sha256, self.device)
        if is_finished(self.out, self.recipe.steps):
            (self.out / CHECKPOINT).unlink(missing_ok=True)
            return self.out
        self.bpe = data.prepare(self.recipe, self.text, self.out / "tokens", self.tick)
        self.train, self.valid = (data.Stream(self.out / "tokens", name) for name in ("train", "valid"))
        data.check_size(self.recipe, self.train, self.valid)
        with settled(self.device, self.recipe.seed):
            self._make()
            expected = ""
            if resumed:
                self.step, expected = read_checkpoint(self.out, self.model, self.optimizer)
            self._saved = self.step
            with Log(self.out, self.step if resumed else -1) as self.log:
                if expected and self.log.sha256 != expected:
                    raise OutputError(
                        f"{self.log.path} does not belong to the checkpoint next to it; restore it, or choose another "
                        "--out."
                    )
                self._loop()
        write_model(self.out, self.model, self.bpe)
        write_finished(self.out)
        (self.out / CHECKPOINT).unlink(missing_ok=True)
        return self.out

    def _make(self) -> None:
        r = self.recipe
        self.model = build(r, self.bpe.token_to_id(data.END)).to(self.device)
        parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": r.decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        cuda = self.device.startswith("cuda")
        self.optimizer = torch.optim.AdamW(groups, lr=r.rate, betas=BETAS, fused=cuda)
        self.half = cuda and r.precision == "bfloat16"
        self.loss = torch.compile(self._loss, dynamic=False) if cuda and r.compiled else self._loss

    def _loop(self) -> None:
        r, began = self.recipe, time.perf_counter()
        self.model.train()
        self._lengths = self._measure(self._probe_ids())
        if self.step == 0:
            self._evaluate(began)
        while self.step < r.steps:
            with repeatable(self.device):
                loss, norm = self._update()
            self.step += 1
            self.log.write({"step": self.step, "loss": loss, "norm": norm, "rate": r.rate_at(self.step - 1)})
            if r.looks_at(self.step):
                self._evaluate(began)
            if self.step == r.steps or self.step % r.save == 0:
                self._save()
            self.tick(f"step {self.step}: loss {loss:.3f}", self.step, r.steps)

    def _update(self) -> tuple[float, float]:
        """One step, or an error before a loss that is not finite changes anything."""
        r = self.recipe
        rows = torch.from_numpy(self.train.batch(r, self.step)).to(self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = r.rate_at(self.step)
        with unmasked(self.model):
            loss = self.loss(rows)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), r.clip)
        values = float(loss.detach()), float(norm)
        if not all(map(math.isfinite, values)):
            what = f"the loss is {values[0]:.3g} and the gradient's length {values[1]:.3g}"
            raise self.broken(what, self.step + 1, rows[:, :-1])
        self.optimizer.step()
        return values

    def _loss(self, rows: Tensor) -> Tensor:
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.half):
            logits = self.model(input_ids=rows[:, :-1], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].reshape(-1))

    def _evaluate(self, began: float) -> None:
        tokens = self.valid.window(0, len(self.valid))
        bits = bits_per_byte(self.model, tokens, self.valid.bytes, self.recipe.context)
        if not math.isfinite(bits):
            raise self.broken(f"the held-out text costs {bits:.3g} bits per byte", self.step)
        self._lengths = self._measure(self._probe_ids())
        row: dict[str, Any] = {"step": self.step, "valid_bits_per_byte": bits}
        if self.watch is not None:
            # JSON has no NaN, the value of what is undefined on this text.
            geometry = self.watch(self.step, self.model).items()
            row["geometry"] = {name: value if math.isfinite(value) else None for name, value in geometry}
        self.log.write({**row, "seconds": round(time.perf_counter() - began, 1)})
        if self.step in self.recipe.kept_steps:
            write_model(self.out / "steps" / f"{self.step:06d}", self.model, self.bpe)

    def _save(self) -> None:
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            raise self.broken("a weight is NaN or infinite", self.step)
        write_checkpoint(self.out, self.step, self.model, self.optimizer, self.log.sha256)
        self._saved = self.step

    def _probe_ids(self) -> Tensor:
        """The start of the held-out text, on which lengths are compared."""
        return torch.from_numpy(self.valid.window(0, self.recipe.context))[None]

    def _measure(self, ids: Tensor) -> dict[str, float]:
        """The largest length of a token at every norm site."""
        anatomy, lengths = read(self.model), {}

        def watcher(site: str) -> Callable[[Tensor | None, Tensor], None]:
            def watch(x: Tensor | None, y: Tensor) -> None:
                assert x is not None
                lengths[site] = float(x.float().norm(dim=-1).max())

            return watch

        with still(self.model), watching(anatomy, {site: watcher(site) for site in anatomy.norms}):
            run(anatomy, ids)
        return lengths

    def broken(self, what: str, step: int, ids: Tensor | None = None) -> TrainingError:
        """The error that ends a run at a step; it names the site where the stream of `ids` grew most or first broke."""
        lengths = self._measure(self._probe_ids() if ids is None else ids)
        growth = {site: length / self._lengths[site] for site, length in lengths.items()}
        infinite = [site for site, factor in growth.items() if not math.isfinite(factor)]
        worst = infinite[0] if infinite else max(growth, key=lambda site: growth[site])
        checkpoint = f"the checkpoint after step {self._saved} is kept" if self._saved else "no checkpoint was due yet"
        return TrainingError(
            f"{what} at step {step}; the stream grew most at {worst}, from a length of {self._lengths[worst]:.3g} at "
            f"the last evaluation to {lengths[worst]:.3g}; {checkpoint}; start again in another --out "
            "with a lower --rate."
        )


@contextmanager
def settled(device: str, seed: int) -> Iterator[None]:
    """A seeded random state; the caller's own is restored afterwards."""
    devices = [torch.device(device).index or 0] if device.startswith("cuda") else []
    if devices:
        # cuBLAS reads this when it starts; without it the order of its sums may vary.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with torch.random.fork_rng(devices=devices):
        # torch.manual_seed would also seed a GPU that only the caller uses.
        (torch.manual_seed if devices else torch.default_generator.manual_seed)(seed)
        yield


@contextmanager
def repeatable(device: str) -> Iterator[None]:
    """Deterministic kernels. On a GPU the gradient of attention, among others, is otherwise summed in varying order."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(before[0] or device.startswith("cuda"))
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
