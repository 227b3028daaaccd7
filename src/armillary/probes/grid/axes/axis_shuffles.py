"""What does it cost when axes change places within their heads, or across heads?

One shuffle costs more or less by chance (a second one up to a quarter more or less). Every document gets its own
shuffle, so that the interval over documents is one over shuffles too, and a pass tries as many as it reads documents.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit, Shuffle, across, within
from armillary.edits.edit import changing, changing_heads
from armillary.probes.machinery import NAN3, Floats, Interval, T, cells, interval_cells, line, spread_layers, table
from armillary.probes.machinery.bench import Trials
from armillary.results import Quantity, Table

Where = Literal["z", "q"]
SITES: tuple[Where, ...] = ("z", "q")
KINDS = {"within": within, "across": across}
# Two shuffles of each kind: the second within heads beside the first is a control.
TRIALS = (("within", 0), ("within", 1), ("across", 0), ("across", 1))
LAYERS = 3
ALIKE = "q and k alike"


@dataclass(frozen=True, eq=False)
class DocumentShuffle:
    """Let axis i of layer `layer` carry what axis `order(n)[i]` carried, in the n-th document that passes: in `z` (the
    heads' results, before W_O) or in `q`."""

    layer: int
    order: Callable[[int], tuple[int, ...] | Tensor]
    where: Where = "z"
    passed: list[int] = field(default_factory=lambda: [0])
    """How many documents have passed since it was created."""
    example: ClassVar[str] = 'DocumentShuffle(layer=3, order=lambda n: across(heads=4, k=64, seed=n), where="z")'

    @property
    def unchanged(self) -> int:
        return self.layer

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        if self.where == "z":
            return changing(anatomy, f"L{self.layer}.z", lambda z, given: self._moved(z.flatten(-2)))

        def change(q: Tensor, key: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            b, h, t, k = q.shape
            moved = self._moved(q.transpose(1, 2).reshape(b, t, h * k))
            return moved.reshape(b, t, h, k).transpose(1, 2), key, v

        return changing_heads(anatomy, self.layer, change)

    def _moved(self, rows: Tensor) -> Tensor:
        """[b, t, h·k], each document by its own order."""
        first = self.passed[0]
        self.passed[0] += len(rows)
        orders = torch.stack([torch.as_tensor(self.order(first + i)) for i in range(len(rows))]).to(rows.device)
        return rows.gather(-1, orders[:, None].expand(rows.shape))


@dataclass(frozen=True)
class ShuffleCase:
    """`moved` axes of every head of these layers change places at one site."""

    where: Where
    layers: tuple[int, ...]
    moved: int

    def trial(self, kind: str, shuffle: int) -> str:
        return f"{self.where} of {self.layers}, {self.moved} {kind}, {shuffle}"


def shuffle_cases(anatomy: Anatomy) -> list[ShuffleCase]:
    """Single layers with all axes moved; then all layers with all axes, half and a quarter of them. None for a single
    head. (A quarter of one layer's axes costs too little to have a share.)"""
    if anatomy.n_heads < 2 or anatomy.k < 2:
        return []
    layers = spread_layers(anatomy, LAYERS)
    doses = sorted({max(2, anatomy.k // part) for part in (1, 2, 4)}, reverse=True)
    places: list[tuple[tuple[int, ...], int]] = [((layer,), anatomy.k) for layer in layers] if len(layers) > 1 else []
    places += [(tuple(range(anatomy.layers)), moved) for moved in doses]
    return [ShuffleCase(where, chosen, moved) for where in SITES for chosen, moved in places]


def whole_case(anatomy: Anatomy) -> ShuffleCase:
    """All axes of the results of all layers, which costs most: the one that untrained models are tried with."""
    return ShuffleCase("z", tuple(range(anatomy.layers)), anatomy.k)


def shuffle_trials(anatomy: Anatomy) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Every case, within heads and across, and the control that changes no score."""
    for case in shuffle_cases(anatomy):
        yield from case_trials(anatomy, case)
    orders = (within(anatomy.n_kv_heads, anatomy.k, 7 + at) for at in range(anatomy.layers))
    yield ALIKE, tuple(Shuffle(at, order, "qk") for at, order in enumerate(orders))


def case_trials(
    anatomy: Anatomy, case: ShuffleCase, kinds: Container[str] = tuple(KINDS)
) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    for kind, shuffle in TRIALS:
        if kind in kinds:
            yield case.trial(kind, shuffle), tuple(_edit(anatomy, case, at, kind, shuffle) for at in case.layers)


def _edit(anatomy: Anatomy, case: ShuffleCase, layer: int, kind: str, shuffle: int) -> Edit:
    # The same seeds for both kinds: the same axes move, in every document.
    first = 1_000_000 * shuffle + layer
    shape = anatomy.n_heads, anatomy.k
    return DocumentShuffle(layer, lambda n: _order(kind, *shape, 1000 * n + first, case.moved), case.where)


# Both sites, single layers and all, and every twin use the same orders: drawing them anew took as long as two passes.
@lru_cache(maxsize=2048)
def _order(kind: str, heads: int, k: int, seed: int, moved: int) -> Tensor:
    return torch.tensor(KINDS[kind](heads, k, seed, moved))


@dataclass(frozen=True)
class ShuffleCosts:
    """The costs of one case, from the trials of all."""

    trials: Trials
    case: ShuffleCase

    def cost(self, kind: str) -> Interval:
        """Mean nats per token of a kind of shuffle."""
        rows = self.rows(kind)
        return self.trials.interval(lambda loss, count: _above(loss, rows) / np.maximum(count, 1e-300))

    def difference(self) -> Interval:
        """across − within, in nats per token."""
        inside, outside = self.rows("within"), self.rows("across")
        return self.trials.interval(
            lambda loss, count: (_above(loss, outside) - _above(loss, inside)) / np.maximum(count, 1e-300)
        )

    @property
    def has_cost(self) -> bool | None:
        """Does moving axes across heads cost anything? None where the interval does not say."""
        return _is_cost(self.cost("across"))

    @property
    def has_placebo(self) -> bool:
        """Does the second shuffle within heads cost anything, so that the control has a share?"""
        rows = self.rows("within")[1:]
        cost = self.trials.interval(lambda loss, count: _above(loss, rows) / np.maximum(count, 1e-300))
        return _is_cost(cost) is True

    def rows(self, kind: str) -> list[int]:
        return [1 + self.trials.names.index(self.case.trial(k, n)) for k, n in TRIALS if k == kind]


def _is_cost(cost: Interval) -> bool | None:
    """Can one speak of a share of this cost? Not where it may be nothing, or all but vanishes within its interval: the
    share's interval would be as wide as one likes. None where the interval does not say."""
    value, low, high = cost
    if low >= max(T.crossing_cost, T.crossing_steady * value):
        return True
    return False if high < T.crossing_cost else None


def crossing_share(costs: Sequence[ShuffleCosts], level: float | None = None) -> Interval:
    """(across − within)/across: the median of these cases, each of which has a cost. NaN of none."""
    return _median_share(costs, [(cost.rows("within"), cost.rows("across")) for cost in costs], level)


def placebo_share(costs: Sequence[ShuffleCosts]) -> Interval:
    """The same with a second shuffle within heads in place of the one across."""
    return _median_share(costs, [(cost.rows("within")[:1], cost.rows("within")[1:]) for cost in costs])


def _median_share(
    costs: Sequence[ShuffleCosts], pairs: list[tuple[list[int], list[int]]], level: float | None = None
) -> Interval:
    if not costs:
        return NAN3

    def share(loss: Floats, count: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            each = [1 - _above(loss, inside) / _above(loss, outside) for inside, outside in pairs]
        return np.asarray(np.median(each, axis=0))

    trials = costs[0].trials
    return (trials if level is None else replace(trials, level=level)).interval(share)


def _above(loss: Floats, rows: list[int]) -> Floats:
    """The mean loss of these trials above that of the unedited model."""
    return np.asarray(loss[:, rows].mean(1) - loss[:, 0])


def case_costs(costs: Sequence[ShuffleCosts]) -> dict[str, Floats]:
    """within, across, difference, share → [case, (value, low, high)]; the share only where moving axes costs anything,
    at a level that corrects for the number of cases."""
    values = {kind: np.array([cost.cost(kind) for cost in costs]) for kind in KINDS}
    level = 1 - (1 - costs[0].trials.level) / len(costs)
    shares = [crossing_share([cost] if cost.has_cost else [], level) for cost in costs]
    return values | {"difference": np.array([cost.difference() for cost in costs]), "share": np.array(shares)}


def label(case: ShuffleCase, cases: Sequence[ShuffleCase]) -> str:
    """The layer, or all."""
    return "all" if len(case.layers) == max(len(other.layers) for other in cases) else f"L{case.layers[0]}"


def shuffle_table(cases: Sequence[ShuffleCase], costs: Mapping[str, Floats], level: float) -> Table:
    meanings = {
        "within": "cost when axes stay in their head",
        "across": "cost when the same axes all move to another head",
        "difference": "across − within, document by document",
    }
    return table(
        cells("layer", "the layer whose axes change places, or all of them at once", [label(c, cases) for c in cases]),
        cells("where", "z: the heads' results before W_O; q: queries alone", [case.where for case in cases]),
        cells("moved", "axes of every head that change places", [case.moved for case in cases], "axes"),
        *(interval_cells(name, text, costs[name], "nats/token", level=level) for name, text in meanings.items()),
        interval_cells(
            "share",
            "(across − within)/across; empty where moving axes across heads costs nothing",
            costs["share"],
            level=1 - (1 - level) / len(cases),
        ),
    )


def share_line(where: str, place: str, cases: Sequence[ShuffleCase], costs: Mapping[str, Floats]) -> Quantity:
    rows = [i for i, case in enumerate(cases) if case.where == where]
    return line(
        f"share of the cost that is due to crossing heads, {place}",
        "by layer and by the number of axes moved in every head; missing where a shuffle costs nothing",
        "(across − within)/across",
        "layer and axes moved",
        [f"{label(cases[i], cases)}, {cases[i].moved}" for i in rows],
        costs["share"][rows],
        None,
        {
            f"the limit: {T.crossing_share}": np.full(len(rows), T.crossing_share),
            "no difference: 0": np.zeros(len(rows)),
        },
    )


def shuffle_line(where: str, place: str, cases: Sequence[ShuffleCase], costs: Mapping[str, Floats]) -> Quantity:
    most = max(case.moved for case in cases)
    rows = [i for i, case in enumerate(cases) if case.where == where and case.moved == most]
    return line(
        f"cost of shuffling axes across heads, {place}",
        "all axes of the layer, mean of the shuffles; for comparison, the same axes within their heads",
        "nats/token",
        "layer",
        [label(cases[i], cases) for i in rows],
        costs["across"][rows],
        {"within heads": costs["within"][rows, 0]},
        {"no change: 0": np.zeros(len(rows))},
    )
