"""What does the loss pay for a change of length, and what for an equally large change of direction?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import NAN3, Floats, Interval, T, over_twins, spread_layers

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.edits import Edit
    from armillary.probes.machinery.bench import Bench, Trials

FACTORS = (0.5, 2.0)
"""By which the stream is scaled: displacements of half of its length and of its whole length, along itself."""
ANGLES = tuple(2 * math.asin(abs(factor - 1) / 2) for factor in FACTORS)
"""Turns whose chord is as long: 29° and 60°."""
TWINS = 5


@dataclass(frozen=True, eq=False)
class Displaced:
    """The trials on the model, and the larger turn alone on untrained twins."""

    layers: tuple[int, ...]
    inner: tuple[int, ...]
    """The layers without the last: what follows it is a norm, which removes every change of length."""
    trials: "Trials"
    untrained: "tuple[Trials, ...]"

    @property
    def middle(self) -> int:
        """The layer at which untrained twins are turned."""
        return self.inner[len(self.inner) // 2]

    def along(self, factor: float, layers: Sequence[int]) -> Interval:
        """Nats per token that a scaling costs, mean over layers."""
        return _mean_cost(self.trials, [scaling(layer, factor) for layer in layers])

    def across(self, factor: float, layers: Sequence[int]) -> Interval:
        """Nats per token that a turn costs which moves the stream as far."""
        return _mean_cost(self.trials, [turn(layer, factor) for layer in layers])

    def across_untrained(self) -> Interval:
        """The cost of the larger turn at random initialisation."""
        if not self.untrained:
            return NAN3
        costs = [trials.cost(turn(self.middle, FACTORS[-1])) for trials in self.untrained]
        value, low, high = over_twins(costs).tolist()
        return value, low, high

    def share(self, factors: Sequence[float], layers: Sequence[int]) -> Interval:
        """What scalings cost over what equally large turns do, mean over layers; withheld if turns cost too little."""
        turns = _rows(self.trials, [turn(layer, factor) for layer in layers for factor in factors])
        scalings = _rows(self.trials, [scaling(layer, factor) for layer in layers for factor in factors])
        if not turns or not all(self.across(factor, layers)[0] >= T.turning_cost for factor in factors):
            return NAN3

        def ratio(loss: Floats, count: Floats) -> Floats:
            turned = loss[:, turns].mean(1) - loss[:, 0]
            scaled = loss[:, scalings].mean(1) - loss[:, 0]
            return np.where(turned > 0, scaled / np.where(turned > 0, turned, 1), np.nan)

        return self.trials.interval(ratio)


def scaling(layer: int, factor: float) -> str:
    return f"L{layer} × {factor:g}"


def turn(layer: int, factor: float) -> str:
    return f"L{layer} turned as far as × {factor:g}"


def _rows(trials: "Trials", names: Sequence[str]) -> list[int]:
    return [1 + trials.names.index(name) for name in names]


def _mean_cost(trials: "Trials", names: Sequence[str]) -> Interval:
    rows = _rows(trials, names)
    return trials.interval(lambda loss, count: (loss[:, rows].mean(1) - loss[:, 0]) / np.maximum(count, 1e-300))


def passes(anatomy: "Anatomy") -> float:
    layers = len(spread_layers(anatomy))
    return 1 + layers * 2 * len(FACTORS) + 2 * TWINS


def displace(bench: "Bench") -> Displaced:
    """Every displacement on the evaluation text."""
    from armillary.edits import Scale, Turn

    layers = spread_layers(bench.anatomy)
    inner = tuple(layer for layer in layers if layer < bench.anatomy.layers - 1)
    trials: dict[str, tuple[Edit, ...]] = {}
    for layer in layers:
        for factor, angle in zip(FACTORS, ANGLES, strict=True):
            trials[scaling(layer, factor)] = (Scale(layer, factor),)
            trials[turn(layer, factor)] = (Turn(layer, angle, bench.seed),)
    result = Displaced(layers, inner, bench.compare(trials), ())
    if not inner:
        return result
    large = {turn(result.middle, FACTORS[-1]): trials[turn(result.middle, FACTORS[-1])]}
    return replace(result, untrained=tuple(bench.arm(twin).compare(large) for twin in bench.twins[:TWINS]))
