"""How is a head's strength spread over its directions?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import Folded, fold, rotate
from armillary.geometry.factored import SVD, Factored, n99, participation
from armillary.readouts.ask import SHOWN, Matrix
from armillary.results import Column, Quantity, Table
from armillary.results.table import Cell

Floats = NDArray[np.float64]
# Weights of 16 or 8 bits leave a matrix known to about 1e-3 of σ1, and an error E turns a singular vector by |E|/gap: nearer
# than this, in units of σ1, vectors are loose by a fifth of a radian or more, and only their span means something.
TIE = 0.005

SPECTRA = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("matrix", "W_QK (score of two directions) or W_VO (write of one)"),
    Column("sigma_1", "largest singular value of the folded matrix"),
    Column("participation", "(Σσ²)²/Σσ⁴: as many equal singular values would spread alike"),
    Column("n99", "singular values that hold 99 % of Σσ"),
    Column("of", "singular values that there are: the width of the head"),
)
VALUES = (
    *SPECTRA[:3],
    Column("index", "1 is the largest"),
    Column("sigma", "singular value"),
    Column("cumulative", "share of Σσ up to here"),
    Column("tie", "indices whose singular values nearly tie with it: only their span means something"),
)


@dataclass(frozen=True, eq=False)
class Decomposed:
    """One layer's matrix of one kind, all heads: singular values [h, k] on the CPU, and the vectors where they were."""

    layer: int
    matrix: Matrix
    svd: SVD

    @property
    def values(self) -> Floats:
        return np.asarray(self.svd.values.double().cpu().numpy())


def folded_at(anatomy: Anatomy, layer: int, offset: int, dtype: torch.dtype = torch.float64) -> Folded:
    """A layer's heads whose W_QK is that of one offset: the one rotation of `turn(0)` is R(Δ).

    A table of all rotations up to Δ would be gigabytes in a long context.
    """
    made = fold(anatomy, layer, 1, dtype)
    if not offset or made.rotary is None:
        return made
    places = torch.tensor([[0, abs(offset)]], device=anatomy.device)
    cos, sin = anatomy.model.get_submodule(anatomy.rotary_path)(anatomy.W_E.new_zeros(1, 1, anatomy.d), places)
    identity = torch.eye(anatomy.k, dtype=dtype, device=anatomy.device)
    turned = rotate(identity[None, :, None].expand(2, -1, 1, -1), cos[0, :, None], sin[0, :, None])[:, :, 0]
    one = turned[1] @ turned[0].mT
    return replace(made, rotary=(one if offset > 0 else one.mT)[None])


def matrices_of(anatomy: Anatomy, layer: int, matrices: Sequence[Matrix], offset: int = 0) -> list[Factored]:
    folded = folded_at(anatomy, layer, offset)
    return [folded.qk() if m == "qk" else folded.vo() for m in matrices]


def decompose(anatomy: Anatomy, layer: int, matrices: Sequence[Matrix], offset: int = 0) -> list[Decomposed]:
    made = matrices_of(anatomy, layer, matrices, offset)
    return [Decomposed(layer, matrix, one.svd()) for matrix, one in zip(matrices, made, strict=True)]


def cumulative(values: Floats) -> Floats:
    """Shares of the sum up to each; zeros of a matrix that does nothing.

    >>> cumulative(np.array([3.0, 1.0]))
    array([0.75, 1.  ])
    """
    total = values.sum(-1, keepdims=True)
    return np.asarray(np.cumsum(values, -1) / np.where(total > 0, total, 1))


def ties(one: SVD) -> list[list[str]]:
    """For each head's singular values the run of near ties it stands in, or nothing.

    >>> diagonal = torch.diag(torch.tensor([3.0, 2.0, 1.999, 1.0]))[None]
    >>> ties(Factored(torch.eye(4)[None], diagonal).svd())
    [['', '2–3', '2–3', '']]
    """
    made = []
    for groups in one.clusters(TIE).cpu().numpy():
        edges = np.flatnonzero(np.diff(groups)) + 1
        runs = np.split(np.arange(len(groups)), edges)
        made.append([f"{run[0] + 1}–{run[-1] + 1}" if len(run) > 1 else "" for run in runs for _ in run])
    return made


def spectra_table(found: Sequence[Decomposed], heads: Sequence[int]) -> Table:
    """One row a head and matrix."""
    rows: list[dict[str, Cell]] = []
    for one in found:
        for head in heads:
            values = one.svd.values[head]
            spread = float(participation(values))
            rows.append(
                {
                    **place(one, head),
                    "sigma_1": float(values[0]),
                    "participation": None if np.isnan(spread) else spread,
                    "n99": int(n99(values)),
                    "of": len(values),
                }
            )
    return Table.of(SPECTRA, rows)


def values_table(found: Sequence[Decomposed], heads: Sequence[int]) -> Table:
    """One row a singular value."""
    rows: list[dict[str, Cell]] = []
    for one in found:
        tied_all = ties(one.svd)
        for head in heads:
            values, shares, tied = one.values[head], cumulative(one.values[head]), tied_all[head]
            rows += [
                {**place(one, head), "index": i + 1, "sigma": float(v), "cumulative": float(c), "tie": t}
                for i, (v, c, t) in enumerate(zip(values, shares, tied, strict=True))
            ]
    return Table.of(VALUES, rows)


def place(one: Decomposed, head: int) -> dict[str, Cell]:
    return {"layer": one.layer, "head": f"L{one.layer}H{head}", "matrix": SHOWN[one.matrix]}


def spectrum_quantities(found: Sequence[Decomposed], heads: Sequence[int]) -> tuple[Quantity, ...]:
    """σ over its index: a line for one head, a row of a heat map for each of several."""
    made = []
    for matrix in dict.fromkeys(one.matrix for one in found):
        same = [one for one in found if one.matrix == matrix]
        values = np.concatenate([one.values[list(heads)] for one in same])
        names = [f"L{one.layer}H{head}" for one in same for head in heads]
        index = [float(i) for i in range(1, values.shape[1] + 1)]
        what = f"singular values of folded {SHOWN[matrix]}"
        if len(names) == 1:
            made.append(Quantity(what, f"of {names[0]}", "σ", ("index",), {"index": index}, values[0]))
        else:
            coords: dict[str, list[str] | list[float]] = {"head": names, "index": index}
            made.append(Quantity(what, "a row for each head", "σ", ("head", "index"), coords, values))
    return tuple(made)
