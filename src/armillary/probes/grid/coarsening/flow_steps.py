"""Which step of a block lengthens the correlations of states, and do the steps of the stream shrink with depth?

Lengths across a norm are those of its input and of its output, lengths of vectors included: seen as directions alone,
a norm changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.probes.grid.coarsening.correlation_length import BATCH, floored, products_of
from armillary.probes.machinery import Floats, Ints, cells, interval_cells, line, table
from armillary.results import Quantity, Table

STEPS = ("norm", "attention", "feed-forward")


def bures(first: Tensor, second: Tensor) -> float:
    """The Bures distance of two covariances, each divided by its trace: 0 for equal ones, √2 for ones that share no
    direction.

    >>> one, two = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 3.0]))
    >>> round(bures(one, one), 6), round(bures(one, two), 6)
    (0.0, 1.414214)
    """
    roots = []
    for covariance in (first, second):
        values, vectors = torch.linalg.eigh(covariance.double() / covariance.double().trace().clamp_min(1e-300))
        roots.append((vectors * values.clamp_min(0).sqrt()) @ vectors.mT)
    return float((2 - 2 * torch.linalg.svdvals(roots[0] @ roots[1]).sum()).clamp_min(0).sqrt())


def depth_steps(states: Mapping[str, Tensor]) -> tuple[Floats, Floats]:
    """From each state to the next: the relative change |z' − z|/|z| over all tokens, and the Bures distance of the two
    covariances."""
    rows = [z.flatten(0, -2).double() for z in states.values()]
    moved, distance = [], []
    for before, after in pairwise(rows):
        moved.append(float((after - before).norm() / before.norm().clamp_min(1e-300)))
        distance.append(bures(before.mT @ before, after.mT @ after))
    return np.array(moved), np.array(distance)


@dataclass(frozen=True, eq=False)
class FlowSteps:
    """Products by distance before and after each step of some blocks; and how far successive states are apart."""

    kinds: tuple[str, ...]
    """Each step's kind, one of STEPS."""
    places: tuple[str, ...]
    products: Floats
    """[group, step, (before, after), distance]."""
    moved: Floats
    distance: Floats

    def factors(self, products: Floats) -> Floats:
        """[..., kind]: the geometric mean of the factors by which the length changes across steps of a kind."""
        lengths = floored(products)
        logs = np.log(lengths[..., 1] / lengths[..., 0])
        kinds = np.array(self.kinds)
        means = [logs[..., kinds == kind].mean(-1) if kind in self.kinds else logs[..., 0] * np.nan for kind in STEPS]
        return np.exp(np.stack(means, -1))

    def norms_lead(self, products: Floats) -> Floats:
        """The norms' factor over the mean factor of attention and feed-forward: above 1, norms lengthen more."""
        factors = self.factors(products)
        return np.asarray(factors[..., 0] / np.sqrt(factors[..., 1] * factors[..., 2]))

    def table(self, lengths: Floats) -> Table:
        """One row per step; `lengths` [step, (before, after), (value, low, high)]."""
        return table(
            cells("place", "where the step is", self.places),
            cells("step", "norm, attention or feed-forward", self.kinds),
            interval_cells("before", "correlation length of the step's input", lengths[:, 0], "tokens"),
            interval_cells("after", "correlation length after it", lengths[:, 1], "tokens"),
        )

    def depth_table(self, sites: Sequence[str]) -> Table:
        return table(
            cells("from", "state of the stream", sites[:-1]),
            cells("to", "the next state that was measured", sites[1:]),
            cells("moved", "|z' − z|/|z| over all tokens, position means removed", self.moved),
            cells("bures", "Bures distance of their covariances of trace 1: 0 equal, √2 none shared", self.distance),
        )

    def depth_line(self, states: Sequence[str]) -> Quantity:
        return line(
            "step of the stream's covariance",
            "Bures distance from the state before; at a fixed point it would be 0",
            "Bures distance",
            "state",
            states[1:],
            self.distance,
            {"|z' − z|/|z| of states": self.moved},
        )


def measure_steps(
    anatomy: Anatomy, ids: Ints, documents: Ints, groups: int, layers: Sequence[int], first: int
) -> tuple[tuple[str, ...], tuple[str, ...], Floats]:
    """Kinds, places and products of the steps of these blocks, from position `first` on."""
    kinds, places, products = [], [], []
    states = _centred(anatomy, ids, layers, first)
    for layer in layers:
        for kind, place, pair in _block_steps(anatomy, layer, states):
            kinds.append(kind)
            places.append(place)
            products.append(np.stack([products_of(state, documents, groups) for state in pair], 1))
    return tuple(kinds), tuple(places), np.stack(products, 1)


def _centred(anatomy: Anatomy, ids: Ints, layers: Sequence[int], first: int) -> dict[str, tuple[Tensor, Tensor]]:
    """site → input and output [text, t, d] of these blocks' norms and of their stream, minus the mean of all texts at
    the same position."""
    sites = [f"L{layer}.{part}" for layer in layers for part in ("resid_pre", "ln1", "ln2", "resid_post")]
    parts: dict[str, tuple[list[Tensor], list[Tensor]]] = {site: ([], []) for site in sites if site in anatomy.sites}

    def watcher(site: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            for rows, tensor in zip(parts[site], (value if given is None else given, value), strict=True):
                rows.append(tensor[:, first:].float().cpu())

        return watch

    # A clip may be longer than a batch: no part may be empty.
    for rows in np.array_split(ids, max(1, min(len(ids), round(ids.size / BATCH)))):
        with still(anatomy.model), watching(anatomy, {site: watcher(site) for site in parts}):
            run(anatomy, torch.as_tensor(rows))
    joined = {site: (torch.cat(given), torch.cat(value)) for site, (given, value) in parts.items()}
    return {site: (given - given.mean(0), value - value.mean(0)) for site, (given, value) in joined.items()}


def _block_steps(
    anatomy: Anatomy, layer: int, states: Mapping[str, tuple[Tensor, Tensor]]
) -> Iterator[tuple[str, str, tuple[Tensor, Tensor]]]:
    """Kind, place, and the states before and after each step of a block. Where attention and the feed-forward read the
    same stream, neither comes after the other, and only norms are steps."""
    first, second = (f"L{layer}.ln{number}" for number in (1, 2))
    for site in (first, second):
        if site in states:
            yield "norm", site, states[site]
    start, end = states[f"L{layer}.resid_pre"][1], states[f"L{layer}.resid_post"][1]
    if first not in states or second not in states or torch.equal(states[second][0], start):
        return
    if anatomy.order == "post":
        yield "attention", f"L{layer}", (start, states[first][0])
        yield "feed-forward", f"L{layer}", (states[first][1], states[second][0])
    else:
        yield "attention", f"L{layer}", (start, states[second][0])
        yield "feed-forward", f"L{layer}", (states[second][0], end)
