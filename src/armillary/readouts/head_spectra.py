"""Singular values of a head's folded W_QK and W_VO, as tables and figures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import Folded, fold
from armillary.geometry.factored import SVD, Factored, n99, participation
from armillary.readouts.settings import SHOWN, Matrix
from armillary.results import Column, Quantity, Table
from armillary.results.table import Cell

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
# Weights of 16 or 8 bits determine a matrix to about 1e-3 of σ1, and an error E rotates a singular vector by |E|/gap.
# At a smaller gap than this, in units of σ1, that is a fifth of a radian or more, and only the span of the vectors is
# meaningful.
TIE = 0.005

SPECTRA = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("matrix", "W_QK (score of two directions) or W_VO (write of one)"),
    Column("sigma_1", "largest singular value of the folded matrix"),
    Column("participation", "(Σσ²)²/Σσ⁴: the number of equal singular values with the same spread"),
    Column("n99", "singular values that hold 99 % of Σσ"),
    Column("of", "number of singular values: the width of the head"),
)
VALUES = (
    *SPECTRA[:3],
    Column("index", "1 is the largest"),
    Column("sigma", "singular value"),
    Column("cumulative", "share of Σσ up to here"),
    Column("tie", "indices whose singular values nearly tie with it: only their span is meaningful"),
)


@dataclass(frozen=True, eq=False)
class Decomposed:
    """One matrix of all heads of one layer, decomposed."""

    layer: int
    matrix: Matrix
    svd: SVD

    @property
    def values(self) -> Floats:
        """Singular values [h, k], on the CPU."""
        return np.asarray(self.svd.values.double().cpu().numpy())


def folded_at(anatomy: Anatomy, layer: int, offset: int, dtype: torch.dtype = torch.float64) -> Folded:
    """A layer's folded heads at one offset: `turn(0)` is R(Δ).

    A table of all rotations up to Δ would take gigabytes in a long context.
    """
    folded = fold(anatomy, layer, 1, dtype)
    rotary = folded.attention.rotary
    if not offset or rotary is None:
        return folded
    rotation = rotary.matrices(torch.tensor([0, abs(offset)], device=anatomy.device), anatomy.k, dtype)[1]
    return replace(folded, rotary=(rotation if offset > 0 else rotation.mT)[None])


def matrices_of(anatomy: Anatomy, layer: int, matrices: Sequence[Matrix], offset: int = 0) -> list[Factored]:
    folded = folded_at(anatomy, layer, offset)
    return [folded.qk() if m == "qk" else folded.vo() for m in matrices]


def decompose(anatomy: Anatomy, layer: int, matrices: Sequence[Matrix], offset: int = 0) -> list[Decomposed]:
    factored = matrices_of(anatomy, layer, matrices, offset)
    return [Decomposed(layer, matrix, product.svd()) for matrix, product in zip(matrices, factored, strict=True)]


def cumulative(values: Floats) -> Floats:
    """Shares of the sum up to each value; zeros for a zero matrix.

    >>> cumulative(np.array([3.0, 1.0]))
    array([0.75, 1.  ])
    """
    total = values.sum(-1, keepdims=True)
    return np.asarray(np.cumsum(values, -1) / np.where(total > 0, total, 1))


def ties(svd: SVD) -> list[list[str]]:
    """For each singular value of each head, the run of near ties that it belongs to, or an empty string.

    >>> diagonal = torch.diag(torch.tensor([3.0, 2.0, 1.999, 1.0]))[None]
    >>> ties(Factored(torch.eye(4)[None], diagonal).svd())
    [['', '2–3', '2–3', '']]
    """
    heads = []
    for groups in svd.clusters(TIE).cpu().numpy():
        edges = np.flatnonzero(np.diff(groups)) + 1
        runs = np.split(np.arange(len(groups)), edges)
        heads.append([f"{run[0] + 1}–{run[-1] + 1}" if len(run) > 1 else "" for run in runs for _ in run])
    return heads


def spectra_table(parts: Sequence[Decomposed], heads: Sequence[int]) -> Table:
    """One row per head and matrix."""
    rows: list[dict[str, Cell]] = []
    for part in parts:
        for head in heads:
            values = part.svd.values[head]
            spread = float(participation(values))
            row = {**place(part, head), "sigma_1": float(values[0]), "n99": int(n99(values)), "of": len(values)}
            rows.append({**row, "participation": None if np.isnan(spread) else spread})
    return Table.of(SPECTRA, rows)


def value_rows(part: Decomposed, heads: Sequence[int]) -> Iterator[tuple[int, int, dict[str, Cell]]]:
    """(head, index, row) of every singular value."""
    tied, shares = ties(part.svd), cumulative(part.values)
    for head in heads:
        for i, sigma in enumerate(part.values[head]):
            row = {**place(part, head), "index": i + 1, "sigma": float(sigma)}
            yield head, i, {**row, "cumulative": float(shares[head, i]), "tie": tied[head][i]}


def values_table(parts: Sequence[Decomposed], heads: Sequence[int]) -> Table:
    """One row per singular value."""
    return Table.of(VALUES, [row for part in parts for _, _, row in value_rows(part, heads)])


def place(part: Decomposed, head: int) -> dict[str, Cell]:
    return {"layer": part.layer, "head": f"L{part.layer}H{head}", "matrix": SHOWN[part.matrix]}


def spectrum_quantities(parts: Sequence[Decomposed], heads: Sequence[int]) -> tuple[Quantity, ...]:
    """σ over its index: a line for one head, a row of a heat map for each of several heads."""
    quantities = []
    for matrix in dict.fromkeys(part.matrix for part in parts):
        same = [part for part in parts if part.matrix == matrix]
        values = np.concatenate([part.values[list(heads)] for part in same])
        names = [f"L{part.layer}H{head}" for part in same for head in heads]
        index = [float(i) for i in range(1, values.shape[1] + 1)]
        what = f"singular values of folded {SHOWN[matrix]}"
        if len(names) == 1:
            quantities.append(
                Quantity(what, f"of {names[0]}", "singular value", ("index",), {"index": index}, values[0])
            )
        else:
            coords: dict[str, list[str] | list[float]] = {"head": names, "index": index}
            quantities.append(Quantity(what, "one row per head", "singular value", ("head", "index"), coords, values))
    return tuple(quantities)


def head_map(
    name: str, meaning: str, unit: str, values: Floats, layers: Sequence[int], heads: Sequence[int], log: bool = False
) -> Quantity:
    """A map of layer × head."""
    coords = {"layer": [f"L{layer}" for layer in layers], "head": [f"H{head}" for head in heads]}
    return Quantity(name, meaning, unit, ("layer", "head"), coords, values, logs=("value",) if log else ())
