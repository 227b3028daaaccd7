"""Measures the angles by which states move when the window slides and its first tokens are lost."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from armillary.edits import Slide
from armillary.flow.tokens import Batch, Window
from armillary.probes.machinery import Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.nudges.growth import APART, FROZEN, OWN
from armillary.probes.stability.sliding.window_angles import BANDS, KEPT, RESTARTED, WindowAngles
from armillary.probes.stability.sliding.windows import (
    angles_between,
    by_group,
    even_windows,
    filled,
    first_apart,
    frozen,
    stations,
    stream,
    stream_and_powers,
)

# The longest windows: a longer context would cost more than all other claims together.
LONGEST, QUICK_LONGEST = 512, 128
DOCUMENTS, QUICK_DOCUMENTS = 10, 8
TWINS, QUICK_TWINS = 5, 2
# Shorter windows show how the drift depends on their length.
CURVE, SHORTEST = 4, 32


def slides_of(length: int) -> tuple[int, ...]:
    """One token, half of the window and, where they differ, about the root of that.

    >>> slides_of(60), slides_of(512), slides_of(8)
    ((1, 5, 30), (1, 16, 256), (1, 2, 4))
    """
    half = length // 2
    return tuple(sorted({1, math.isqrt(half), half}))


def slide(bench: Bench) -> WindowAngles | None:
    """Slid windows compared with the whole window; None if no document is long enough."""
    longest = min(bench.anatomy.context, QUICK_LONGEST if bench.quick else LONGEST)
    own = even_windows(bench.corpus, longest, QUICK_DOCUMENTS if bench.quick else DOCUMENTS)
    if not own:
        return None
    windows = filled(bench.corpus, own, longest)
    length, own_length = len(windows[0].ids), len(own[0].ids)
    slides = slides_of(length)
    far = max(slides[-1] + length // 8, length - own_length)
    sliding = Sliding(bench, slides, far)
    sliding.live(bench.batches(windows))
    sliding.freeze()
    twins = [_moved_half(bench.arm(arm), windows, far) for arm in bench.twins[: QUICK_TWINS if bench.quick else TWINS]]
    lengths = sorted({length // 2**i for i in range(1, CURVE) if length // 2**i >= SHORTEST})
    curve = {n: _ends(bench, own, n, (1, n // 2)) for n in lengths}
    unmoved = [_ends(bench, own, n, (0,)) for n in lengths[:1]]
    half, single = sliding.sums[RESTARTED][slides[-1]], sliding.sums[RESTARTED][slides[0]]
    return WindowAngles(
        states=stations(bench.anatomy),
        slides=slides,
        sums=sliding.sums,
        twins=twins,
        bands=sliding.bands,
        none=sum((sums[:, 0] for sums in unmoved), np.zeros_like(single[:, -1])),
        curve={**curve, length: np.stack([single[:, -1], half[:, -1]], 1)},
        window=length,
        context=bench.anatomy.context,
        own=own_length,
        far=far,
        documents=len(windows),
        tokens=len(windows) * (length - far),
        epsilon=torch.finfo(bench.anatomy.dtype).eps,
    )


@dataclass
class Sliding:
    """The conditions of one model in windows of one length."""

    bench: Bench
    slides: tuple[int, ...]
    far: int
    sums: dict[str, dict[int, Floats]] = field(default_factory=dict)
    bands: dict[int, Floats] = field(default_factory=dict)
    _live: list[tuple[Batch, dict[str, Tensor], dict[str, Tensor]]] = field(default_factory=list)
    """Of every batch: the powers of the whole window, and those of the window slid by half."""

    def live(self, batches: list[Batch]) -> None:
        """Every slide with norms live; the last one also with positions kept and at each token's former scale."""
        last = self.slides[-1]
        for batch in batches:
            before, powers = stream_and_powers(self.bench, batch)
            slid_powers: dict[str, Tensor] = {}
            for by in self.slides:
                after, slid_powers = stream_and_powers(self.bench, batch, Slide(by))
                more = _banded(self.bench, batch, self.add(RESTARTED, by, batch, before, after)[-1])
                self.bands[by] = self.bands.get(by, np.zeros_like(more)) + more
            self.add(KEPT, last, batch, before, stream(self.bench, batch, Slide(last, "keep")))
            # With the whole window's scales its own stream is the live one: only the slid one changes.
            own = first_apart(slid_powers, {site: power[:, last:] for site, power in powers.items()})
            freeze = frozen(self.bench.anatomy, own, last)
            self.add(OWN, last, batch, before, stream(self.bench, batch, Slide(last), *freeze))
            self._live.append((batch, powers, slid_powers))

    def freeze(self) -> None:
        """Half of the window slid out, with norms frozen to one scale, and with first tokens apart."""
        last, sites = self.slides[-1], self._live[0][1]
        typical = {s: torch.cat([powers[s][:, 1:].flatten() for _, powers, _ in self._live]).median() for s in sites}
        for batch, powers, slid_powers in self._live:
            ways: dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]] = {
                FROZEN: (typical, typical),
                APART: (first_apart(powers, typical), first_apart(slid_powers, typical)),
            }
            for name, (whole, slid) in ways.items():
                freeze, freeze_slid = frozen(self.bench.anatomy, whole), frozen(self.bench.anatomy, slid, last)
                before = stream(self.bench, batch, *freeze)
                self.add(name, last, batch, before, stream(self.bench, batch, Slide(last), *freeze_slid))

    def add(self, condition: str, by: int, batch: Batch, before: Tensor, after: Tensor) -> Tensor:
        """Count the angles of the tokens that are compared; returns those of all that are still in the window."""
        angles = angles_between(self.bench.anatomy, before[:, :, by:], after)
        more = by_group(self.bench, batch, angles[:, :, self.far - by :])
        slides = self.sums.setdefault(condition, {})
        slides[by] = slides.get(by, np.zeros_like(more)) + more
        return angles


def _moved_half(bench: Bench, windows: tuple[Window, ...], far: int) -> Floats:
    """[group, state, (count, sum)] of an untrained twin, half of the window slid out."""
    sliding = Sliding(bench, (len(windows[0].ids) // 2,), far)
    for batch in bench.batches(windows):
        by = sliding.slides[0]
        sliding.add(RESTARTED, by, batch, stream(bench, batch), stream(bench, batch, Slide(by)))
    return sliding.sums[RESTARTED][sliding.slides[0]]


def _ends(bench: Bench, own: tuple[Window, ...], length: int, slides: tuple[int, ...]) -> Floats:
    """[group, slide, (count, sum)] of the last state, in the ends of the windows of this length."""
    windows = filled(bench.corpus, tuple(Window(w.document, w.ids[-length:]) for w in own), length)
    own_length = min(length, len(own[0].ids))
    sliding = Sliding(bench, slides, max(length // 2 + length // 8, length - own_length))
    for batch in bench.batches(windows):
        before = stream(bench, batch)
        for by in slides:
            sliding.add(RESTARTED, by, batch, before, stream(bench, batch, Slide(by)))
    return np.stack([sliding.sums[RESTARTED][by][:, -1] for by in slides], 1)


def _banded(bench: Bench, batch: Batch, moved: Tensor) -> Floats:
    """[group, band, (count, sum)] of the last state's angles [b, t] by distance from the slid window's start."""
    distance = torch.arange(moved.shape[1], device=moved.device)
    within = [(distance >= low) & (distance < high) for low, high in BANDS]
    return by_group(bench, batch, torch.stack([torch.where(band, moved, torch.nan) for band in within]))
