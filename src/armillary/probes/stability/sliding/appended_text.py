"""Compares earlier states with and without appended tokens, by one longer pass and through a cache."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from armillary.flow.capture import Watcher, still, watching
from armillary.flow.tokens import Batch, Window
from armillary.probes.machinery import Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.prefix import CACHED, CHANGED, FLOOR, HALF, ONE, THROUGH, StateChanges
from armillary.probes.stability.sliding.windows import cut, even_windows, largest_by_group, stations, stream

WINDOW, DOCUMENTS, QUICK_DOCUMENTS = 64, 24, 8
TWINS = 5


def append(bench: Bench) -> StateChanges | None:
    """Every condition on the same windows; None if no document is long enough."""
    windows = even_windows(bench.corpus, WINDOW, QUICK_DOCUMENTS if bench.quick else DOCUMENTS)
    if not windows:
        return None
    largest: dict[str, Floats] = {}
    length = len(windows[0].ids)
    documents = np.zeros(bench.corpus.groups)
    batches = bench.batches(windows)
    for batch in batches:
        changes = _conditions(bench, batch, length // 2)
        for name, change in changes.items():
            largest[name] = np.maximum(largest.get(name, 0.0), largest_by_group(bench, batch, change))
        np.add.at(documents, bench.groups(batch).numpy(), 1.0)
    dtype = bench.anatomy.dtype
    return StateChanges(
        stations(bench.anatomy),
        largest,
        [_half_appended(bench.arm(arm), batches, length // 2) for arm in bench.twins[:TWINS]],
        documents,
        length,
        len(windows) * (length // 2),
        torch.finfo(dtype).eps,
        str(dtype).removeprefix("torch."),
    )


def _half_appended(bench: Bench, batches: list[Batch], half: int) -> Floats:
    """[group, state]: the largest change when as many tokens are appended as there were."""
    largest = np.zeros((bench.corpus.groups, len(stations(bench.anatomy))))
    for batch in batches:
        change = relative_change(stream(bench, cut(batch, half)), stream(bench, batch))
        largest = np.maximum(largest, largest_by_group(bench, batch, change))
    return largest


def _conditions(bench: Bench, batch: Batch, half: int) -> dict[str, Tensor]:
    """Relative changes [state, b, t] of one batch."""
    whole, short = stream(bench, batch), stream(bench, cut(batch, half))
    alone = [bench.batches([Window(row.document, row.ids[:half])])[0] for row in batch.windows]
    swapped = torch.cat((batch.ids[:, 1:2], batch.ids[:, 1:]), 1)
    changes = {
        ONE: relative_change(stream(bench, cut(batch, batch.ids.shape[1] - 1)), whole),
        HALF: relative_change(short, whole),
        FLOOR: relative_change(short, torch.cat([stream(bench, row) for row in alone], 1)),
        CHANGED: relative_change(short, stream(bench, cut(replace(batch, ids=swapped), half)))[:, :, 1:],
    }
    if bench.anatomy.causal:
        cached = through_cache(bench, batch, (half, half + 1))
        changes[CACHED] = relative_change(cached[:, :, :half], whole)
        changes[THROUGH] = relative_change(cached[:, :, half:], whole[:, :, half:])
    return changes


def relative_change(earlier: Tensor, whole: Tensor) -> Tensor:
    """‖Δx‖/‖x‖ between states [state, b, t] and the same tokens' states in the longer pass."""
    longer = whole[:, :, : earlier.shape[2]]
    return (longer - earlier).norm(dim=-1) / earlier.norm(dim=-1).clamp_min(1e-300)


def through_cache(bench: Bench, batch: Batch, cuts: tuple[int, ...]) -> Tensor:
    """The stream [state, b, t, d] when the row is read in pieces, each of which sees the earlier ones in the cache."""
    anatomy = bench.anatomy
    pieces: dict[str, list[Tensor]] = {name: [] for name in stations(anatomy)}

    def watcher(name: str) -> Watcher:
        return lambda given, value: pieces[name].append(value.detach().double())

    past = None
    with still(anatomy.model), watching(anatomy, {name: watcher(name) for name in pieces}):
        for start, stop in pairwise((0, *cuts, batch.ids.shape[1])):
            ids = batch.ids[:, start:stop].to(anatomy.device)
            past = anatomy.backbone(input_ids=ids, past_key_values=past, use_cache=True).past_key_values
    bench.tick(batch.tokens)
    return torch.stack([torch.cat(parts, 1) for parts in pieces.values()])
