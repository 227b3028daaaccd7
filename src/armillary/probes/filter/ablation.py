"""What does removing hidden coordinates cost: the discarded ones, as many at random, or the same for every token?"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.edits import Ablate, Edit
from armillary.probes.filter.hidden import DISCARDS, Choose, HiddenLayer, hidden_layers
from armillary.probes.machinery import MODEL, NAN3, Cells, Floats, cells, interval_cells, line, spread_layers, table
from armillary.probes.machinery.bench import Bench, Trials
from armillary.probes.machinery.intervals import Interval
from armillary.results import Quantity, Table

ALL, NATS = "all layers", "nats/token"
ZEROED = ("zero", "random", "fixed")
"""What is zeroed: the discarded coordinates; as many of each token, drawn at random; those discarded most often."""
REPLACED = ("mean", "resample")
"""What replaces the discarded ones otherwise: the unit's mean where it is discarded; another token's value."""
# Single layers: the first, the middle and the last.
LAYERS, QUICK_LAYERS = 3, 2


@dataclass(frozen=True, eq=False)
class AblationCosts:
    """The cost of every trial, by place, definition of 'discarded' and edit; and the shares that are removed."""

    trials: Trials
    resampled: Trials
    places: tuple[str, ...]
    shares: dict[tuple[str, str], float]
    """(place, definition) → share of coordinates that are discarded."""
    exact: bool
    """Is what lies below zero exactly zero after the activation, so that zeroing it changes nothing?"""

    def cost(self, place: str, definition: str, how: str) -> Interval:
        """Nats per token with their interval; NaN for a trial that was not made."""
        name = trial_name(place, definition, how)
        for trials in (self.trials, self.resampled):
            if name in trials.names:
                return trials.cost(name)
        return NAN3


def trial_name(place: str, definition: str, how: str) -> str:
    return f"{place}, {definition}, {how}"


def ablation_costs(bench: Bench, decided: Callable[[Trials], bool]) -> AblationCosts:
    """All trials, on as many documents as the rule needs."""
    layers = hidden_layers(bench).arms[MODEL]
    single = spread_layers(bench.anatomy, QUICK_LAYERS if bench.quick else LAYERS)
    places: dict[str, tuple[int, ...]] = {f"L{i}": (i,) for i in single} | {ALL: tuple(range(len(layers)))}
    edits = {
        trial_name(place, definition, how): tuple(_edit(bench, layers[i], i, row, how) for i in numbers)
        for place, numbers in places.items()
        for row, definition in enumerate(DISCARDS)
        for how in (*ZEROED, *(("mean",) if place == ALL else ()))
    }
    trials = bench.compare(edits, decided)
    return AblationCosts(
        trials=trials,
        resampled=_resampled(bench, len(layers), trials),
        places=tuple(places),
        shares={
            (place, definition): float(np.mean([_share(layers[i], row) for i in numbers]))
            for place, numbers in places.items()
            for row, definition in enumerate(DISCARDS)
        },
        exact=all(layer.off[0].any() and not layer.sums[:, 3].any() for layer in layers),
    )


def _share(layer: HiddenLayer, definition: int) -> float:
    return float(layer.off[definition].mean() / max(1, layer.tokens))


def _edit(bench: Bench, layer: HiddenLayer, number: int, definition: int, how: str) -> Edit:
    discard = list(DISCARDS.values())[definition]
    if how == "mean":
        return Ablate(number, discard, "mean", layer.off_mean[definition].to(bench.anatomy.device))
    if how == "random":
        return Ablate(number, at_random(discard, [bench.seed, number, definition]))
    return Ablate(number, discard if how == "zero" else most_often(layer, definition))


def at_random(discard: Choose, seed: list[int]) -> Choose:
    """As many coordinates of each token as `discard` marks there, drawn anew for each token."""
    rng = np.random.default_rng(seed)

    def choose(pre: Tensor, post: Tensor) -> Tensor:
        number = discard(pre, post).sum(-1, keepdim=True)
        order = torch.from_numpy(rng.random(post.shape, dtype=np.float32)).argsort(-1).to(post.device)
        first = torch.arange(post.shape[-1], device=post.device) < number
        return torch.zeros_like(first).scatter(-1, order, first)

    return choose


def most_often(layer: HiddenLayer, definition: int) -> Choose:
    """The units that are discarded most often, as many as are discarded on average, the same for every token."""
    off = layer.off[definition]
    number = round(float(off.sum()) / max(1, layer.tokens))
    fixed = torch.zeros(len(off), dtype=torch.bool)
    fixed[off.argsort(descending=True, stable=True)[:number]] = True
    return lambda pre, post: fixed.to(post.device).expand(post.shape)


def _resampled(bench: Bench, layers: int, trials: Trials) -> Trials:
    """Every discarded coordinate of every layer at another token's value, on the documents that `trials` read.

    Not by `compare`: which tokens are not padding, and may lend their values, differs from batch to batch.
    """
    loss = np.zeros((1 + len(DISCARDS), bench.corpus.groups))
    for batch in (batch for part in bench.instalments[: trials.looks] for batch in part):
        loss[0] += bench.losses([batch])[:, 1]
        for row, discard in enumerate(DISCARDS.values(), 1):
            edits = [Ablate(i, discard, "resample", seed=bench.seed + i, kept=batch.mask) for i in range(layers)]
            loss[row] += bench.losses([batch], *edits)[:, 1]
    names = tuple(trial_name(ALL, definition, "resample") for definition in DISCARDS)
    return Trials(names, loss, trials.count, trials.looks, trials.level, bench.seed)


def cost_ratio(above: Floats, under: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(under > 0, above / under, np.nan))


def cost_table(result: AblationCosts) -> Table:
    rows = [(place, definition) for definition in DISCARDS for place in result.places]
    costs = {how: np.array([result.cost(*row, how) for row in rows]) for how in (*ZEROED, *REPLACED)}

    def cost(name: str, how: str, meaning: str) -> Iterable[Cells]:
        return interval_cells(name, meaning, costs[how], NATS, level=result.trials.level)

    return table(
        cells(
            "where", "one layer, or all at once; and which coordinates count as discarded", list(map(", ".join, rows))
        ),
        cells("dropped", "share of hidden coordinates that are discarded", [result.shares[row] for row in rows]),
        cost("cost", "zero", "change of the next-token loss when they are zeroed"),
        cost("random", "random", "the same for as many coordinates of each token, drawn at random"),
        cost("fixed", "fixed", "the same for as many units, the same for every token: those discarded most often"),
        cells(
            "ratio",
            "cost over the cost of as many at random; empty where those cost nothing",
            cost_ratio(costs["zero"][:, 0], costs["random"][:, 0]),
        ),
        cost("mean", "mean", "change when they take the unit's mean over tokens that discard it; empty for one layer"),
        cost("resample", "resample", "change when they take another token's value; empty for one layer"),
    )


def cost_lines(result: AblationCosts, definition: str) -> Quantity:
    costs = {h: np.array([result.cost(p, definition, h) for p in result.places]) for h in ("zero", "random", "fixed")}
    return line(
        f"loss without the coordinates {definition}",
        "zeroed before W_out, in one layer or in all",
        NATS,
        "where",
        result.places,
        costs["zero"],
        {"as many at random": costs["random"][:, 0], "the same units everywhere": costs["fixed"][:, 0]},
        {"no change: 0": np.zeros(len(result.places))},
        label="the discarded",
    )
