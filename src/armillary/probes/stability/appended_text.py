"""What becomes of earlier states when tokens are appended, by one longer pass and by a cache?"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from armillary.flow.capture import still, watching
from armillary.flow.tokens import Batch, Window
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import RANDOM, Floats
from armillary.probes.stability.prefix import CACHED, CHANGED, FLOOR, HALF, ONE, THROUGH, Appended
from armillary.probes.stability.windows import cut, even_windows, largest_by_group, stations, stream

WINDOW, DOCUMENTS, QUICK_DOCUMENTS = 64, 24, 8


def append(bench: Bench) -> Appended | None:
    """Every condition on the same windows; None where no document is long enough."""
    windows = even_windows(bench.corpus, WINDOW, QUICK_DOCUMENTS if bench.quick else DOCUMENTS)
    if not windows:
        return None
    changes: dict[str, Floats] = {}
    length = len(windows[0].ids)
    batches = bench.batches(windows)
    for batch in batches:
        found = _conditions(bench, batch, length // 2)
        if bench.twin is not None:
            twin = bench.arm(RANDOM)
            found[RANDOM] = _apart(stream(twin, cut(batch, length // 2)), stream(twin, batch))
        for name, change in found.items():
            made = largest_by_group(bench, batch, change)
            changes[name] = np.maximum(changes.get(name, 0.0), made)
    used = sum(torch.bincount(bench.groups(batch), minlength=bench.corpus.groups) for batch in batches)
    return Appended(
        stations(bench.anatomy),
        changes,
        torch.as_tensor(used).double().numpy(),
        length,
        len(windows) * (length // 2),
        torch.finfo(bench.anatomy.dtype).eps,
        str(bench.anatomy.dtype).removeprefix("torch."),
    )


def _conditions(bench: Bench, batch: Batch, half: int) -> dict[str, Tensor]:
    """Relative changes [state, b, t] of one batch."""
    whole, short = stream(bench, batch), stream(bench, cut(batch, half))
    alone = [bench.batches([Window(row.document, row.ids[:half])])[0] for row in batch.windows]
    swapped = torch.cat((batch.ids[:, 1:2], batch.ids[:, 1:]), 1)
    found = {
        ONE: _apart(stream(bench, cut(batch, batch.ids.shape[1] - 1)), whole),
        HALF: _apart(short, whole),
        FLOOR: _apart(short, torch.cat([stream(bench, row) for row in alone], 1)),
        CHANGED: _apart(short, stream(bench, cut(replace(batch, ids=swapped), half)))[:, :, 1:],
    }
    if bench.anatomy.causal:
        kept = through_cache(bench, batch, (half, half + 1))
        found |= {CACHED: _apart(kept[:, :, :half], whole), THROUGH: _apart(kept[:, :, half:], whole[:, :, half:])}
    return found


def _apart(earlier: Tensor, whole: Tensor) -> Tensor:
    """‖Δx‖/‖x‖ of the earlier states [state, b, t] against the same tokens' in the longer pass."""
    longer = whole[:, :, : earlier.shape[2]]
    return (longer - earlier).norm(dim=-1) / earlier.norm(dim=-1).clamp_min(1e-300)


def through_cache(bench: Bench, batch: Batch, cuts: tuple[int, ...]) -> Tensor:
    """The stream [state, b, t, d] when the row is read in pieces, each of which finds the earlier ones in the cache."""
    anatomy = bench.anatomy
    pieces: dict[str, list[Tensor]] = {name: [] for name in stations(anatomy)}

    def keep(name: str, value: Tensor) -> None:
        pieces[name].append(value.detach().double())

    watchers = {name: lambda given, value, name=name: keep(name, value) for name in pieces}
    ends = (0, *cuts, batch.ids.shape[1])
    past = None
    with still(anatomy.model), watching(anatomy, watchers):
        for start, stop in pairwise(ends):
            ids = batch.ids[:, start:stop].to(anatomy.device)
            past = anatomy.backbone(input_ids=ids, past_key_values=past, use_cache=True).past_key_values
    bench.tick(batch.tokens)
    return torch.stack([torch.cat(parts, 1) for parts in pieces.values()])
