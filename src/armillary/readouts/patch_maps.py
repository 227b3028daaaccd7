"""Where in an image are the largest activations of a vision model?

Darcet et al. (2024, arXiv:2309.16588) found that large ViTs use a few patches of plain ground to keep global facts,
with states far longer than the others; register tokens take that over. Here: the largest coordinate of every token at
the state of the stream where it is largest beside the median, as `others.massive` measures it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.errors import ModelError
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.media.corpus import media_corpus
from armillary.flow.media.sources import Media
from armillary.results.sheets.patch_maps import PatchMaps

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _State:
    """At one state of the stream: the largest magnitude of every token [images, tokens], and the median of all."""

    largest: Floats
    median: float

    @property
    def ratio(self) -> Floats:
        return self.largest / max(self.median, 1e-300)


def patch_maps(anatomy: Anatomy, media: Media, number: int) -> PatchMaps:
    """The maps of the first few images, at the state where the median image's largest ratio peaks."""
    if anatomy.reads != "images":
        raise ModelError(f"{anatomy.name} reads {anatomy.reads}; maps of patches need a model that reads images.")
    signal = anatomy.signal
    assert signal is not None
    anatomy, corpus = media_corpus(anatomy, media, number * signal.tokens)
    ids = torch.tensor([window.ids for window in corpus.windows])
    names = ("L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(anatomy.layers)))
    states: dict[str, _State] = {}

    def keep(name: str) -> Watcher:
        def see(given: torch.Tensor | None, value: torch.Tensor) -> None:
            size = value.detach().float().abs()
            states[name] = _State(size.amax(-1).double().cpu().numpy(), float(size.median()))

        return see

    with still(anatomy.model), watching(anatomy, {name: keep(name) for name in names}):
        run(anatomy, ids)
    peaks = {name: float(np.median(states[name].ratio.max(1))) for name in names}
    peak = max(peaks, key=lambda name: peaks[name])
    table = anatomy.signal.table if anatomy.signal is not None else signal.table
    pixels = _pictures(table.reshape(len(ids), -1, signal.width).double().cpu().numpy(), signal.grid, signal.patch)
    return PatchMaps(
        model=anatomy.name,
        source=corpus.source,
        state=peak,
        own=signal.prefix,
        grid=signal.grid,
        ratios=states[peak].ratio,
        by_state={name: peaks[name] for name in names},
        pictures=pixels,
    )


def _pictures(rows: Floats, grid: tuple[int, int], patch: tuple[int, int]) -> NDArray[np.uint8]:
    """[n, H, W, 3] in bytes, each image from its darkest to its brightest value."""
    n, channels = len(rows), rows.shape[2] // (patch[0] * patch[1])
    cut = rows.reshape(n, *grid, channels, *patch).transpose(0, 1, 4, 2, 5, 3)
    whole = cut.reshape(n, grid[0] * patch[0], grid[1] * patch[1], channels)
    low, high = whole.min((1, 2, 3), keepdims=True), whole.max((1, 2, 3), keepdims=True)
    scaled = (whole - low) / np.maximum(high - low, 1e-9) * 255
    return np.repeat(scaled, 3 // channels, 3).round().astype(np.uint8)
