"""How is one arm trained, many times? The model is built and compiled once; every run starts by new weights."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from armillary.lab import data
from armillary.lab.model import build, unmasked
from armillary.lab.parts.reordered_blocks import renormalise
from armillary.lab.recipe import Recipe
from armillary.lab.study.cost import flops_per_token
from armillary.lab.study.design import MISMATCH, Arm, Run, Size
from armillary.lab.study.end_states.robustness import robustness

WARMUP, FLOOR, DECAY, CLIP, BETAS = 0.1, 0.02, 0.1, 1.0, (0.9, 0.95)
LOOKS = 5
# Arms that one process may compile.
MOST_ARMS = 128
EVALUATION_ROWS = 256
# Windows of held-out text with something taken away: 26 losses per run.
ROBUSTNESS_ROWS = 512


class StudyCorpus:
    """The tokens of a text on the device, cut into windows by seed and step."""

    def __init__(self, folder: Path, device: str, share: float = 1.0) -> None:
        self.train, self.valid = (self._stream(folder, name, device) for name in ("train", "valid"))
        self.train = self.train[: int(share * len(self.train))]
        self._order: tuple[tuple[Size, int] | None, Tensor] = None, torch.zeros(0)

    @staticmethod
    def _stream(folder: Path, name: str, device: str) -> Tensor:
        stream = data.Stream(folder, name)
        return torch.from_numpy(stream.window(0, len(stream)).astype(np.int32)).to(device)

    def batch(self, size: Size, seed: int, step: int) -> Tensor:
        """[row, context + 1], the same for a seed and a step whatever the arm; a new order in every epoch."""
        starts = self._starts(size, seed)[step * size.batch : (step + 1) * size.batch]
        return self.train[starts[:, None] + torch.arange(size.context + 1, device=starts.device)].long()

    def _starts(self, size: Size, seed: int) -> Tensor:
        """Where every window of a run begins, on the device; kept for the run after it, which has the same seed."""
        if self._order[0] != (size, seed):
            windows = (len(self.train) - 1) // size.context
            epochs = -(-size.steps * size.batch // windows)
            order = np.concatenate([np.random.default_rng([seed, i]).permutation(windows) for i in range(epochs)])
            self._order = (size, seed), torch.from_numpy(order * size.context).to(self.train.device)
        return self._order[1]


class StepClock:
    """Seconds per training step, without evaluations; the first stretch, which may compile, counts only if alone."""

    def __init__(self, device: str) -> None:
        self._device, self._steps = device, 0
        self._stretches: list[float] = []
        self.go_on()

    def go_on(self) -> None:
        self._began = time.perf_counter()

    def pause(self, step: int) -> None:
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()
        self._stretches.append((time.perf_counter() - self._began) / (step - self._steps))
        self._steps = step

    @property
    def per_step(self) -> float:
        return median(self._stretches[1:] or self._stretches)


@dataclass
class ArmTrainer:
    """Trains runs of one arm at one size, one after another."""

    arm: Arm
    size: Size
    corpus: StudyCorpus
    device: str
    tick: Callable[[int, int], None] = lambda step, steps: None
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        self.model = self._build(0).to(self.device)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.flops = flops_per_token(self._build(0), self.size.context)
        self.half = self.device.startswith("cuda")
        if self.half:
            allow_compiling()
        self._loss = torch.compile(self._plain_loss, dynamic=False) if self.half else self._plain_loss

    def run(self, run: Run) -> dict[str, Any]:
        """Train from new weights; a run whose loss becomes NaN or infinite is a result, too."""
        began = time.perf_counter()
        with torch.no_grad():
            for parameter, initial in zip(self.model.parameters(), self._build(run.start).parameters(), strict=True):
                parameter.copy_(initial)
        optimizer = self.optimizer(run.rate)
        steps, curve = self.size.steps, []
        looks = {round(steps * (i + 1) / LOOKS) for i in range(LOOKS)}
        self.model.train()
        clock = StepClock(self.device)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = run.rate * group["share"] * schedule(step, steps)
            self.step(self.corpus.batch(self.size, run.seed, step), optimizer)
            if step + 1 in looks:
                clock.pause(step + 1)
                curve.append((step + 1, self.valid_loss()))
                if not math.isfinite(curve[-1][1]):
                    break
                clock.go_on()
            self.tick(step + 1, steps)
        finite = [loss for _, loss in curve if math.isfinite(loss)]
        more = {}
        if run.study == MISMATCH and not run.tuning and math.isfinite(curve[-1][1]):
            more = robustness(self.model, lambda: self.valid_loss(ROBUSTNESS_ROWS))
        return {
            **run.record(),
            **more,
            "loss": curve[-1][1] if math.isfinite(curve[-1][1]) else None,
            "best": min(finite, default=None),
            # The gap: the loss on as much of the text that was trained on.
            "train": _finite(self.loss_of(self.corpus.train[: len(self.corpus.valid)])),
            "diverged": not math.isfinite(curve[-1][1]),
            "curve": [[step, loss if math.isfinite(loss) else None] for step, loss in curve],
            "parameters": self.parameters,
            "flops": self.flops,
            "step_seconds": clock.per_step,
            "seconds": round(time.perf_counter() - began, 2),
        }

    def valid_loss(self, rows: int | None = None) -> float:
        """Nats per token of held-out text, in windows end to end; of all of it, unless fewer `rows` are given."""
        return self.loss_of(self.corpus.valid, rows)

    def loss_of(self, stream: Tensor, rows: int | None = None) -> float:
        """Nats per token of a stream of tokens."""
        context = self.size.context
        rows = min(rows or len(stream), (len(stream) - 1) // context)
        starts = torch.arange(rows, device=stream.device) * context
        windows = stream[starts[:, None] + torch.arange(context + 1, device=stream.device)].long()
        total = torch.zeros((), dtype=torch.float64, device=stream.device)
        self.model.eval()
        with torch.no_grad(), unmasked(self.model):
            for part in torch.split(windows, EVALUATION_ROWS):
                total += self._plain_loss(part).double() * part[:, 1:].numel()
        self.model.train()
        return float(total) / (rows * context)

    def step(self, rows: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """One step of training on windows [row, context + 1]."""
        with unmasked(self.model):
            loss = self._loss(rows)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        optimizer.step()

    def _plain_loss(self, rows: Tensor) -> Tensor:
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.half):
            logits = self.model(input_ids=rows[:, :-1], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].reshape(-1))

    def optimizer(self, rate: float) -> torch.optim.Optimizer:
        """AdamW; matrices decay, and gains and shifts of norms may have a rate of their own."""
        groups: list[dict[str, Any]] = [
            {"params": [], "weight_decay": DECAY, "share": 1.0},
            {"params": [], "weight_decay": 0.0, "share": 1.0},
            {"params": [], "weight_decay": 0.0, "share": self.arm.gain_rate},
            {"params": [], "weight_decay": 0.0, "share": self.arm.norm_rate},
        ]
        for name, p in self.model.named_parameters():
            of_norm = any(part.startswith("ln_") for part in name.split("."))
            if of_norm and self.arm.norm_rate is not None:
                groups[3]["params"].append(p)
            else:
                groups[0 if p.dim() > 1 else 2 if of_norm else 1]["params"].append(p)
        groups = [group for group in groups if group["params"]]
        optimizer = torch.optim.AdamW(groups, lr=rate, betas=BETAS, fused=self.half)
        if self.arm.layout == "ngpt":
            optimizer.register_step_post_hook(lambda *_: renormalise(self.model))
        return optimizer

    def _build(self, start: int) -> Any:
        return build_arm(self.arm, self.size, start)


def allow_compiling() -> None:
    """Let one process compile every arm.

    Every arm is another recompilation of the same method for PyTorch, which gives up after eight and goes on without
    compiling: the ninth arm of a process would be slower than the others, with a warning at most.
    """
    import torch._dynamo.config as dynamo

    settings: Any = dynamo
    settings.recompile_limit = max(settings.recompile_limit, MOST_ARMS)
    settings.accumulated_recompile_limit = max(settings.accumulated_recompile_limit, 4 * MOST_ARMS)


def build_arm(arm: Arm, size: Size, start: int) -> Any:
    """The arm's model at random initialisation."""
    model = build(replace(recipe_of(size, start), layers=arm.layers(size), feed_forward=arm.feed_forward(size)))
    with torch.random.fork_rng(devices=[]):
        # Parts with random numbers of their own follow the run's start as well.
        torch.default_generator.manual_seed(start)
        arm.apply(model)
    return model


def training() -> dict[str, Any]:
    """What all runs have in common, for the manifest."""
    named = {"warmup": WARMUP, "floor": FLOOR, "weight_decay": DECAY, "clip": CLIP, "betas": list(BETAS)}
    return {"optimizer": "AdamW", **named, "looks": LOOKS}


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None


def recipe_of(size: Size, seed: int) -> Recipe:
    return Recipe(
        preset="study",
        architecture="gpt",
        layers=size.layers,
        width=size.width,
        heads=size.heads,
        kv_heads=size.heads,
        feed_forward=4 * size.width,
        context=size.context,
        vocabulary=size.vocabulary,
        batch=size.batch,
        steps=size.steps,
        rate=1e-3,
        warmup=0,
        seed=seed,
    )


def schedule(step: int, steps: int) -> float:
    """Linear warm-up over the first tenth, then a cosine to a fiftieth.

    >>> round(schedule(9, 100), 3), round(schedule(99, 100), 3)
    (1.0, 0.02)
    """
    warmup = max(1, round(WARMUP * steps))
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup + 1) / max(1, steps - warmup)
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done))
