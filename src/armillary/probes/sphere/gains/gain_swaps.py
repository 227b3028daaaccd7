"""What does it cost when two layers exchange their gains and shifts, near to each other or far apart?"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import Edit, changing
from armillary.errors import ModelError
from armillary.probes.machinery import Floats, Interval, T
from armillary.probes.machinery.bench import LOOKS, Bench, Trials
from armillary.results import Verdict, Why

NEIGHBOURS = 3


@dataclass(frozen=True, eq=False)
class Regain:
    """Let the norm at `site` use this gain and shift in place of its own."""

    site: str
    gain: Tensor
    shift: Tensor | None
    example: ClassVar[str] = 'Regain("L3.ln1", gain=torch.ones(256), shift=None)'

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        norm = replace(anatomy.norms[self.site], gain=self.gain, shift=self.shift)

        def change(y: Tensor, x: Tensor | None) -> Tensor:
            if x is None:
                raise ModelError(f"the norm at {self.site} received no tensor, so it cannot be given another gain.")
            return norm(x).to(y.dtype)

        return changing(anatomy, self.site, change)


@dataclass(frozen=True)
class LayerPair:
    """Two layers, whose norms of the same name change places."""

    first: int
    second: int

    @property
    def distance(self) -> int:
        return self.second - self.first

    @property
    def name(self) -> str:
        return f"L{self.first} and L{self.second}"


def pairs_of(anatomy: Anatomy) -> tuple[list[LayerPair], list[LayerPair]]:
    """Neighbouring layers, spread over the depth; and pairs two, half the depth and the whole depth apart."""
    last = anatomy.layers - 1
    if last < 1:
        return [], []
    starts = sorted({round(i * (last - 1) / (NEIGHBOURS - 1)) for i in range(NEIGHBOURS)})
    far = sorted({distance for distance in (2, (last + 1) // 2, last) if 1 < distance <= last})
    middle = [(last - distance) // 2 for distance in far]
    return [LayerPair(i, i + 1) for i in starts], [LayerPair(i, i + n) for i, n in zip(middle, far, strict=True)]


def norms_of(anatomy: Anatomy, layer: int) -> dict[str, str]:
    """A norm's name within its block → its site."""
    start = f"L{layer}."
    return {site.removeprefix(start): site for site in anatomy.norms if site.startswith(start)}


def swapped(anatomy: Anatomy, pair: LayerPair) -> tuple[Edit, ...]:
    edits = []
    for here, there in ((pair.first, pair.second), (pair.second, pair.first)):
        others = norms_of(anatomy, there)
        for name, site in norms_of(anatomy, here).items():
            norm = anatomy.norms[others[name]]
            edits.append(Regain(site, norm.gain, norm.shift))
    return tuple(edits)


def permuted(anatomy: Anatomy, pair: LayerPair, seed: int) -> tuple[Edit, ...]:
    """Both layers keep their own gains and shifts, in a random order of axes."""
    edits = []
    draw = torch.Generator().manual_seed(1000 * seed + pair.first)
    for layer in (pair.first, pair.second):
        for site in norms_of(anatomy, layer).values():
            norm = anatomy.norms[site]
            order = torch.randperm(norm.d, generator=draw).to(norm.gain.device)
            edits.append(Regain(site, norm.gain[order], None if norm.shift is None else norm.shift[order]))
    return tuple(edits)


@dataclass(frozen=True, eq=False)
class Swaps:
    """Costs of all trials; intervals of single pairs are corrected for the number of neighbours."""

    trials: Trials
    neighbours: Sequence[LayerPair]
    far: Sequence[LayerPair]
    beyond: Trials
    """Of the pairs further apart."""

    @property
    def strict(self) -> Trials:
        return replace(self.trials, level=1 - (1 - self.trials.level) / max(1, len(self.neighbours)))

    def cost(self, pair: LayerPair) -> Interval:
        trials = self.strict if pair in self.neighbours else self.beyond
        return trials.cost(f"swap {pair.name}")

    def permuted(self, pair: LayerPair) -> Interval:
        return self.strict.cost(f"permute {pair.name}")

    def idle(self, pair: LayerPair) -> bool:
        """Does neither an exchange nor a permutation cost anything? Then the pair says nothing."""
        _, low, high = self._beside(pair)
        return low <= 0 <= high and max(self.cost(pair)[2], self.permuted(pair)[2]) < T.shared_cost

    def shared(self, pair: LayerPair) -> bool | None:
        """Does the exchange cost next to nothing, and less than the permutation? None where intervals do not say."""
        cost, (_, low, high) = self.cost(pair), self._beside(pair)
        if cost[2] < T.shared_cost and high < 0:
            return True
        return False if cost[1] > T.shared_cost or low > 0 else None

    def worse(self, pair: LayerPair) -> bool | None:
        """Does the exchange cost more than the permutation, and more than next to nothing?"""
        cost, (_, low, high) = self.cost(pair), self._beside(pair)
        if high < 0 or cost[2] < T.shared_cost:
            return False
        return True if low > 0 else None

    def _beside(self, pair: LayerPair) -> Interval:
        return self.strict.beside(f"swap {pair.name}", f"permute {pair.name}")

    def verdict(self) -> tuple[Verdict, Why | None]:
        """From the pairs of neighbours at which gains matter."""
        if self.trials.documents < T.documents_least:
            return "undecided", Why.NO_INTERVAL
        pairs = [pair for pair in self.neighbours if not self.idle(pair)]
        if not pairs:
            return "undecided", Why.UNDEFINED
        shared, worse = [self.shared(pair) for pair in pairs], [self.worse(pair) for pair in pairs]
        if all(shared):
            return "supported", None
        if all(worse):
            return "refuted", None
        return ("qualified", None) if False in shared and False in worse else ("undecided", Why.SPANS_LIMIT)

    def median(self, kind: str) -> Interval:
        """'swap' or 'permute': nats per token at the median pair of neighbours."""
        rows = [1 + self.trials.names.index(f"{kind} {pair.name}") for pair in self.neighbours]

        def cost(loss: Floats, count: Floats) -> Floats:
            costs = (loss[:, rows] - loss[:, :1]) / np.maximum(count, 1e-300)[:, None]
            return np.asarray(np.median(costs, axis=1))

        return self.trials.interval(cost)


def passes(anatomy: Anatomy) -> float:
    near, far = pairs_of(anatomy)
    return 1 + 2 * len(near) + len(far) / LOOKS


def swap_gains(bench: Bench) -> Swaps:
    """Read no more documents than the verdict needs; of pairs further apart, which decide nothing, the first part."""
    anatomy = bench.anatomy
    near, far = pairs_of(anatomy)
    trials = {f"swap {pair.name}": swapped(anatomy, pair) for pair in near}
    trials |= {f"permute {pair.name}": permuted(anatomy, pair, bench.seed) for pair in near}
    result = bench.compare(trials, lambda trials: Swaps(trials, near, (), trials).verdict()[0] != "undecided")
    beyond = bench.compare({f"swap {pair.name}": swapped(anatomy, pair) for pair in far}, lambda trials: True)
    return Swaps(result, near, far, beyond)
