"""What does it cost to take hidden coordinates out: the discarded ones, as many at random, or the same ones for every token?"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.edits import Ablate, Edit
from armillary.flow.tokens import Batch
from armillary.probes.filter.hidden import DISCARDS, Choose, Layer, streams
from armillary.probes.machinery.bench import Bench, Trials
from armillary.probes.machinery.evidence import MODEL
from armillary.probes.sphere.scaling import layers_of

ALL = "all layers"
HOWS = ("zero", "random", "fixed")
"""What is zeroed: the discarded coordinates; as many of each token, drawn at random; those discarded most often."""
INSTEAD = ("mean", "resample")
"""What else stands in for the discarded ones: the unit's mean where it is discarded; another token's value."""
# Single layers: the first, the middle and the last.
LAYERS, QUICK_LAYERS = 3, 2


@dataclass(frozen=True, eq=False)
class Selected:
    """What every trial costs, by place, definition and how; and which share of coordinates each drops."""

    trials: Trials
    resampled: Trials
    places: tuple[str, ...]
    dropped: dict[tuple[str, str], float]
    exact: bool
    """Is what lies below zero exactly zero after the activation, so that zeroing it does nothing?"""


def name(place: str, definition: str, how: str) -> str:
    return f"{place}, {definition}, {how}"


def dropping(bench: Bench, decided: Callable[[Trials], bool]) -> Selected:
    """All trials on as many documents as the rule needs."""
    layers = streams(bench).arms[MODEL]
    some = layers_of(bench.anatomy, QUICK_LAYERS if bench.quick else LAYERS)
    places: dict[str, tuple[int, ...]] = {f"L{i}": (i,) for i in some} | {ALL: tuple(range(len(layers)))}
    trials = {
        name(place, definition, how): _edits(bench, layers, where, row, how)
        for place, where in places.items()
        for row, definition in enumerate(DISCARDS)
        for how in (*HOWS, *(("mean",) if place == ALL else ()))
    }
    made = bench.compare(trials, decided)
    return Selected(
        trials=made,
        resampled=_resampled(bench, len(layers), made),
        places=tuple(places),
        dropped={
            (place, definition): float(np.mean([_share(layers[i], row) for i in where]))
            for place, where in places.items()
            for row, definition in enumerate(DISCARDS)
        },
        exact=all(one.off[0].any() and not one.sums[:, 3].any() for one in layers),
    )


def _share(layer: Layer, definition: int) -> float:
    return float(layer.off[definition].mean() / max(1, layer.tokens))


def _edits(bench: Bench, layers: list[Layer], places: tuple[int, ...], definition: int, how: str) -> tuple[Edit, ...]:
    discard = list(DISCARDS.values())[definition]
    made: list[Edit] = []
    for i in places:
        layer = layers[i]
        if how == "mean":
            made.append(Ablate(i, discard, "mean", layer.off_mean[definition].to(bench.anatomy.device)))
            continue
        seed = [bench.seed, i, definition]
        choose = {"zero": discard, "random": at_random(discard, seed), "fixed": always(layer, definition)}[how]
        made.append(Ablate(i, choose))
    return tuple(made)


def at_random(discard: Choose, seed: list[int]) -> Choose:
    """As many coordinates of each token as `discard` names there, drawn anew for each token."""
    rng = np.random.default_rng(seed)

    def choose(pre: Tensor, post: Tensor) -> Tensor:
        number = discard(pre, post).sum(-1, keepdim=True)
        order = torch.from_numpy(rng.random(post.shape, dtype=np.float32)).argsort(-1).to(post.device)
        first = torch.arange(post.shape[-1], device=post.device) < number
        return torch.zeros_like(first).scatter(-1, order, first)

    return choose


def always(layer: Layer, definition: int) -> Choose:
    """The units that are discarded most often, as many as are discarded on average, for every token alike."""
    off = layer.off[definition]
    number = round(float(off.sum()) / max(1, layer.tokens))
    fixed = torch.zeros(len(off), dtype=torch.bool)
    fixed[off.argsort(descending=True, stable=True)[:number]] = True
    return lambda pre, post: fixed.to(post.device).expand(post.shape)


def _resampled(bench: Bench, layers: int, trials: Trials) -> Trials:
    """Every discarded coordinate of every layer at another token's value, on the documents that `trials` read.

    Not by `compare`: which tokens are no padding, and may lend their values, differs from batch to batch.
    """
    batches: list[Batch] = [batch for part in bench.instalments()[: trials.looks] for batch in part]
    loss = np.zeros((1 + len(DISCARDS), bench.corpus.groups))
    for batch in batches:
        loss[0] += bench.losses([batch])[:, 1]
        for row, discard in enumerate(DISCARDS.values(), 1):
            edits = [Ablate(i, discard, "resample", seed=bench.seed + i, kept=batch.mask) for i in range(layers)]
            loss[row] += bench.losses([batch], *edits)[:, 1]
    names = tuple(name(ALL, definition, "resample") for definition in DISCARDS)
    return Trials(names, loss, trials.count, trials.looks, trials.level, bench.seed)
