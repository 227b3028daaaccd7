"""Does a linear map act non-linearly on the sphere, and by how much where a model's own matrices and directions meet?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.grid.unanswered import unanswered
from armillary.probes.machinery.evidence import Evidence, Flags, Floats, name_sites
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import layers_of
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.probes.grid.maps import Left, Matrix
    from armillary.probes.machinery.bench import Bench

LAYERS, WIDE = 3, 1024
STRENGTHS = (0.5, 1.0, 2.0)
COLUMNS = (
    Column("matrix", "weight matrix, rows to the left; heads side by side unless one is named"),
    Column("reads", "folded: directions at the norm before it; raw: directions of what it receives; biases left out"),
    Column("rotation", "share of where this model's directions go that no rotation explains, 1 − R²"),
    Column("tangent", "share that no tangent-linear map at their mean direction explains"),
    Column("left", "the smaller of the two"),
    Column("low", "its 95 % interval over documents, low end"),
    Column("high", "its 95 % interval over documents, high end"),
    Column("linear", "share that the matrix itself leaves with one scale for all: what comes from lengths |xA| alone"),
    Column("rotation_uniform", "as `rotation`, at uniform directions"),
    Column("tangent_uniform", "as `tangent`, at uniform directions"),
    Column("law", "1 − (mean σ)²/mean σ² of its singular values: `rotation_uniform` in many dimensions"),
)
SHEAR = (
    Column("dimensions", "of the space"),
    Column("strength", "s of the shear x ↦ x + s·y of two axes"),
    Column("rotation", "share of the induced map at uniform directions that no rotation explains"),
    Column("tangent", "share that the differential at one point, at its best scale, leaves"),
    Column("linear", "share that the matrix itself leaves with one scale for all"),
)


@dataclass(frozen=True, eq=False)
class Maps:
    """matrix → what is left at the model's own directions, and at uniform ones; Gaussian matrices; directions looked at."""

    matrices: tuple["Matrix", ...]
    own: Mapping[str, "Left"]
    uniform: Mapping[str, "Left"]
    gaussian: Mapping[str, "Left"]
    orthogonal: float
    points: int


@dataclass(frozen=True)
class Nonlinear:
    """The share of x ↦ xA/|xA| that neither a rotation nor a tangent-linear map explains."""

    claim: ClassVar[Claim] = Claim(
        id="map.nonlinear",
        chapter="F",
        statement="A linear map acts non-linearly on the sphere.",
        source="S3",
        definition=(
            "x ↦ xA/|xA| for the weight matrices of a few layers, at the model's own directions: W_Q, W_K, W_V, W_QK(0), W_VO and the "
            "feed-forward's first matrices folded onto directions before their norm, W_O and the last matrix on what they receive. "
            "The share of the variance of where directions go that is left by the best rotation (or isometry of fewer dimensions, "
            "lengths made one again), and by the best map that is linear between the tangent spaces at the mean direction and at its "
            "image; fitted on half of the documents, tried on the other, so that a better fit could only lower it. The statistic is the smaller of the two for the median matrix. "
            "Any matrix that is no multiple of a rotation bends the sphere, by definition: what is measured is how much. And S3's "
            "shear, in closed form: cot θ' = cot θ + s."
        ),
        control="an orthogonal matrix, which leaves 0; Gaussian matrices of the same shapes and ranks; uniform directions",
        rule=(
            f"A matrix acts non-linearly where more than {T.bent_share} is left. Supported: ≥ {T.sites_most:.0%} of matrices do. Refuted: at "
            f"≤ {T.sites_few:.0%} of matrices more than {T.straight_share} is left. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 1.0

    def experiment(self, bench: "Bench") -> Maps | None:
        import torch

        from armillary.probes.grid.maps import directions, leftover, matrices, uniform_leftover

        chosen = tuple(
            matrix for layer in looked_at(bench.anatomy, bench.quick) for matrix in matrices(bench.anatomy, layer)
        )
        found, documents = directions(bench, sorted({matrix.site for matrix in chosen}))
        if not chosen or len(set((documents % 2).tolist())) < 2:
            return None
        groups = bench.corpus.groups
        by_name = {matrix.name: matrix for matrix in chosen}
        rng = np.random.default_rng([bench.seed, 73])
        middle = chosen[len(chosen) // 2].layer
        random = {m.name: _gaussian(m.values.shape, _rank(m), rng) for m in chosen if m.layer == middle}

        def tried(name: str, values: "Tensor") -> "Left":
            return leftover(values, found[by_name[name].site], documents, groups)

        own = over_sites(list(by_name), lambda name: tried(name, by_name[name].values.cpu()))
        uniform = over_sites(list(by_name), lambda name: uniform_leftover(by_name[name].values.cpu(), bench.seed))
        gaussian = over_sites(list(random), lambda name: tried(name, torch.as_tensor(random[name])))
        x = found[chosen[0].site]
        turn = torch.linalg.qr(torch.as_tensor(rng.standard_normal((x.shape[1], x.shape[1]))))[0]
        straight = leftover(turn, x, documents, groups).share("rotation")
        return Maps(chosen, own, uniform, gaussian, straight, len(documents))

    def conclude(self, evidence: Evidence) -> Finding:
        maps: Maps | None = evidence.found.get(self.claim.id)
        if maps is None:
            return unanswered(
                self.claim,
                "Maps are fitted on half of the documents and tried on the other half; give more text.",
                COLUMNS,
            )
        rows = [_row(evidence, maps, matrix) for matrix in maps.matrices]
        left = np.array([row["left"] for row in rows])
        statistic = _median(evidence, maps.own)
        verdict = _verdict(left, statistic)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(
                "share of the induced map that no rotation or tangent-linear map explains, median matrix", *statistic
            ),
            n=maps.points,
            controls=_controls(evidence, maps),
            reading=_reading(rows, left > T.bent_share),
            headline=f"Of what a matrix does to directions, rotations leave {np.median([r['rotation'] for r in rows]):.0%} unexplained and "
            f"tangent-linear maps {statistic[0]:.1%}",
            table=Table.of(COLUMNS, rows),
            quantities=(_shear_curve(), _by_matrix(maps, rows)),
            more_tables={"shear": shear_table()},
        )


def looked_at(anatomy: "Anatomy", quick: bool) -> tuple[int, ...]:
    """A few layers; one in a hurry, and in wide models, whose matrices take minutes to decompose."""
    layers = layers_of(anatomy, LAYERS)
    return (layers[len(layers) // 2],) if quick or anatomy.d > WIDE else layers


def _rank(matrix: "Matrix") -> int:
    """Of a head's d × d matrix the rank that its k axes leave; of others their smaller side."""
    rank, full = len(matrix.singular_values), min(matrix.values.shape)
    return rank if rank <= full // 2 else full


def _gaussian(shape: tuple[int, ...], rank: int, rng: np.random.Generator) -> Floats:
    if rank == min(shape):
        return rng.standard_normal(shape)
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


def _median(evidence: Evidence, found: Mapping[str, "Left"]) -> tuple[float, float, float]:
    from armillary.probes.grid.maps import unexplained

    stats = np.stack([left.sums[left.best] for left in found.values()], 1)
    return evidence.interval(stats, lambda drawn: np.median(unexplained(drawn), axis=-1))


def _row(evidence: Evidence, maps: Maps, matrix: "Matrix") -> dict[str, Any]:
    from armillary.probes.grid.maps import unexplained

    own, uniform, values = maps.own[matrix.name], maps.uniform[matrix.name], matrix.singular_values
    value, low, high = evidence.interval(own.sums[own.best], unexplained)
    return {
        "matrix": matrix.name,
        "reads": matrix.gauge,
        "rotation": own.share("rotation"),
        "tangent": own.share("tangent"),
        "left": value,
        "low": None if np.isnan(low) else low,
        "high": None if np.isnan(high) else high,
        "linear": own.share("linear"),
        "rotation_uniform": uniform.share("rotation"),
        "tangent_uniform": uniform.share("tangent"),
        "law": float(1 - values.mean() ** 2 / values.square().mean()),
    }


def _verdict(left: Floats, statistic: tuple[float, float, float]) -> Verdict:
    if np.isnan(statistic).any():
        return "undecided"
    if (left > T.bent_share).mean() >= T.sites_most:
        return "supported"
    return "refuted" if (left > T.straight_share).mean() <= T.sites_few else "qualified"


def _controls(evidence: Evidence, maps: Maps) -> tuple[Control, ...]:
    even = float(np.median([left.share(left.best) for left in maps.uniform.values()]))
    return (
        Control("Gaussian matrices of the same shapes and ranks", *_median(evidence, maps.gaussian)),
        Control("uniform directions", even, even, even),
        Control("an orthogonal matrix", maps.orthogonal, maps.orthogonal, maps.orthogonal),
    )


def _reading(rows: list[dict[str, Any]], bent: Flags) -> str:
    def middle(name: str) -> float:
        return float(np.median([row[name] for row in rows]))

    which = [row["matrix"] for row, flag in zip(rows, bent, strict=True) if flag]
    where = f" ({name_sites(which)})" if which and len(which) < len(rows) else ""
    return (
        f"True of every matrix by definition; by how much: of where directions go, the best rotation leaves {middle('rotation'):.0%} "
        f"in the median matrix and the best tangent-linear map {middle('tangent'):.1%}; more than {T.bent_share:.0%} is left of both "
        f"at {len(which)} of {len(rows)} matrices{where}. The matrix itself, with one scale for all, leaves {middle('linear'):.1%}: in many "
        "dimensions lengths |xA| hardly differ, so little bends."
    )


def _shear_curve() -> Quantity:
    """S3's shear on the circle: computed by the induced map, beside the closed form."""
    import torch

    from armillary.geometry.induced import induced, shear, sheared_angle

    angles = np.linspace(0, np.pi, 61)
    circle = torch.as_tensor(np.stack([np.cos(angles), np.sin(angles)], 1))
    out = {s: np.unwrap(np.arctan2(*induced(circle, shear(s)).numpy().T[::-1])) for s in STRENGTHS}
    degrees = np.degrees(angles)
    return Quantity(
        "a shear on the circle",
        "where x ↦ x + s·y sends a direction, at s = 1; a rotation would be a line of slope 1",
        "angle after, degrees",
        ("angle before, degrees",),
        {"angle before, degrees": degrees.tolist()},
        np.degrees(out[1.0]),
        controls={"s = 0.5": np.degrees(out[0.5]), "s = 2": np.degrees(out[2.0])},
        theory={"cot θ' = cot θ + 1": np.degrees(sheared_angle(angles, 1.0)), "no shear": degrees},
        label="s = 1",
    )


def _by_matrix(maps: Maps, rows: list[dict[str, Any]]) -> Quantity:
    layers = sorted({matrix.layer for matrix in maps.matrices})
    kinds = list(dict.fromkeys(matrix.kind for matrix in maps.matrices))

    def grid(column: str) -> Floats:
        made = np.full((len(kinds), len(layers)), np.nan)
        for matrix, row in zip(maps.matrices, rows, strict=True):
            made[kinds.index(matrix.kind), layers.index(matrix.layer)] = row[column]
        return made

    return Quantity(
        "share of the induced map left unexplained",
        "by the best tangent-linear map or rotation, at this model's own directions; by a rotation alone; at uniform directions",
        "1 − R²",
        ("matrix", "layer"),
        {"matrix": kinds, "layer": [f"L{layer}" for layer in layers]},
        grid("left"),
        controls={"by the best rotation": grid("rotation"), "uniform directions": grid("tangent_uniform")},
    )


def shear_table() -> Table:
    """S3's shear in two dimensions and in three, as S3 draws it."""
    import torch

    from armillary.probes.grid.maps import uniform_leftover

    rows: list[dict[str, Any]] = []
    for n in (2, 3):
        for strength in STRENGTHS:
            matrix = torch.eye(n, dtype=torch.float64)
            matrix[n - 1, 0] = strength
            left = uniform_leftover(matrix, 0)
            rows.append({"dimensions": n, "strength": strength, **{way: left.share(way) for way in left.sums}})
    return Table.of(SHEAR, rows)
