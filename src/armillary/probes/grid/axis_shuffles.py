"""What does it cost when axes change places within their heads, or across heads?

One shuffle costs more or less by chance (a second one up to a quarter more or less). Every document gets its own
shuffle, so that the interval over documents is one over shuffles too, and a pass tries as many as it reads documents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit, Shuffle, across, within
from armillary.edits.edit import changing, changing_heads
from armillary.probes.machinery import Floats, Interval, cells, interval_cells, line, spread_layers, table
from armillary.probes.machinery.bench import Trials
from armillary.results import Quantity, Table

Where = Literal["z", "q"]
SITES: tuple[Where, ...] = ("z", "q")
KINDS = {"within": within, "across": across}
SHUFFLES = 2
ALIKE = "q and k alike"


@dataclass(frozen=True, eq=False)
class DocumentShuffle:
    """Let axis i of layer `layer` carry what axis `order(n)[i]` carried, in the n-th document that passes: in `z` (the
    heads' results, before W_O) or in `q`."""

    layer: int
    order: Callable[[int], tuple[int, ...]]
    where: Where = "z"
    passed: list[int] = field(default_factory=lambda: [0])
    """How many documents have passed since it was created."""
    example: ClassVar[str] = 'DocumentShuffle(layer=3, order=lambda n: across(heads=4, k=64, seed=n), where="z")'

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
        orders = torch.tensor([self.order(first + i) for i in range(len(rows))], device=rows.device)
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
    """Single layers with all axes moved, then all layers with all axes and with a quarter; none for a single head."""
    if anatomy.n_heads < 2 or anatomy.k < 2:
        return []
    layers = spread_layers(anatomy)
    whole = tuple(range(anatomy.layers))
    places: list[tuple[tuple[int, ...], int]] = [((layer,), anatomy.k) for layer in layers] if len(layers) > 1 else []
    places += [(whole, anatomy.k)] + [(whole, max(2, anatomy.k // 4))] * (anatomy.k > 2)
    return [ShuffleCase(where, chosen, moved) for where in SITES for chosen, moved in places]


def shuffle_trials(anatomy: Anatomy) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Every case, within heads and across, and the control that changes no score."""
    for case in shuffle_cases(anatomy):
        for kind, shuffle in product(KINDS, range(SHUFFLES)):
            yield case.trial(kind, shuffle), tuple(_edit(anatomy, case, at, kind, shuffle) for at in case.layers)
    orders = (within(anatomy.n_kv_heads, anatomy.k, 7 + at) for at in range(anatomy.layers))
    yield ALIKE, tuple(Shuffle(at, order, "qk") for at, order in enumerate(orders))


def _edit(anatomy: Anatomy, case: ShuffleCase, layer: int, kind: str, shuffle: int) -> Edit:
    # The same seeds for both kinds: the same axes move, in every document.
    first = 1_000_000 * shuffle + layer
    order = KINDS[kind]
    return DocumentShuffle(layer, lambda n: order(anatomy.n_heads, anatomy.k, 1000 * n + first, case.moved), case.where)


@dataclass(frozen=True)
class ShuffleCosts:
    """The costs of some cases together, from the trials of all."""

    trials: Trials
    cases: Sequence[ShuffleCase]

    def cost(self, kind: str) -> Interval:
        """Mean nats per token of a kind of shuffle."""
        rows = self._rows(kind)
        return self.trials.interval(lambda loss, count: _above(loss, rows) / np.maximum(count, 1e-300))

    def difference(self) -> Interval:
        """across − within, in nats per token."""
        inside, outside = self._rows("within"), self._rows("across")
        return self.trials.interval(
            lambda loss, count: (_above(loss, outside) - _above(loss, inside)) / np.maximum(count, 1e-300)
        )

    def crossing_share(self) -> Interval:
        """(across − within)/across of the summed costs."""
        return self._share(self._rows("within"), self._rows("across"))

    def placebo_share(self) -> Interval:
        """The same with a second shuffle within heads in place of the one across."""
        return self._share(self._rows("within", [0]), self._rows("within", [1]))

    def _share(self, inside: list[int], outside: list[int]) -> Interval:
        def share(loss: Floats, count: Floats) -> Floats:
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.asarray((_above(loss, outside) - _above(loss, inside)) / _above(loss, outside))

        return self.trials.interval(share)

    def _rows(self, kind: str, shuffles: Sequence[int] = range(SHUFFLES)) -> list[int]:
        return [1 + self.trials.names.index(case.trial(kind, n)) for case in self.cases for n in shuffles]


def _above(loss: Floats, rows: list[int]) -> Floats:
    """The mean loss of these trials above that of the unedited model."""
    return np.asarray(loss[:, rows].mean(1) - loss[:, 0])


def case_costs(trials: Trials, cases: Sequence[ShuffleCase]) -> dict[str, Floats]:
    """within, across, difference → [case, (value, low, high)]."""
    each = [ShuffleCosts(trials, [case]) for case in cases]
    costs = {kind: np.array([cost.cost(kind) for cost in each]) for kind in KINDS}
    return costs | {"difference": np.array([cost.difference() for cost in each])}


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
    )


def shuffle_line(where: str, place: str, cases: Sequence[ShuffleCase], costs: Mapping[str, Floats]) -> Quantity:
    most = max(case.moved for case in cases)
    rows = [i for i, case in enumerate(cases) if case.where == where and case.moved == most]
    return line(
        f"cost of shuffling axes across heads, {place}",
        "all axes of the layer, mean of the shuffles; beside it the same axes within their heads",
        "nats/token",
        "layer",
        [label(cases[i], cases) for i in rows],
        costs["across"][rows],
        {"within heads": costs["within"][rows, 0]},
        {"no change: 0": np.zeros(len(rows))},
    )
