"""How much of the next token, and of the token itself, can be read linearly from kept and from discarded values?

A ridge regression predicts the token's embedding from the values before the activation: those above zero, or as many of
the most negative ones. Each half of the documents is predicted by a fit on the other half. The penalty is chosen within
the fitted half, by leaving out one token at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Routed
from armillary.anatomy.folded import mlp_norm
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch
from armillary.probes.filter.activations.mixtures import expand
from armillary.probes.filter.expert_parts import FEWEST, columns_of
from armillary.probes.machinery import Floats, Ints, spread_layers
from armillary.probes.machinery.bench import Bench

NEXT, SAME = "next token", "token itself"
SIDES = ("kept", "discarded")
LAYERS, QUICK_LAYERS = 3, 2
TWINS, QUICK_TWINS = 5, 2
# Shares of the mean squared length of a row of values.
PENALTIES = (0.1, 3.0, 100.0)


@dataclass(frozen=True, eq=False)
class Decoded:
    """Sums of squares of the tokens' embeddings: all of them, and what is explained of them."""

    layers: tuple[int, ...]
    sums: Mapping[str, Floats]
    """target → [group, layer, (kept, discarded), (all, explained)]."""
    coordinates: Floats
    """[layer]: how many coordinates of a token each side has, on average."""
    twins: Sequence[Mapping[str, Floats]]
    """The same sums for each untrained twin, in the middle layer."""
    tokens: int
    experts: Mapping[tuple[int, str], tuple[int, Floats | None]]
    """(layer, expert) → tokens that it gets, and sums [group, (kept, discarded), (all, explained)] of the next token;
    None if these are too few."""


@dataclass(frozen=True, eq=False)
class DecodedValues:
    """What one arm's layers hold of the tokens."""

    sums: dict[str, Floats]
    coordinates: Floats
    tokens: int
    experts: dict[tuple[int, str], tuple[int, Floats | None]]


def decode(bench: Bench) -> Decoded:
    layers = spread_layers(bench.anatomy, QUICK_LAYERS if bench.quick else LAYERS)
    model = _decoded(bench, layers)
    few = (bench.anatomy.layers // 2,)
    arms = bench.twins[: QUICK_TWINS if bench.quick else TWINS]
    twins = [_decoded(bench.arm(arm), few).sums for arm in arms]
    return Decoded(layers, model.sums, model.coordinates, twins, model.tokens, model.experts)


def _decoded(bench: Bench, layers: tuple[int, ...]) -> DecodedValues:
    parts = [_read(bench, batch, layers) for batch in bench.batches()]
    columns = {name: torch.cat([part[0][name] for part in parts]).numpy() for name in parts[0][0]}
    anatomy = bench.anatomy
    assert anatomy.W_U is not None, "only models that predict a next token are decoded"
    targets = {
        NEXT: anatomy.W_U.detach().T[columns["following"]].double().cpu().numpy(),
        SAME: anatomy.W_E.detach()[columns["token"]].double().cpu().numpy(),
    }
    sums = {target: np.zeros((bench.corpus.groups, len(layers), len(SIDES), 2)) for target in targets}
    coordinates, experts = np.zeros(len(layers)), dict[tuple[int, str], tuple[int, Floats | None]]()
    for row, layer in enumerate(layers):
        pre, present = (torch.cat([part[1][layer][side] for part in parts]) for side in (0, 1))
        sides, coordinates[row] = equal_sides(pre, present)
        for side, explained in enumerate(_explained(sides, targets, columns["fold"])):
            for target, rows in explained.items():
                np.add.at(sums[target][:, row, side], columns["group"], rows)
        mixture = anatomy.blocks[layer].channels
        for name, units in columns_of(mixture).items() if isinstance(mixture, Routed) else ():
            own = {NEXT: targets[NEXT]}
            experts[layer, name] = _expert(pre[:, units], present[:, units], own, columns, bench.corpus.groups)
    return DecodedValues(sums, coordinates, len(columns["fold"]), experts)


def _explained(sides: Sequence[Tensor], targets: Mapping[str, Floats], fold: Ints) -> list[dict[str, Floats]]:
    kernels = ((values @ values.T).double().cpu().numpy() for values in sides)
    return [decoded_sums(kernel, targets, fold) for kernel in kernels]


def _expert(
    pre: Tensor, present: Tensor, targets: Mapping[str, Floats], columns: Mapping[str, Ints], groups: int
) -> tuple[int, Floats | None]:
    """Of one expert, on the tokens that it gets: how many, and the sums of the next token."""
    real = present[:, 0].cpu().numpy()
    fold, group = columns["fold"][real], columns["group"][real]
    if min((fold == half).sum() for half in (0, 1)) < FEWEST:
        return int(real.sum()), None
    sides, _ = equal_sides(pre[present[:, 0]])
    sums = np.zeros((groups, len(SIDES), 2))
    for side, explained in enumerate(_explained(sides, {NEXT: targets[NEXT][real]}, fold)):
        np.add.at(sums[:, side], group, explained[NEXT])
    return int(real.sum()), sums


Pair = tuple[Tensor, Tensor]


def _read(bench: Bench, batch: Batch, layers: tuple[int, ...]) -> tuple[dict[str, Tensor], dict[int, Pair]]:
    """Of every token that has a next one, except first ones: columns [n]; the activation's input [n, m], and which of
    these coordinates a token has."""
    anatomy, seen = bench.anatomy, dict[int, Tensor]()

    def watcher(layer: int) -> Watcher:
        return lambda given, value: seen.update({layer: value.detach()})

    mixtures = {layer: anatomy.blocks[layer].channels for layer in layers}
    sites = {
        mlp_norm(anatomy, layer)[0] if isinstance(mixture, Routed) else f"L{layer}.mlp_pre": watcher(layer)
        for layer, mixture in mixtures.items()
    }
    with still(anatomy.model), watching(anatomy, sites):
        run(anatomy, batch.ids, batch.mask)
    bench.tick(batch.tokens)
    rows = batch.following >= 0
    rows[:, 0] = False
    columns = {
        "token": batch.ids[rows],
        "following": batch.following[rows],
        "group": bench.groups(batch)[:, None].expand(rows.shape)[rows],
        "fold": torch.full((int(rows.sum()),), batch.fold),
    }
    flat = rows.flatten()
    values = {i: x.reshape(-1, x.shape[-1])[flat.to(x.device)].float() for i, x in seen.items()}
    return columns, {i: _coordinates(mixtures[i], x) for i, x in values.items()}


def _coordinates(channels: object, x: Tensor) -> Pair:
    """From what a mixture reads, or from what a dense layer's activation receives."""
    if not isinstance(channels, Routed):
        return x, torch.ones_like(x, dtype=torch.bool)
    units = expand(channels, x)
    return units.pre, units.present


def equal_sides(pre: Tensor, present: Tensor | None = None) -> tuple[Pair, float]:
    """Kept and discarded values [n, m], equally many of each token on both sides: the largest; others are 0.

    Random ones among the discarded would lose by being other units in every token, whatever their values say.
    """
    below, above = pre < 0, pre >= 0
    if present is not None:
        below, above = below & present, above & present
    number = torch.minimum(below.sum(1), above.sum(1))[:, None]
    sides = []
    for mask in (above, below):
        size = torch.where(mask, pre.abs(), -1)
        order = torch.argsort(size, dim=1, descending=True, stable=True)
        rank = torch.empty_like(order)
        rank.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
        sides.append(torch.where(mask & (rank < number), pre, 0))
    return (sides[0], sides[1]), float(number.double().mean())


def decoded_sums(kernel: Floats, targets: Mapping[str, Floats], fold: Ints) -> dict[str, Floats]:
    """target → [n, (all, explained)]: squares of its rows about the mean of the half that was fitted."""
    sums = {name: np.zeros((len(rows), 2)) for name, rows in targets.items()}
    for half in (0, 1):
        held_out = fold == half
        if not held_out.any() or held_out.all():
            continue
        fit, across = _centred(kernel, ~held_out, held_out)
        scale = float(np.trace(fit)) / len(fit)
        # The same values for every token, but for rounding: they say nothing, and have no inverse.
        constant = not scale > 1e-12 * float(np.trace(kernel)) / len(kernel)
        inverses = [] if constant else [_inverse(fit + penalty * scale * np.eye(len(fit))) for penalty in PENALTIES]
        for name, rows in targets.items():
            mean = rows[~held_out].mean(0)
            away = rows[held_out] - mean
            missed = away if constant else away - across @ _ridge(inverses, rows[~held_out] - mean)
            whole = np.square(away).sum(1)
            sums[name][held_out] = np.stack([whole, whole - np.square(missed).sum(1)], 1)
    return sums


def _centred(kernel: Floats, fit: Ints, other: Ints) -> tuple[Floats, Floats]:
    """Products of fitted rows, and of other rows with fitted ones, about the mean of the fitted rows."""
    inner, across = kernel[np.ix_(fit, fit)], kernel[np.ix_(other, fit)]
    column, whole = inner.mean(0), inner.mean()
    return inner - column[:, None] - column + whole, across - across.mean(1, keepdims=True) - column + whole


def _inverse(matrix: Floats) -> Floats:
    """Of a symmetric positive definite matrix, by its Cholesky factor: half the work of a general inverse."""
    factor = torch.linalg.cholesky_ex(torch.from_numpy(matrix)).L
    return np.asarray(torch.cholesky_inverse(factor).numpy(), dtype=np.float64)


def _ridge(inverses: Sequence[Floats], rows: Floats) -> Floats:
    """Weights of the fitted tokens, with the penalty that predicts each of them best from the others."""
    weights = [inverse @ rows for inverse in inverses]
    # A token's error when it is left out, by the inverse's diagonal.
    errors = [np.square(w / inverse.diagonal()[:, None]).sum() for w, inverse in zip(weights, inverses, strict=True)]
    return weights[int(np.argmin(errors))]
