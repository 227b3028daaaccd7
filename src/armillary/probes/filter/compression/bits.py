"""How many bits does a layer's stream take before and after its activation, and under a random W_1?

Quantised streams are coded into real bitstreams (geometry/coding.py), document by document, with one table for all
units. Two steps after the activation answer two questions. The same absolute step on both sides measures what is lost
at one fixed precision; but GELU of a small number is half of it, and halving alone saves a bit. A step that is the same
share of each side's own root mean square does not depend on scale, which W_out could undo: it is the stricter one, and
the one that decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from armillary.geometry.clouds.spectrum import eigenvalues, entropy_rank
from armillary.geometry.coding import encode, quantise
from armillary.probes.filter.activations.hidden import hidden_layers
from armillary.probes.filter.compression.expert_bits import PartRows, documents_of, part_rows, stacked
from armillary.probes.machinery import MODEL, Floats, Ints
from armillary.probes.machinery.bench import Bench

# Steps as shares of the root mean square; the middle one decides.
STEPS = (0.5, 0.25, 0.125)
MIDDLE = 0.25
# Many values crowd where GELU is lowest, at −0.17; whether an edge of the grid happens to split them moves half a bit.
# A quarter of the units is coded on each of four shifted grids, so that no edge decides.
PHASES = (-0.375, -0.125, 0.125, 0.375)
# At most so many units of a layer are coded; and no bitstream is shorter than this, since its last state costs 32 bits.
UNITS, LENGTH = 1024, 1024


@dataclass(frozen=True, eq=False)
class CodedLayer:
    """One layer: coordinates coded [group], their bits by source and side, and the shapes of the stream.

    Sources: `model` (also `model 0.5` and so on, one per step), `turned` (random directions, each unit at its own mean
    and variance) and `unshifted` (the same, centred); in a twin's layer only `model`. Sides: `before` the activation,
    and after it at the `same` absolute step or at its `own`. The product of a gated layer is `product own`.
    """

    count: Floats
    tokens: int
    bits: dict[str, Floats] = field(default_factory=dict)
    """'source side' → [group]."""
    shapes: dict[str, float] = field(default_factory=dict)
    """'rank before', 'entropy_rank after', 'hoyer product' and so on."""

    def mean_bits(self, source: str, side: str) -> float:
        """Bits per coordinate; NaN for a source that was not coded."""
        bits = self.bits.get(f"{source} {side}")
        return float("nan") if bits is None else float(bits.sum() / self.count.sum())

    def saved(self, source: str, side: str = "own") -> float:
        """Bits per coordinate before the activation minus those after it."""
        return self.mean_bits(source, "before") - self.mean_bits(source, side)

    def shape(self, name: str, side: str) -> float:
        return self.shapes.get(f"{name} {side}", float("nan"))


@dataclass(frozen=True, eq=False)
class CodedLayers:
    """The model's coded layers, and those of its untrained twins."""

    layers: dict[int, CodedLayer]
    twins: dict[str, dict[int, CodedLayer]]
    """arm → layer → bits, in a few layers."""
    experts: dict[tuple[int, str], CodedLayer]
    """(layer, expert) → bits on the tokens that it gets; no sources if these are too few."""


def coded_layers(bench: Bench) -> CodedLayers:
    """The coded layers of the model, with their controls; none where no token was sampled."""
    hidden, groups = hidden_layers(bench), bench.corpus.groups
    parts = {
        i: part_rows(hidden.arms[MODEL][i], bench.anatomy.blocks[i].channels)
        for i in hidden.coded
        if len(hidden.arms[MODEL][i].groups)
    }
    layers = {i: _code(_enough(rows), groups, bench.seed + i) for i, rows in parts.items() if _enough(rows)}
    twins = {}
    for arm, numbers in hidden.coded_twins.items() if layers else ():
        blocks = bench.arm(arm).anatomy.blocks
        rows = {i: _enough(part_rows(hidden.arms[arm][i], blocks[i].channels)) for i in numbers}
        twins[arm] = {i: _code_twin(some, groups, bench.seed + i) for i, some in rows.items() if some}
    experts = {
        (i, name): _code_expert(rows, groups, bench.seed + i)
        for i, named in parts.items()
        for name, rows in named.items()
        if name
    }
    return CodedLayers(layers, {arm: each for arm, each in twins.items() if each}, experts)


def _enough(parts: Mapping[str, PartRows]) -> list[PartRows]:
    """The parts that are coded: a dense layer, or experts with enough tokens."""
    return [rows for name, rows in parts.items() if not name or rows.coded]


def _start(parts: list[PartRows], groups: int, seed: int) -> tuple[CodedLayer, list[Ints], np.random.Generator]:
    """An empty record, the units of every part that are coded (equally many), and the generator that drew them."""
    rng = np.random.default_rng(seed)
    number = min(UNITS, *(rows.pre.shape[1] for rows in parts))
    units = [np.sort(rng.choice(rows.pre.shape[1], number, replace=False)) for rows in parts]
    documents = documents_of(parts)
    counts = np.bincount(documents, minlength=groups).astype(np.float64)
    return CodedLayer(counts * number, len(documents)), units, rng


def _code_twin(parts: list[PartRows], groups: int, seed: int) -> CodedLayer:
    """An untrained layer: what its activation saves, at the step that decides."""
    coded, units, _ = _start(parts, groups, seed)
    _add(coded, "model", parts, [rows.pre[:, some] for rows, some in zip(parts, units, strict=True)], MIDDLE)
    return coded


def _code_expert(rows: PartRows, groups: int, seed: int) -> CodedLayer:
    """One expert: what its activation saves, and what random directions would."""
    coded, units, rng = _start([rows], groups, seed)
    if rows.coded:
        pre = rows.pre[:, units[0]]
        _add(coded, "model", [rows], [pre], MIDDLE)
        _add(coded, "turned", [rows], [random_orientation(rows.y, pre, rng)[0]], MIDDLE)
    return coded


def _code(parts: list[PartRows], groups: int, seed: int) -> CodedLayer:
    coded, units, rng = _start(parts, groups, seed)
    pre = [rows.pre[:, some] for rows, some in zip(parts, units, strict=True)]
    for share in STEPS:
        _add(coded, f"model {share:g}", parts, pre, share)
    coded.bits.update({f"model {side}": coded.bits[f"model {MIDDLE:g} {side}"] for side in ("before", "same", "own")})
    drawn = [random_orientation(rows.y, values, rng) for rows, values in zip(parts, pre, strict=True)]
    _add(coded, "turned", parts, [turned for turned, _ in drawn], MIDDLE)
    _add(coded, "unshifted", parts, [centred for _, centred in drawn], MIDDLE)
    if parts[0].ffn.W_gate is not None:
        product = stacked([rows.post[:, some] for rows, some in zip(parts, units, strict=True)])
        documents = documents_of(parts)
        coded.bits.update(document_bits({"product own": (product, MIDDLE * _rms(product))}, documents, groups))
    _add_shapes(coded, parts)
    return coded


def _add_shapes(coded: CodedLayer, parts: list[PartRows]) -> None:
    """Ranks and sparsity on either side. Experts have no covariance in common, so a mixture has sparsity alone."""
    streams = {"before": [rows.pre for rows in parts], "after": [rows.active(rows.pre) for rows in parts]}
    if parts[0].ffn.W_gate is not None:
        streams["product"] = [rows.post for rows in parts]
    for side, each in streams.items():
        if len(parts) == 1:
            coded.shapes[f"rank {side}"] = halves_rank(each[0], parts[0].document)
            coded.shapes[f"entropy_rank {side}"] = _entropy_rank(each[0])
        coded.shapes[f"hoyer {side}"] = float(np.concatenate([hoyer(values) for values in each]).mean())


def _add(coded: CodedLayer, source: str, parts: list[PartRows], values: list[Floats], share: float) -> None:
    """Bits before, after at the same step, and after at the same share of its own size; values [token, unit] of each
    part."""
    before, documents = stacked(values), documents_of(parts)
    after = stacked([rows.active(each) for rows, each in zip(parts, values, strict=True)])
    step = share * _rms(before)
    streams = {"before": (before, step), "same": (after, step), "own": (after, share * _rms(after))}
    named = {f"{source} {side}": stream for side, stream in streams.items()}
    coded.bits.update(document_bits(named, documents, len(coded.count)))


def _rms(values: Floats) -> float:
    """The root mean square; 1 of a stream of zeros, which any step codes as zeros."""
    return float(np.sqrt(np.square(values).mean())) or 1.0


def document_bits(streams: Mapping[str, tuple[Floats, float]], documents: Ints, groups: int) -> dict[str, Floats]:
    """Bits [group] of each document in each stream of values [token, unit] at its step, tables included.

    The grids share the units evenly. All streams are coded at once, which is faster.
    """
    rows: list[Ints] = []
    owner: list[tuple[int, int, int]] = []
    for stream, (values, step) in enumerate(streams.values()):
        for kind, phase in enumerate(PHASES):
            symbols = quantise(values[:, kind :: len(PHASES)], step, phase)
            for group in np.unique(documents):
                own = symbols[documents == group].ravel()
                parts = np.array_split(own, max(1, len(own) // LENGTH)) if len(own) else []
                rows += parts
                owner += [(stream, int(group), stream * len(PHASES) + kind)] * len(parts)
    # Fewer units than grids leave some grids without a row.
    kinds, kind_of = np.unique([kind for _, _, kind in owner], return_inverse=True)
    coded = encode(rows, kind_of.tolist())
    bits = np.zeros((len(streams), groups))
    np.add.at(bits, ([stream for stream, _, _ in owner], [group for _, group, _ in owner]), coded.bits)
    tables = np.bincount(kinds // len(PHASES), weights=[code.bits for code in coded.codes], minlength=len(streams))
    share = np.bincount(documents, minlength=groups) / len(documents)
    return dict(zip(streams, bits + tables[:, None] * share, strict=True))


def random_orientation(y: Floats, pre: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The pre-activations of a W_1 of random directions on the same input, every unit at the mean and variance it has
    in the model; and the same centred at zero, at that variance."""
    drawn = y @ rng.standard_normal((y.shape[1], pre.shape[1]))
    drawn = drawn - drawn.mean(0)
    spread = drawn.std(0)
    centred = drawn / np.where(spread > 0, spread, 1) * pre.std(0)
    return centred + pre.mean(0), centred


def halves_rank(values: Floats, documents: Ints) -> float:
    """tr C₀ · tr C₁ / tr C₀C₁ from two halves of the documents: a participation ratio without the bias of few tokens;
    NaN where nothing varies."""
    halves = [values[documents % 2 == half] for half in (0, 1)]
    if min(map(len, halves)) < 2:
        return float("nan")
    even, odd = (half - half.mean(0) for half in halves)
    shared = np.square(even @ odd.T).sum()
    return float(np.square(even).sum() * np.square(odd).sum() / shared) if shared > 0 else float("nan")


def _entropy_rank(values: Floats) -> float:
    centred = values - values.mean(0)
    if len(centred) < 2 or not np.square(centred).sum() > 0:
        return float("nan")
    return entropy_rank(eigenvalues(centred @ centred.T))


def hoyer(values: Floats) -> Floats:
    """0 for a vector whose entries are all of one size, 1 for a vector with a single entry, or none.

    >>> hoyer(np.array([[1.0, 1, 1, 1], [0, 2, 0, 0]]))
    array([0., 1.])
    """
    root = np.sqrt(values.shape[1])
    length = np.linalg.norm(values, axis=1)
    ratio = np.abs(values).sum(1) / np.where(length > 0, length, 1)
    return np.asarray((root - np.where(length > 0, ratio, 1)) / (root - 1))
