"""How much more attention does a query give to its target than to the distractor, and what does a head's loss cost?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.edits import Silence
from armillary.flow.capture import run, still, watching_patterns
from armillary.flow.tokens import Batch
from armillary.probes.grid.language.effects import Cost, Gaps, best_heads
from armillary.probes.grid.language.item_places import ReadItem, readable
from armillary.probes.grid.language.templates import GROUPS, PHENOMENA
from armillary.probes.machinery import MODEL, Floats, T
from armillary.probes.machinery.bench import Bench

TWINS, QUICK_TWINS = 5, 2


@dataclass(frozen=True, eq=False)
class LanguagePasses:
    """What the passes over the items left."""

    gaps: Mapping[str, Gaps]
    """Arm → phenomenon → [pair, order, layer, head]."""
    used: Mapping[str, int]
    """How many items of every phenomenon could be read."""
    costs: Mapping[str, Cost]
    """Group → what removing its best heads costs; empty where the model predicts no next token."""


def language_passes(bench: Bench) -> LanguagePasses:
    """Untrained models read every second pair of items; all do where it should be quick."""
    read = readable(bench.anatomy, bench.corpus)
    used = {name: sum(entry.item.phenomenon == name for entry in read) for name in PHENOMENA}
    measured = [entry for entry in read if used[entry.item.phenomenon] >= T.language_items]
    if not measured:
        return LanguagePasses({}, used, {})
    few = [entry for entry in measured if entry.item.pair % 2 == 0]
    measured = few if bench.quick else measured
    gaps = {MODEL: measure_gaps(bench, measured)}
    for arm in bench.twins[: QUICK_TWINS if bench.quick else TWINS]:
        gaps[arm] = measure_gaps(bench.arm(arm), few)
    return LanguagePasses(gaps, used, _costs(bench, measured, gaps[MODEL]) if bench.scored else {})


def measure_gaps(bench: Bench, read: Sequence[ReadItem]) -> Gaps:
    """Attention on the target less that on the distractor, in both orders, mean over both items of a pair."""
    anatomy = bench.anatomy
    # What follows the query is hidden from a causal model: it is not read.
    windows = {
        (number, order): replace(window, ids=window.ids[: entry.query + 1]) if anatomy.causal else window
        for number, entry in enumerate(read)
        for order, window in enumerate(entry.windows)
    }
    names = {id(window): name for name, window in windows.items()}
    values = np.zeros((len(read), 2, anatomy.layers, anatomy.n_heads))
    for batch in bench.batches(list(windows.values())):
        numbers, orders = zip(*(names[id(window)] for window in batch.windows), strict=True)
        places = [_places(read[number], order) for number, order in zip(numbers, orders, strict=True)]
        values[list(numbers), list(orders)] = _gaps_of(bench, batch, torch.tensor(places)).numpy()
    return _by_pair(read, values)


def _places(entry: ReadItem, order: int) -> tuple[int, int, int]:
    """Of the query, the target and the distractor."""
    first, second = entry.places
    return (entry.query, first, second) if order == 0 else (entry.query, second, first)


def _gaps_of(bench: Bench, batch: Batch, places: Tensor) -> Tensor:
    """[row, layer, head] of one batch; `places` are query, target and distractor of every row."""
    anatomy = bench.anatomy
    layers: list[Tensor] = [torch.zeros(0)] * anatomy.layers
    row, (query, target, distractor) = torch.arange(len(places), device=anatomy.device), places.to(anatomy.device).T

    def watch(layer: int, pattern: Tensor) -> None:
        attention = pattern[row, :, query].double()
        gap = attention[row, :, target] - attention[row, :, distractor]
        layers[layer] = gap.cpu()

    with still(anatomy.model), watching_patterns(anatomy, watch):
        run(anatomy, batch.ids, batch.mask)
    bench.tick(batch.tokens)
    return torch.stack(layers, 1)


def _by_pair(read: Sequence[ReadItem], values: Floats) -> Gaps:
    """Means over the two items of each pair."""
    gaps = {}
    for phenomenon in dict.fromkeys(entry.item.phenomenon for entry in read):
        mine = [i for i, entry in enumerate(read) if entry.item.phenomenon == phenomenon]
        pairs = list(dict.fromkeys(read[i].item.pair for i in mine))
        gaps[phenomenon] = np.stack([values[[i for i in mine if read[i].item.pair == pair]].mean(0) for pair in pairs])
    return gaps


def _costs(bench: Bench, read: Sequence[ReadItem], gaps: Gaps) -> dict[str, Cost]:
    """Group → the cost of removing the heads that are best on one half of the pairs, on items of the other half (in one
    order) and on text."""
    costs, text = {}, bench.instalments[0]
    for group, names in GROUPS.items():
        measured = [name for name in names if name in gaps]
        if not measured:
            continue
        heads = sorted({best_heads(gaps[name])[1] for name in measured})
        layers = sorted({layer for layer, _ in heads})
        edits = [Silence(layer, tuple(head for at, head in heads if at == layer)) for layer in layers]
        items = [entry for name in measured for entry in _second_half(read, name)]
        without, silenced = _nats(bench, items, (), tuple(edits))
        more = silenced - without
        on_text = bench.losses(text, *edits) - bench.losses(text) * [0, 1]
        costs[group] = Cost(tuple(heads), more.reshape(-1, 2).mean(1), on_text)
    return costs


def _second_half(read: Sequence[ReadItem], phenomenon: str) -> list[ReadItem]:
    """The items of every second pair, pair by pair: those that did not choose the heads."""
    mine = [entry for entry in read if entry.item.phenomenon == phenomenon]
    pairs = list(dict.fromkeys(entry.item.pair for entry in mine))[1::2]
    return [entry for entry in mine if entry.item.pair in pairs]


def _nats(bench: Bench, items: Sequence[ReadItem], *cases: tuple[Silence, ...]) -> Floats:
    """[case, item]: mean loss of the query and of what follows it, in the first order, with the edits of each case."""
    windows = [entry.windows[0] for entry in items]
    number = {id(window): i for i, window in enumerate(windows)}
    nats = np.zeros((len(cases), len(windows)))
    for batch in bench.batches(windows):
        outputs: dict[int, Any] = {}
        for case, edits in enumerate(cases):
            losses = bench.token_losses(batch, *edits, outputs=outputs).numpy()
            for row, window in enumerate(batch.windows):
                item = number[id(window)]
                nats[case, item] = losses[row, items[item].query - 1 : len(window.ids) - 1].mean()
    return nats
