"""By what angle do states turn when the window slides on and its first tokens are forgotten?"""

import numpy as np
import torch
from torch import Tensor

from armillary.edits import Slide
from armillary.flow.tokens import Batch
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import RANDOM, Floats
from armillary.probes.stability.drift import BANDS, Drifted
from armillary.probes.stability.windows import by_group, even_windows, stations, stream, turned

WINDOW, DOCUMENTS, QUICK_DOCUMENTS = 128, 16, 8


def slides_of(length: int) -> tuple[int, ...]:
    """1, 2, 4 … and half the window.

    >>> slides_of(60)
    (1, 2, 4, 8, 16, 30)
    """
    return (*(2**i for i in range(length.bit_length()) if 2**i < length // 2), length // 2)


def slide(bench: Bench) -> Drifted | None:
    """Windows slid by 1, 2, 4 … against the window as it stood; None where no document is long enough."""
    windows = even_windows(bench.corpus, WINDOW, QUICK_DOCUMENTS if bench.quick else DOCUMENTS)
    if not windows:
        return None
    length = len(windows[0].ids)
    slides = slides_of(length)
    slides = tuple(sorted({*slides[::2], slides[-1]})) if bench.quick else slides
    far = slides[-1] + length // 8
    # Under rotation both are the same: one slide shows it.
    several = bench.anatomy.positions.kind == "learned" and not bench.quick
    kept = sorted({1, slides[len(slides) // 2], slides[-1]}) if several else [slides[-1]]
    sums: dict[str, dict[int, Floats]] = {"restart": {}, "keep": {}, RANDOM: {}}
    bands = {by: np.zeros((bench.corpus.groups, len(BANDS), 2)) for by in slides}
    for batch in bench.batches(windows):
        before = stream(bench, batch)
        for by in (0, *slides):
            moved = turned(bench.anatomy, before[:, :, by:], stream(bench, batch, Slide(by)))
            _add(sums["restart"], by, by_group(bench, batch, moved[:, :, far - by :]))
            if by:
                bands[by] += _banded(bench, batch, moved[-1])
        for by in kept:
            moved = turned(bench.anatomy, before[:, :, by:], stream(bench, batch, Slide(by, "keep")))
            _add(sums["keep"], by, by_group(bench, batch, moved[:, :, far - by :]))
        if bench.twin is not None:
            twin = bench.arm(RANDOM)
            last = slides[-1]
            moved = turned(twin.anatomy, stream(twin, batch)[:, :, last:], stream(twin, batch, Slide(last)))
            _add(sums[RANDOM], last, by_group(bench, batch, moved[:, :, far - last :]))
    tokens = len(windows) * (length - far)
    epsilon = torch.finfo(bench.anatomy.dtype).eps
    return Drifted(stations(bench.anatomy), slides, sums, bands, length, far, len(windows), tokens, epsilon)


def _add(sums: dict[int, Floats], by: int, more: Floats) -> None:
    sums[by] = sums[by] + more if by in sums else more


def _banded(bench: Bench, batch: Batch, moved: Tensor) -> Floats:
    """[group, band, (count, sum)] of the last state's angles [b, t] by distance from where the slid window begins."""
    distance = torch.arange(moved.shape[1], device=moved.device)
    nothing = torch.full_like(moved, torch.nan)
    return by_group(bench, batch, torch.stack([torch.where(_within(distance, band), moved, nothing) for band in BANDS]))


def _within(distance: Tensor, band: tuple[int, int]) -> Tensor:
    return (distance >= band[0]) & (distance < band[1])
