"""Rotates every token's state by a small angle and follows it through the blocks, with norms live and frozen."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit, Slide, Turn
from armillary.edits.edit import changing
from armillary.flow.tokens import Batch, Window
from armillary.probes.machinery import Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE, OWN, RotationGrowth
from armillary.probes.stability.sliding.windows import (
    angles_between,
    by_group,
    even_windows,
    first_apart,
    frozen,
    stations,
    stream,
    stream_and_powers,
)

WINDOW, DOCUMENTS, QUICK_DOCUMENTS = 64, 16, 8
SLID_WINDOW, SLID_DOCUMENTS = 128, 12
START, END = 8, 16
"""How many tokens are rotated at the start of a slid window, and how many are measured at its end."""
ANGLE = 1e-3
TWINS, QUICK_TWINS = 5, 2
# Turn and the random twin both draw from torch: another seed than the survey's keeps the draws apart.
SEED = 9001


@dataclass(frozen=True)
class FirstTokens:
    """Restrict an edit of the first block's input to the first `stop` positions."""

    edit: Edit
    stop: int
    example: ClassVar[str] = "FirstTokens(Turn(layer=-1, angle=0.01), stop=8)"

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        before: list[Tensor] = []

        def remember(x: Tensor, given: Tensor | None) -> Tensor:
            before[:] = [x]
            return x

        def restore(x: Tensor, given: Tensor | None) -> Tensor:
            return torch.cat((x[:, : self.stop], before[0][:, self.stop :]), 1)

        site = "L0.resid_pre"
        with changing(anatomy, site, remember), self.edit.on(anatomy), changing(anatomy, site, restore):
            yield


def perturb(bench: Bench) -> RotationGrowth | None:
    """Every condition on the same windows, then slid windows; None if no document is long enough."""
    windows = even_windows(bench.corpus, WINDOW, QUICK_DOCUMENTS if bench.quick else DOCUMENTS)
    if not windows:
        return None
    batches = bench.batches(windows)
    # Half precision would round a smaller rotation away.
    angle = max(ANGLE, 16 * torch.finfo(bench.anatomy.dtype).eps)
    model = Perturbation(bench, angle)
    freeze = model.live_then_frozen(batches)
    twins = []
    for arm in bench.twins[: QUICK_TWINS if bench.quick else TWINS]:
        twin = Perturbation(bench.arm(arm), angle, fully=False)
        twin.live_then_frozen(batches)
        twins.append(twin.sums)
    slides, slid = _slid(bench, angle, freeze)
    length = len(windows[0].ids)
    return RotationGrowth(
        states=stations(bench.anatomy),
        angle=angle,
        sums=model.sums,
        twins=twins,
        slides=slides,
        slid=slid,
        documents=len(windows),
        tokens=len(windows) * (length - 1),
        window=length,
        slid_window=len(_slid_windows(bench)[0].ids),
    )


@dataclass
class Perturbation:
    """The conditions of one model; sums [group, state, (count, sum)] per condition and quantity."""

    bench: Bench
    angle: float
    fully: bool = True
    """Also twice the rotation, a rotation after the first block, each token's own scale, and first tokens apart."""
    sums: dict[tuple[str, str], Floats] = field(default_factory=dict)

    def live_then_frozen(self, batches: Sequence[Batch]) -> tuple[Edit, ...]:
        """Measure every condition; returns the edits that freeze all norms, known after the live passes."""
        powers = [self._live(number, batch) for number, batch in enumerate(batches)]
        typical = {site: torch.cat([part[site][:, 1:].flatten() for part in powers]).median() for site in powers[0]}
        anatomy = self.bench.anatomy
        freeze = frozen(anatomy, typical)
        for number, (batch, own) in enumerate(zip(batches, powers, strict=True)):
            self.respond(FROZEN, batch, number, *freeze)
            if self.fully:
                self.respond(APART, batch, number, *frozen(anatomy, first_apart(own, typical)))
        return freeze

    def _live(self, number: int, batch: Batch) -> dict[str, Tensor]:
        """Measure the live conditions of one batch; returns the power [b, t, 1] of every norm."""
        before, powers = stream_and_powers(self.bench, batch)
        self.respond(LIVE, batch, number, before=before)
        if self.fully:
            own = stream(self.bench, batch, *frozen(self.bench.anatomy, powers), self._turn(number))
            self.add(OWN, "angle", batch, _log_angles(self.bench, before, own, self.angle))
        return powers

    def _turn(self, number: int, layer: int = -1, times: int = 1) -> Turn:
        return Turn(layer, times * self.angle, SEED + number)

    def respond(self, name: str, batch: Batch, number: int, *edits: Edit, before: Tensor | None = None) -> None:
        """Measure lengths and the growth of rotations; `before` is the unrotated stream, where it is known."""
        bench, angle = self.bench, self.angle
        before = stream(bench, batch, *edits) if before is None else before
        once = _log_angles(bench, before, stream(bench, batch, *edits, self._turn(number)), angle)
        self.add(name, "length", batch, _log_lengths(before))
        self.add(name, "angle", batch, once)
        if self.fully and name != APART:
            twice = stream(bench, batch, *edits, self._turn(number, times=2))
            self.add(name, "doubled", batch, _log_angles(bench, before, twice, 2 * angle) - once)
            if bench.anatomy.layers > 1:
                later = stream(bench, batch, *edits, self._turn(number, layer=0))
                self.add(name, "later", batch, _log_angles(bench, before, later, angle)[1:])

    def add(self, name: str, what: str, batch: Batch, values: Tensor) -> None:
        more = by_group(self.bench, batch, values)
        self.sums[name, what] = self.sums.get((name, what), np.zeros_like(more)) + more


def _slid_windows(bench: Bench) -> tuple[Window, ...]:
    return even_windows(bench.corpus, SLID_WINDOW, QUICK_DOCUMENTS if bench.quick else SLID_DOCUMENTS)


def _slid(bench: Bench, angle: float, freeze: tuple[Edit, ...]) -> tuple[tuple[int, ...], dict[str, Floats]]:
    """[group, slide, (count, sum)] of the log growth at a slid window's end of a rotation at its start."""
    windows = _slid_windows(bench)
    length = len(windows[0].ids)
    slides = (0, length // 2) if bench.quick else (0, length // 4, length // 2)
    sums: dict[str, list[Floats]] = {LIVE: [], FROZEN: []}
    batches = bench.batches(windows)
    for name, edits in ((LIVE, ()), (FROZEN, freeze)):
        for by in slides:
            total = np.zeros((bench.corpus.groups, 1, 2))
            for number, batch in enumerate(batches):
                rotation = FirstTokens(Turn(-1, angle, SEED + number), min(START, length // 8))
                before, after = (stream(bench, batch, Slide(by), *edits, *more)[-1:] for more in ((), (rotation,)))
                grown = _log_angles(bench, before, after, angle)
                total += by_group(bench, batch, grown[:, :, -min(END, length // 8) :])
            sums[name].append(total[:, 0])
    return slides, {name: np.stack(parts, 1) for name, parts in sums.items()}


def _log_angles(bench: Bench, before: Tensor, after: Tensor, angle: float) -> Tensor:
    """Log of the angle between two streams over the rotation's angle, without first tokens; at least one rounding."""
    least = torch.finfo(bench.anatomy.dtype).eps
    return (angles_between(bench.anatomy, before, after)[:, :, 1:].clamp_min(least) / angle).log()


def _log_lengths(streams: Tensor) -> Tensor:
    """Log of the stream's length over its length before the first block, without first tokens."""
    length = streams[:, :, 1:].norm(dim=-1)
    return (length / length[:1]).log()
