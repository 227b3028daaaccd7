"""Measures the angles by which states move when the window slides and its first tokens are lost."""

import numpy as np
import torch
from torch import Tensor

from armillary.edits import Slide
from armillary.flow.tokens import Batch
from armillary.probes.machinery import RANDOM, Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.window_angles import BANDS, KEPT, RESTARTED, WindowAngles
from armillary.probes.stability.windows import angles_between, by_group, even_windows, stations, stream

WINDOW, DOCUMENTS, QUICK_DOCUMENTS = 128, 16, 8


def slides_of(length: int) -> tuple[int, ...]:
    """1, 2, 4 … and half the window.

    >>> slides_of(60)
    (1, 2, 4, 8, 16, 30)
    """
    return (*(2**i for i in range(length.bit_length()) if 2**i < length // 2), length // 2)


def slide(bench: Bench) -> WindowAngles | None:
    """Slid windows compared with the whole window; None if no document is long enough."""
    windows = even_windows(bench.corpus, WINDOW, QUICK_DOCUMENTS if bench.quick else DOCUMENTS)
    if not windows:
        return None
    length = len(windows[0].ids)
    slides = slides_of(length)
    slides = tuple(sorted({*slides[::2], slides[-1]})) if bench.quick else slides
    last = slides[-1]
    far = last + length // 8
    # Rotary positions give the same angles when kept: one slide is enough to show it.
    several = bench.anatomy.positions.kind == "learned" and not bench.quick
    kept = sorted({1, slides[len(slides) // 2], last}) if several else [last]
    sums: dict[str, dict[int, Floats]] = {RESTARTED: {}, KEPT: {}, RANDOM: {}}
    bands = {by: np.zeros((bench.corpus.groups, len(BANDS), 2)) for by in slides}

    def add(condition: str, by: int, batch: Batch, angles: Tensor) -> None:
        more = by_group(bench, batch, angles[:, :, far - by :])
        sums[condition][by] = sums[condition].get(by, 0.0) + more

    for batch in bench.batches(windows):
        before = stream(bench, batch)
        for by in (0, *slides):
            angles = _moved(bench, batch, before, Slide(by))
            add(RESTARTED, by, batch, angles)
            if by:
                bands[by] += _banded(bench, batch, angles[-1])
        for by in kept:
            add(KEPT, by, batch, _moved(bench, batch, before, Slide(by, "keep")))
        if bench.twin is not None:
            twin = bench.arm(RANDOM)
            add(RANDOM, last, batch, _moved(twin, batch, stream(twin, batch), Slide(last)))
    tokens = len(windows) * (length - far)
    epsilon = torch.finfo(bench.anatomy.dtype).eps
    return WindowAngles(stations(bench.anatomy), slides, sums, bands, length, far, len(windows), tokens, epsilon)


def _moved(bench: Bench, batch: Batch, before: Tensor, slid: Slide) -> Tensor:
    """Angles [state, b, t] between the states of the tokens that are still in the slid window."""
    return angles_between(bench.anatomy, before[:, :, slid.by :], stream(bench, batch, slid))


def _banded(bench: Bench, batch: Batch, moved: Tensor) -> Floats:
    """[group, band, (count, sum)] of the last state's angles [b, t] by distance from the slid window's start."""
    distance = torch.arange(moved.shape[1], device=moved.device)
    within = [(distance >= low) & (distance < high) for low, high in BANDS]
    return by_group(bench, batch, torch.stack([torch.where(band, moved, torch.nan) for band in within]))
