"""How long is the description of a layer's stream before and after its activation, and under a random W_1?

Quantised streams are coded into real bitstreams (geometry/coding.py), document by document, with one table for all units.
Two steps after the activation answer two questions. The same absolute step on both sides asks what is lost at one fixed
precision; but GELU of a small number is half of it, and halving alone saves a bit. A step that is the same share of each
side's own root mean square does not see scale, which W_out could undo: it is the stricter, and the one that decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from armillary.anatomy.anatomy import FeedForward
from armillary.geometry.coding import encode, quantise
from armillary.geometry.spectrum import eigenvalues, entropy_rank
from armillary.probes.filter.hidden import Layer, streams
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import MODEL, RANDOM, Floats, Ints

# Steps as shares of the root mean square; the middle one decides.
STEPS = (0.5, 0.25, 0.125)
MIDDLE = 0.25
# Many values crowd where GELU is lowest, at −0.17; whether an edge of the grid happens to split them moves half a bit. A
# quarter of the units is coded on each of four shifted grids, so that no edge decides.
PHASES = (-0.375, -0.125, 0.125, 0.375)
# So many units of a layer are coded at most; and a bitstream no shorter than this, whose last state costs 32 bits.
UNITS, LENGTH = 1024, 1024


@dataclass(frozen=True, eq=False)
class Described:
    """One layer: bits by name [group], coordinates coded [group], and shapes of the stream."""

    count: Floats
    bits: dict[str, Floats] = field(default_factory=dict)
    rank: dict[str, float] = field(default_factory=dict)
    """Participation ratio of the covariance, from two halves of the documents; NaN where nothing spreads."""
    entropy_rank: dict[str, float] = field(default_factory=dict)
    hoyer: dict[str, float] = field(default_factory=dict)
    tokens: int = 0


def described(bench: Bench) -> dict[int, Described]:
    """The coded layers of the model, with its controls; none where no token was kept."""
    found = streams(bench)
    blocks = bench.anatomy.blocks
    twin = found.arms.get(RANDOM)
    return {
        i: _describe(found.arms[MODEL][i], None if twin is None else twin[i], blocks[i].feed_forward, bench.seed + i)
        for i in found.coded
        if len(found.arms[MODEL][i].sampled)
    }


def _describe(layer: Layer, twin: Layer | None, ffn: FeedForward, seed: int) -> Described:
    rng = np.random.default_rng(seed)
    pre, documents = layer.sample("pre"), layer.sampled
    units = np.sort(rng.choice(pre.shape[1], min(UNITS, pre.shape[1]), replace=False))
    groups = len(layer.sums)
    made = Described(np.bincount(documents, minlength=groups).astype(np.float64) * len(units), tokens=len(pre))
    after = _activated(ffn, pre)
    for share in STEPS:
        _add(made, f"model {share:g}", pre[:, units], after[:, units], documents, share)
    turned, centred = random_orientation(layer.sample("y"), pre[:, units], rng)
    _add(made, "turned", turned, _activated(ffn, turned), documents, MIDDLE)
    _add(made, "unshifted", centred, _activated(ffn, centred), documents, MIDDLE)
    if twin is not None:
        other = twin.sample("pre")[:, units]
        _add(made, "untrained", other, _activated(ffn, other), documents, MIDDLE)
    shapes = {"before": pre, "after": after}
    if ffn.W_gate is not None:
        product = layer.sample("post")
        step = MIDDLE * _rms(product[:, units])
        made.bits.update(document_bits({"product": (product[:, units], step)}, documents, groups))
        shapes["product"] = product
    for name, values in shapes.items():
        made.rank[name] = halves_rank(values, documents)
        made.entropy_rank[name] = _entropy_rank(values)
        made.hoyer[name] = float(hoyer(values).mean())
    return made


def _activated(ffn: FeedForward, pre: Floats) -> Floats:
    return ffn.activation(torch.from_numpy(pre)).numpy()


def _add(made: Described, name: str, before: Floats, after: Floats, documents: Ints, share: float) -> None:
    """Bits before, after at the same step, and after at the same share of its own size."""
    step = share * _rms(before)
    coded = {"before": (before, step), "same": (after, step), "own": (after, share * _rms(after))}
    bits = document_bits(coded, documents, len(made.count))
    made.bits.update({f"{name} {side}": values for side, values in bits.items()})


def _rms(values: Floats) -> float:
    """1 of a stream of nothing, which any step codes as nothing."""
    return float(np.sqrt(np.square(values).mean())) or 1.0


def document_bits(coded: Mapping[str, tuple[Floats, float]], documents: Ints, groups: int) -> dict[str, Floats]:
    """Bits [group] of each document in each stream of values [token, unit] at its step, tables included.

    Every unit is on one of the grids, which share the units evenly. All streams are coded at once, which is faster.
    """
    rows: list[Ints] = []
    owner: list[tuple[int, int, int]] = []
    for stream, (values, step) in enumerate(coded.values()):
        for kind, phase in enumerate(PHASES):
            symbols = quantise(values[:, kind :: len(PHASES)], step, phase)
            for group in np.unique(documents):
                mine = symbols[documents == group].ravel()
                parts = np.array_split(mine, max(1, len(mine) // LENGTH)) if len(mine) else []
                rows += parts
                owner += [(stream, int(group), stream * len(PHASES) + kind)] * len(parts)
    # Fewer units than grids leave some without a row.
    kinds, kind_of = np.unique([kind for _, _, kind in owner], return_inverse=True)
    made = encode(rows, kind_of.tolist())
    bits = np.zeros((len(coded), groups))
    np.add.at(bits, ([stream for stream, _, _ in owner], [group for _, group, _ in owner]), made.bits)
    tables = np.bincount(kinds // len(PHASES), weights=[code.bits for code in made.codes], minlength=len(coded))
    share = np.bincount(documents, minlength=groups) / len(documents)
    return dict(zip(coded, bits + tables[:, None] * share, strict=True))


def random_orientation(y: Floats, pre: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """What random directions W_1 would make of the same input, every unit at the mean and variance it has in the model;
    and the same centred at zero, at that variance."""
    drawn = y @ rng.standard_normal((y.shape[1], pre.shape[1]))
    drawn = drawn - drawn.mean(0)
    spread = drawn.std(0)
    centred = drawn / np.where(spread > 0, spread, 1) * pre.std(0)
    return centred + pre.mean(0), centred


def halves_rank(values: Floats, documents: Ints) -> float:
    """tr C₀ · tr C₁ / tr C₀C₁ from two halves of the documents: a participation ratio that few tokens do not bias."""
    halves = [values[documents % 2 == half] for half in (0, 1)]
    if min(map(len, halves)) < 2:
        return float("nan")
    one, two = (half - half.mean(0) for half in halves)
    shared = np.square(one @ two.T).sum()
    return float(np.square(one).sum() * np.square(two).sum() / shared) if shared > 0 else float("nan")


def _entropy_rank(values: Floats) -> float:
    centred = values - values.mean(0)
    if len(centred) < 2 or not np.square(centred).sum() > 0:
        return float("nan")
    return entropy_rank(eigenvalues(centred @ centred.T).values)


def hoyer(values: Floats) -> Floats:
    """0 of a vector whose entries are all as large, 1 of one with a single entry, or none.

    >>> hoyer(np.array([[1.0, 1, 1, 1], [0, 2, 0, 0]]))
    array([0., 1.])
    """
    root = np.sqrt(values.shape[1])
    length = np.linalg.norm(values, axis=1)
    ratio = np.abs(values).sum(1) / np.where(length > 0, length, 1)
    return np.asarray((root - np.where(length > 0, ratio, 1)) / (root - 1))
