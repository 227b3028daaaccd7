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

from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch
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


def decode(bench: Bench) -> Decoded:
    layers = spread_layers(bench.anatomy, QUICK_LAYERS if bench.quick else LAYERS)
    sums, coordinates, tokens = _decoded(bench, layers)
    few = (bench.anatomy.layers // 2,)
    arms = bench.twins[: QUICK_TWINS if bench.quick else TWINS]
    return Decoded(layers, sums, coordinates, [_decoded(bench.arm(arm), few)[0] for arm in arms], tokens)


def _decoded(bench: Bench, layers: tuple[int, ...]) -> tuple[dict[str, Floats], Floats, int]:
    parts = [_read(bench, batch, layers) for batch in bench.batches()]
    columns = {name: torch.cat([part[0][name] for part in parts]).numpy() for name in parts[0][0]}
    anatomy = bench.anatomy
    assert anatomy.W_U is not None, "only models that predict a next token are decoded"
    targets = {
        NEXT: anatomy.W_U.detach().T[columns["following"]].double().cpu().numpy(),
        SAME: anatomy.W_E.detach()[columns["token"]].double().cpu().numpy(),
    }
    sums = {target: np.zeros((bench.corpus.groups, len(layers), len(SIDES), 2)) for target in targets}
    coordinates = np.zeros(len(layers))
    for row, layer in enumerate(layers):
        pre = torch.cat([part[1][layer] for part in parts])
        sides, coordinates[row] = equal_sides(pre)
        for side, values in enumerate(sides):
            kernel = (values @ values.T).double().cpu().numpy()
            for target, explained in decoded_sums(kernel, targets, columns["fold"]).items():
                np.add.at(sums[target][:, row, side], columns["group"], explained)
    return sums, coordinates, len(columns["fold"])


def _read(bench: Bench, batch: Batch, layers: tuple[int, ...]) -> tuple[dict[str, Tensor], dict[int, Tensor]]:
    """Of every token that has a next one, except first ones: columns [n], and the activation's input [n, m]."""
    anatomy, seen = bench.anatomy, dict[int, Tensor]()

    def watcher(layer: int) -> Watcher:
        return lambda given, value: seen.update({layer: value.detach()})

    with still(anatomy.model), watching(anatomy, {f"L{layer}.mlp_pre": watcher(layer) for layer in layers}):
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
    return columns, {i: x.reshape(-1, x.shape[-1])[flat.to(x.device)].float() for i, x in seen.items()}


def equal_sides(pre: Tensor) -> tuple[tuple[Tensor, Tensor], float]:
    """Kept and discarded values [n, m], equally many of each token on both sides: the largest; others are 0.

    Random ones among the discarded would lose by being other units in every token, whatever their values say.
    """
    below = pre < 0
    number = torch.minimum(below.sum(1), (~below).sum(1))[:, None]
    sides = []
    for mask in (~below, below):
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
        mine = fold == half
        if not mine.any() or mine.all():
            continue
        fit, across = _centred(kernel, ~mine, mine)
        scale = max(float(np.trace(fit)) / len(fit), 1e-300)
        inverses = [_inverse(fit + penalty * scale * np.eye(len(fit))) for penalty in PENALTIES]
        for name, rows in targets.items():
            mean = rows[~mine].mean(0)
            away = rows[mine] - mean
            missed = away - across @ _ridge(inverses, rows[~mine] - mean)
            whole = np.square(away).sum(1)
            sums[name][mine] = np.stack([whole, whole - np.square(missed).sum(1)], 1)
    return sums


def _centred(kernel: Floats, fit: Ints, other: Ints) -> tuple[Floats, Floats]:
    """Products of fitted rows, and of other rows with fitted ones, about the mean of the fitted rows."""
    inner, across = kernel[np.ix_(fit, fit)], kernel[np.ix_(other, fit)]
    column, whole = inner.mean(0), inner.mean()
    return inner - column[:, None] - column + whole, across - across.mean(1, keepdims=True) - column + whole


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _ridge(inverses: Sequence[Floats], rows: Floats) -> Floats:
    """Weights of the fitted tokens, with the penalty that predicts each of them best from the others."""
    weights = [inverse @ rows for inverse in inverses]
    # A token's error when it is left out, by the inverse's diagonal.
    errors = [np.square(w / inverse.diagonal()[:, None]).sum() for w, inverse in zip(weights, inverses, strict=True)]
    return weights[int(np.argmin(errors))]
