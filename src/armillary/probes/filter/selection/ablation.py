"""What does it cost to remove hidden coordinates, or to let them through: the discarded, random ones, fixed ones?"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Routed
from armillary.edits import Ablate, Edit
from armillary.probes.filter.activations.hidden import Choose, HiddenLayer, below, hidden_layers
from armillary.probes.filter.expert_parts import columns_of
from armillary.probes.filter.selection import expert_edits as of_experts
from armillary.probes.filter.selection.expert_edits import ChangeExperts
from armillary.probes.filter.selection.undiscard import Undiscard
from armillary.probes.machinery import MODEL, NAN3, Cells, Floats, cells, interval_cells, line, spread_layers, table
from armillary.probes.machinery.bench import Bench, Trials
from armillary.probes.machinery.intervals import Interval
from armillary.results import Quantity, Table

ALL, NATS = "all layers", "nats/token"
ZEROED = ("zero", "random", "fixed")
"""What is zeroed: the discarded coordinates; as many of each token, drawn at random; those discarded most often."""
THROUGH, ELSEWHERE = "let through", "as much elsewhere"
"""The discarded let through; as many coordinates of each token, drawn at random, changed by as much."""
SLOPES = (0.1, 0.5, 1.0)
# Single layers: the first, the middle and the last.
LAYERS, QUICK_LAYERS = 3, 2
# Experts of the middle layer that are let through one by one: those that get most tokens.
EXPERTS, QUICK_EXPERTS = 8, 2


@dataclass(frozen=True, eq=False)
class AblationCosts:
    """The cost of every edit of the coordinates below zero, by place; and the shares that are below."""

    trials: Trials
    places: tuple[str, ...]
    shares: dict[str, float]
    """place → share of coordinates below zero."""
    exact: bool
    """Is what lies below zero exactly zero after the activation, so that zeroing it changes nothing?"""
    experts: tuple[str, ...] = ()
    """Places that are one expert."""

    def cost(self, place: str, how: str) -> Interval:
        """Nats per token with their interval; NaN for a trial that was not made."""
        name = trial_name(place, how)
        return self.trials.cost(name) if name in self.trials.names else NAN3

    def ratio(self, place: str, above: str, under: str) -> Interval:
        """What one edit of the coordinates below zero costs, over what another does; NaN where that costs nothing."""
        upper, lower = (1 + self.trials.names.index(trial_name(place, how)) for how in (above, under))
        return self.trials.interval(
            lambda loss, count: cost_ratio(loss[:, upper] - loss[:, 0], loss[:, lower] - loss[:, 0])
        )

    def mean_ratio(self, places: list[str], above: str, under: str) -> Interval:
        """The mean of these ratios over places."""
        rows = [[1 + self.trials.names.index(trial_name(p, how)) for p in places] for how in (above, under)]

        def statistic(loss: Floats, count: Floats) -> Floats:
            upper, lower = (loss[:, row] - loss[:, :1] for row in rows)
            return np.asarray(cost_ratio(upper, lower).mean(-1))

        return self.trials.interval(statistic)

    @property
    def single(self) -> list[str]:
        """The places that are one layer."""
        return [place for place in self.places if place != ALL]


def trial_name(place: str, how: str) -> str:
    return f"{place}, {how}"


def through(slope: float) -> str:
    """The name of letting through at a slope."""
    return THROUGH if slope == 1 else f"{THROUGH} at {slope:g}"


def elsewhere(slope: float) -> str:
    return ELSEWHERE if slope == 1 else f"{ELSEWHERE} at {slope:g}"


def ablation_costs(bench: Bench) -> AblationCosts:
    """All trials, on the whole evaluation text."""
    layers = hidden_layers(bench).arms[MODEL]
    single = spread_layers(bench.anatomy, QUICK_LAYERS if bench.quick else LAYERS)
    places: dict[str, tuple[int, ...]] = {f"L{i}": (i,) for i in single} | {ALL: tuple(range(len(layers)))}
    edits: dict[str, tuple[Edit, ...]] = {}
    for place, numbers in places.items():
        for how in (*ZEROED, "mean") if place == ALL else ZEROED[:2]:
            edits[trial_name(place, how)] = tuple(_edit(bench, layers[i], i, how) for i in numbers)
        for slope in SLOPES if place == ALL else (1.0,):
            seeds = (bench.seed, len(edits))
            edits[trial_name(place, through(slope))] = tuple(_through(bench, i, slope) for i in numbers)
            edits[trial_name(place, elsewhere(slope))] = tuple(_through(bench, i, slope, seeds) for i in numbers)
    experts = _experts(bench, layers)
    for place, (i, columns) in experts.items():
        seed = (bench.seed, len(edits), i)
        edits[trial_name(place, THROUGH)] = (ChangeExperts(i, of_experts.let_through(1.0, None, columns)),)
        edits[trial_name(place, ELSEWHERE)] = (ChangeExperts(i, of_experts.let_through(1.0, seed, columns)),)
    return AblationCosts(
        trials=bench.compare(edits),
        places=tuple(places),
        shares={place: float(np.mean([_share(layers[i]) for i in numbers])) for place, numbers in places.items()},
        exact=all(layer.off[0].any() and not layer.sums[:, 3].any() for layer in layers),
        experts=tuple(experts),
    )


def _experts(bench: Bench, layers: list[HiddenLayer]) -> dict[str, tuple[int, slice]]:
    """place → layer and units of one expert: those that get most tokens, in the middle layer; none in a dense one."""
    middle = len(layers) // 2
    mixture = bench.anatomy.blocks[middle].channels
    if not isinstance(mixture, Routed):
        return {}
    tokens = {name: sums[:, 0].sum() for name, sums in layers[middle].experts.items()}
    busiest = sorted(tokens, key=lambda name: -tokens[name])[: QUICK_EXPERTS if bench.quick else EXPERTS]
    return {f"L{middle} {name}": (middle, columns_of(mixture)[name]) for name in tokens if name in busiest}


def _share(layer: HiddenLayer) -> float:
    return float(layer.off[0].sum() / layer.used.sum().clamp_min(1))


def _edit(bench: Bench, layer: HiddenLayer, number: int, how: str) -> Edit:
    if isinstance(bench.anatomy.blocks[number].channels, Routed):
        return ChangeExperts(number, _rewrite(bench, layer, number, how))
    if how == "mean":
        return Ablate(number, below, "mean", layer.off_mean[0].to(bench.anatomy.device))
    if how == "random":
        return Ablate(number, at_random(below, [bench.seed, number]))
    return Ablate(number, below if how == "zero" else most_often(layer))


def _rewrite(bench: Bench, layer: HiddenLayer, number: int, how: str) -> of_experts.Rewrite:
    """The same edits in a mixture of experts."""
    if how == "mean":
        return of_experts.meaned(layer.off_mean[0])
    if how == "random":
        return of_experts.zeroed_at_random([bench.seed, number])
    return of_experts.zeroed() if how == "zero" else of_experts.zeroed_always(often_discarded(layer))


def _through(bench: Bench, number: int, slope: float, seeds: tuple[int, ...] | None = None) -> Edit:
    seed = None if seeds is None else (*seeds, number)
    if isinstance(bench.anatomy.blocks[number].channels, Routed):
        return ChangeExperts(number, of_experts.let_through(slope, seed))
    return Undiscard(number, slope, seed)


def at_random(discard: Choose, seed: list[int]) -> Choose:
    """As many coordinates of each token as `discard` marks there, drawn anew for each token."""
    rng = np.random.default_rng(seed)

    def choose(pre: Tensor, post: Tensor) -> Tensor:
        number = discard(pre, post).sum(-1, keepdim=True)
        order = torch.from_numpy(rng.random(post.shape, dtype=np.float32)).argsort(-1).to(post.device)
        first = torch.arange(post.shape[-1], device=post.device) < number
        return torch.zeros_like(first).scatter(-1, order, first)

    return choose


def most_often(layer: HiddenLayer) -> Choose:
    """The units that are discarded most often, as many as are discarded on average, the same for every token."""
    fixed = often_discarded(layer)
    return lambda pre, post: fixed.to(post.device).expand(post.shape)


def often_discarded(layer: HiddenLayer) -> Tensor:
    """[m]: these units.

    In a mixture a unit is judged by the tokens that have it, and units are taken until as many coordinates are gone.
    """
    off, used = layer.off[0], layer.used
    order = (off / used.clamp_min(1)).argsort(descending=True, stable=True)
    number = int((used[order].cumsum(0) - used[order] / 2 < off.sum()).sum())
    fixed = torch.zeros(len(off), dtype=torch.bool)
    fixed[order[:number]] = True
    return fixed


def cost_ratio(above: Floats, under: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(under > 0, above / under, np.nan))


def cost_table(result: AblationCosts) -> Table:
    hows = (*ZEROED, "mean", THROUGH, ELSEWHERE)
    costs = {how: np.array([result.cost(place, how) for place in result.places]) for how in hows}

    def cost(name: str, how: str, meaning: str) -> Iterable[Cells]:
        return interval_cells(name, meaning, costs[how], NATS, level=result.trials.level)

    return table(
        cells("where", "one layer, or all at once", result.places),
        cells("dropped", "share of hidden coordinates below zero", [result.shares[place] for place in result.places]),
        cost("through", THROUGH, "change of the next-token loss when they are let through with slope 1"),
        cost("elsewhere", ELSEWHERE, "the same when as many random coordinates change by as much"),
        cells(
            "through_ratio",
            "cost of letting them through over that of the same elsewhere; empty where that costs nothing",
            cost_ratio(costs[THROUGH][:, 0], costs[ELSEWHERE][:, 0]),
        ),
        cost("cost", "zero", "change of the loss when they are zeroed after the activation"),
        cost("random", "random", "the same for as many coordinates of each token, drawn at random"),
        cost("fixed", "fixed", "the same for as many units, the same for every token; empty for one layer"),
        cells(
            "ratio",
            "cost over the cost of as many at random; empty where those cost nothing",
            cost_ratio(costs["zero"][:, 0], costs["random"][:, 0]),
        ),
        cost("mean", "mean", "change when they take the unit's mean over tokens that discard it; empty for one layer"),
    )


def slope_table(result: AblationCosts) -> Table:
    costs = {
        name: np.array([result.cost(ALL, how(slope)) for slope in SLOPES])
        for name, how in (("through", through), ("elsewhere", elsewhere))
    }
    return table(
        cells("slope", "slope at which values below zero are let through, all layers at once", SLOPES),
        interval_cells("through", "change of the next-token loss", costs["through"], NATS),
        interval_cells("elsewhere", "when as many coordinates, at random, change by as much", costs["elsewhere"], NATS),
    )


def cost_lines(result: AblationCosts) -> tuple[Quantity, ...]:
    costs = {
        how: np.array([result.cost(place, how) for place in result.places]) for how in (*ZEROED, THROUGH, ELSEWHERE)
    }
    nothing = {"no change: 0": np.zeros(len(result.places))}
    return (
        line(
            "loss when what lies below zero is let through",
            "slope 1 in place of the activation, in one layer or in all",
            NATS,
            "where",
            result.places,
            costs[THROUGH],
            {"as much at random units": costs[ELSEWHERE][:, 0]},
            nothing,
            label="the discarded",
        ),
        line(
            "loss when what lies below zero is zeroed",
            "after the activation, in one layer or in all",
            NATS,
            "where",
            result.places,
            costs["zero"],
            {"as many at random": costs["random"][:, 0]},
            nothing,
            label="the discarded",
        ),
    )


def expert_cost_table(result: AblationCosts) -> Table:
    costs = {how: np.array([result.cost(place, how) for place in result.experts]) for how in (THROUGH, ELSEWHERE)}
    return table(
        cells("expert", "layer and expert; those that get most tokens", result.experts),
        interval_cells("through", "change of the next-token loss when it lets through", costs[THROUGH], NATS),
        interval_cells("elsewhere", "when as many of its units, at random, change by as much", costs[ELSEWHERE], NATS),
        cells(
            "through_ratio",
            "cost of letting through over that of as much elsewhere; empty where that costs nothing",
            cost_ratio(costs[THROUGH][:, 0], costs[ELSEWHERE][:, 0]),
        ),
    )
