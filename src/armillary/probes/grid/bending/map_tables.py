"""What do matrices do to a sphere? S3's shear in closed form, and the matrices of a model in tables."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from armillary.geometry.induced_maps import induced, shear, sheared_angle
from armillary.geometry.shadow import sheared_shadow, turned_shadow
from armillary.probes.grid.bending.maps import (
    Points,
    SiteMatrix,
    Unexplained,
    shadow_sums,
    unexplained,
    unexplained_at_uniform,
)
from armillary.probes.machinery import Floats, cells, interval_cells, line, table
from armillary.results import Quantity, Table

STRENGTHS = (0.5, 1.0, 2.0)
TURN = math.pi / 4


def _matrix(strength: float | None) -> torch.Tensor:
    """The shear of three dimensions, or, without a strength, the rotation."""
    matrix = torch.eye(3, dtype=torch.float64)
    if strength is None:
        cos, sin = math.cos(TURN), math.sin(TURN)
        return torch.tensor([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]], dtype=torch.float64)
    matrix[2, 0] = strength
    return matrix


def closed_form_error() -> float:
    """The largest distance between shadows computed with the matrices and in closed form, shears and a rotation. Near
    the rim the root of a difference loses digits: points are a tenth of the radius away from the plane or more."""
    rows = np.random.default_rng(0).standard_normal((400, 3))
    points = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    points = points[np.abs(points[:, 2]) > 0.1]
    errors = []
    for strength in (*STRENGTHS, None):
        moved = points @ _matrix(strength).numpy()
        for side in (1, -1):
            here = np.sign(points[:, 2]) == side
            x, y = points[here, 0], points[here, 1]
            expected = turned_shadow(x, y, TURN, side) if strength is None else sheared_shadow(x, y, strength, side)
            errors.append(np.abs(moved[here, :2] - np.stack(expected, 1)).max())
    return float(max(errors))


def shadow_curve() -> Quantity:
    """S3's own drawing: the shadow of a sheared sphere, and that of a rotated one."""
    x = np.linspace(-1, 1, 61)
    points = np.stack([x, np.zeros_like(x), np.sqrt(np.maximum(1 - x**2, 0))], 1)
    moved = {strength: (points @ _matrix(strength).numpy())[:, 0] for strength in (1.0, None)}
    return line(
        "the shadow of a sphere",
        "where a point of the upper half, seen from above at y = 0, goes when the sphere is sheared with s = 1",
        "x after, radii",
        "x before, radii",
        x.tolist(),
        moved[1.0],
        {"rotated by 45° instead": moved[None]},
        {"x + s√(1 − x² − y²)": sheared_shadow(x, np.zeros_like(x), 1.0)[0], "not moved": x},
        label="sheared, s = 1",
    )


def shear_curve() -> Quantity:
    """The shear on the circle: computed by the induced map, beside the closed form."""
    angles = np.linspace(0, np.pi, 61)
    circle = torch.as_tensor(np.stack([np.cos(angles), np.sin(angles)], 1))
    out = {s: np.unwrap(np.arctan2(*induced(circle, shear(s)).numpy().T[::-1])) for s in STRENGTHS}
    degrees = np.degrees(angles)
    return line(
        "a shear on the circle",
        "where x ↦ x + s·y sends a direction, at s = 1; a rotation would be a line of slope 1",
        "angle after, degrees",
        "angle before, degrees",
        degrees.tolist(),
        np.degrees(out[1.0]),
        {"s = 0.5": np.degrees(out[0.5]), "s = 2": np.degrees(out[2.0])},
        {"cot θ' = cot θ + 1": np.degrees(sheared_angle(angles, 1.0)), "no shear": degrees},
        label="s = 1",
    )


def shear_table() -> Table:
    """The shear in two dimensions and in three, as S3 draws it; strength 0 stands for a rotation."""
    rows = [(n, strength) for n in (2, 3) for strength in (0.0, *STRENGTHS)]
    results = []
    for n, strength in rows:
        matrix = torch.eye(n, dtype=torch.float64)
        matrix[n - 1, 0] = strength
        results.append(unexplained_at_uniform(matrix, 0))
    meanings = {
        "rotation": "share of the induced map at uniform directions that no rotation explains",
        "tangent": "share that the differential at one point, at its best scale, leaves",
        "linear": "share that the matrix itself leaves with one scale for all",
    }
    return table(
        cells("dimensions", "of the space", [n for n, _ in rows]),
        cells(
            "strength", "s of the shear x ↦ x + s·y of two axes; 0: any rotation", [strength for _, strength in rows]
        ),
        *(cells(kind, meaning, [r.share(kind) for r in results]) for kind, meaning in meanings.items()),
        cells(
            "shadow",
            "share of the upper half's images, not brought back to the sphere, that is not linear in its shadow",
            [_half_shadow(n, strength) for n, strength in rows],
        ),
    )


def _half_shadow(n: int, strength: float) -> float:
    """At uniform points of the half above the plane that the shadow falls on."""
    rows = np.random.default_rng([n, 3]).standard_normal((2000, n))
    rows[:, -1] = np.abs(rows[:, -1])
    x = torch.nn.functional.normalize(torch.as_tensor(rows), dim=-1)
    matrix = torch.eye(n, dtype=torch.float64)
    matrix[n - 1, 0] = strength
    return float(unexplained(shadow_sums(matrix, Points(x, np.arange(2000), 1)).sum(0)))


@dataclass(frozen=True, eq=False)
class MapResult:
    """Matrices; what is left unexplained at the model's own directions, at uniform ones, and of Gaussian matrices; and
    what a rotation of each site's points leaves of its shadow."""

    matrices: tuple[SiteMatrix, ...]
    own: Mapping[str, Unexplained]
    uniform: Mapping[str, Unexplained]
    gaussian: Mapping[str, Unexplained]
    turned: Mapping[str, Floats]
    orthogonal: float
    points: int

    def shares(self, kind: str) -> Floats:
        """[matrix] at the model's own directions."""
        return np.array([self.own[matrix.name].share(kind) for matrix in self.matrices])

    def uniform_shares(self, kind: str) -> Floats:
        return np.array([self.uniform[matrix.name].share(kind) for matrix in self.matrices])

    def shadows(self) -> Floats:
        """[group, matrix, (matrix, rotation), (y², g², y·g)]."""
        own = [self.own[matrix.name].sums["shadow"] for matrix in self.matrices]
        return np.stack([np.stack(own, 1), np.stack([self.turned[m.site] for m in self.matrices], 1)], 2)


def map_table(result: MapResult, shadow: Floats, left: Floats) -> Table:
    """One row per matrix; `shadow` and `left` [matrix, (value, low, high)]."""

    def law(matrix: SiteMatrix) -> float:
        values = matrix.singular_values
        return float(1 - values.mean() ** 2 / values.square().mean())

    return table(
        cells(
            "matrix",
            "weight matrix, acting on rows; all heads side by side unless one is named",
            [matrix.name for matrix in result.matrices],
        ),
        cells(
            "reads",
            "folded: directions at the norm before it; raw: directions of its input; biases left out",
            [matrix.gauge for matrix in result.matrices],
        ),
        interval_cells("shadow", "share of xA that is not linear in the shadow of x", shadow, ends="shadow_"),
        cells(
            "turned",
            "the same when a rotation takes the matrix's place",
            [float(unexplained(result.turned[matrix.site].sum(0))) for matrix in result.matrices],
        ),
        cells("rotation", "share of xA/|xA| that no rotation explains, 1 − R²", result.shares("rotation")),
        cells("tangent", "share that no tangent-linear map at the mean direction explains", result.shares("tangent")),
        interval_cells("left", "the smaller of the two", left, ends=""),
        cells(
            "linear",
            "share that the matrix itself leaves with one scale for all: the effect of the lengths |xA| alone",
            result.shares("linear"),
        ),
        cells("rotation_uniform", "as `rotation`, at uniform directions", result.uniform_shares("rotation")),
        cells("tangent_uniform", "as `tangent`, at uniform directions", result.uniform_shares("tangent")),
        cells(
            "law",
            "1 − (mean σ)²/mean σ² of its singular values: `rotation_uniform` in many dimensions",
            [law(matrix) for matrix in result.matrices],
        ),
    )


def map_grid(result: MapResult, shadow: Floats) -> Quantity:
    """Kinds of matrices by layers."""
    layers = sorted({matrix.layer for matrix in result.matrices})
    kinds = list(dict.fromkeys(matrix.kind for matrix in result.matrices))

    def grid(values: Floats) -> Floats:
        values_by_kind = np.full((len(kinds), len(layers)), np.nan)
        for matrix, value in zip(result.matrices, values, strict=True):
            values_by_kind[kinds.index(matrix.kind), layers.index(matrix.layer)] = value
        return values_by_kind

    best = np.minimum(result.shares("rotation"), result.shares("tangent"))
    return Quantity(
        "share of a matrix's action that is not linear",
        "of xA in the shadow of x; of xA/|xA| by the best rotation or tangent-linear map",
        "1 − R²",
        ("matrix", "layer"),
        {"matrix": kinds, "layer": [f"L{layer}" for layer in layers]},
        grid(shadow),
        controls={
            "a rotation, in the shadow": grid(unexplained(result.shadows().sum(0))[:, 1]),
            "xA/|xA| instead": grid(best),
        },
    )
