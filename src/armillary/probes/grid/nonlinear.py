"""Does a linear map act non-linearly on the sphere, and by how much for a model's own matrices and directions?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import AnyInstrument, Evidence, Floats, Interval, T, over_sites, spread_layers
from armillary.probes.machinery.verdicts import by_share, missing_interval, name_sites, undecided
from armillary.results import Claim, Control, Finding, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.probes.grid.maps import MapResult, Matrix, Unexplained
    from armillary.probes.machinery.bench import Bench

LAYERS, WIDE = 3, 1024


@dataclass(frozen=True)
class Nonlinear:
    """The share of x ↦ xA/|xA| that neither a rotation nor a tangent-linear map explains."""

    claim: ClassVar[Claim] = Claim(
        id="map.nonlinear",
        chapter="F",
        statement="A linear map acts non-linearly on the sphere.",
        source="S3",
        definition=(
            "The map x ↦ xA/|xA| for the weight matrices of a few layers, at the model's own directions. W_Q, W_K, "
            "W_V, W_QK(0), W_VO and the first matrices of the feed-forward are folded onto directions before their "
            "norm; W_O and the last matrix act on their own input. Measured is the share of the variance of the images "
            "that is left by the best rotation (or isometry of fewer dimensions, rescaled to length 1), and by the "
            "best map that is linear between the tangent spaces at the mean direction and at its image. Both are "
            "fitted on half of the documents and tested on the other, so a better fit could only lower the share. The "
            "statistic is the smaller of the two for the median matrix. Any matrix that is not a multiple of a "
            "rotation bends the sphere by definition; measured is how much. S3's shear is given in closed form: cot θ' "
            "= cot θ + s."
        ),
        control="an orthogonal matrix, which leaves 0; Gaussian matrices of equal shapes and ranks; uniform directions",
        rule=(
            f"A matrix acts non-linearly if both maps leave more than {T.bent_share} unexplained. Supported if at "
            f"least {T.sites_most:.0%} of matrices do. Refuted if both maps leave more than {T.straight_share} of at "
            f"most {T.sites_few:.0%} of matrices. Qualified otherwise. Undecided if there are too few documents for an "
            "interval."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 1.0

    def experiment(self, bench: "Bench") -> "MapResult | None":
        import torch

        from armillary.probes.grid.maps import MapResult, directions, matrices, unexplained_at, unexplained_at_uniform

        anatomy, groups = bench.anatomy, bench.corpus.groups
        chosen = tuple(m for layer in measured_layers(anatomy, bench.quick) for m in matrices(anatomy, layer))
        points, documents = directions(bench, sorted({matrix.site for matrix in chosen}))
        if not chosen or len(set((documents % 2).tolist())) < 2:
            return None
        by_name = {matrix.name: matrix for matrix in chosen}
        rng = np.random.default_rng([bench.seed, 73])
        middle = chosen[len(chosen) // 2].layer
        random = {m.name: _gaussian(m, rng) for m in chosen if m.layer == middle}

        def at_own(name: str, values: "Tensor") -> "Unexplained":
            return unexplained_at(values, points[by_name[name].site], documents, groups)

        own = over_sites(list(by_name), lambda name: at_own(name, by_name[name].values.cpu()))
        uniform = over_sites(list(by_name), lambda n: unexplained_at_uniform(by_name[n].values.cpu(), bench.seed))
        gaussian = over_sites(list(random), lambda name: at_own(name, torch.as_tensor(random[name])))
        x = points[chosen[0].site]
        rotation = torch.linalg.qr(torch.as_tensor(rng.standard_normal((x.shape[1], x.shape[1]))))[0]
        orthogonal = unexplained_at(rotation, x, documents, groups).share("rotation")
        return MapResult(chosen, own, uniform, gaussian, orthogonal, len(documents))

    def conclude(self, evidence: Evidence, result: "MapResult | None") -> Finding:
        from armillary.probes.grid.maps import map_grid, map_table, unexplained
        from armillary.probes.grid.shear import shear_curve, shear_table

        if result is None:
            reading = "Maps are fitted on half of the documents and tested on the other half. Give more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        left = evidence.intervals(_best_sums(result.own), unexplained)
        statistic = _median(evidence, result.own)
        verdict: Verdict = by_share(left[:, 0] > T.bent_share, left[:, 0] > T.straight_share)
        verdict = "undecided" if np.isnan(statistic).any() else verdict
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*statistic) if verdict == "undecided" else None,
            statistic=Statistic(
                "share of the induced map that no rotation or tangent-linear map explains, median matrix", *statistic
            ),
            n=result.points,
            controls=_controls(evidence, result),
            reading=_reading(result, left[:, 0]),
            headline=f"Of the action of a matrix on directions, rotations leave "
            f"{say(float(np.median(result.shares('rotation'))), '.0%')} unexplained and tangent-linear maps "
            f"{say(statistic[0], '.1%')}",
            table=map_table(result, left),
            quantities=(shear_curve(), map_grid(result, left[:, 0])),
            more_tables={"shear": shear_table()},
        )


def measured_layers(anatomy: "Anatomy", quick: bool) -> tuple[int, ...]:
    """A few layers; one if `quick`, and in wide models, whose matrices take minutes to decompose."""
    layers = spread_layers(anatomy, LAYERS)
    return (layers[len(layers) // 2],) if quick or anatomy.d > WIDE else layers


def _gaussian(matrix: "Matrix", rng: np.random.Generator) -> Floats:
    """Of the same shape; of a head's d × d matrix also of the rank that its k axes leave."""
    shape, rank = matrix.values.shape, len(matrix.singular_values)
    if rank > min(shape) // 2:
        return rng.standard_normal(shape)
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


def _best_sums(results: Mapping[str, "Unexplained"]) -> Floats:
    """[group, matrix, (y², g², y·g)] of the map that explains each matrix better."""
    return np.stack([result.sums[result.best] for result in results.values()], 1)


def _median(evidence: Evidence, results: Mapping[str, "Unexplained"]) -> Interval:
    from armillary.probes.grid.maps import unexplained

    return evidence.interval(_best_sums(results), lambda drawn: np.median(unexplained(drawn), axis=-1))


def _controls(evidence: Evidence, result: "MapResult") -> tuple[Control, ...]:
    uniform = float(np.median([left.share(left.best) for left in result.uniform.values()]))
    return (
        Control("Gaussian matrices of the same shapes and ranks", *_median(evidence, result.gaussian)),
        Control("uniform directions", uniform, uniform, uniform),
        Control("an orthogonal matrix", result.orthogonal, result.orthogonal, result.orthogonal),
    )


def _reading(result: "MapResult", left: Floats) -> str:
    rotation, tangent, linear = (float(np.median(result.shares(k))) for k in ("rotation", "tangent", "linear"))
    bent = [matrix.name for matrix, share in zip(result.matrices, left, strict=True) if share > T.bent_share]
    where = f" ({name_sites(bent)})" if bent and len(bent) < len(left) else ""
    return (
        f"In the median matrix, the best rotation leaves {say(rotation, '.0%')} of the images unexplained and the best "
        f"tangent-linear map {say(tangent, '.1%')}. Both leave more than {say(T.bent_share, '.0%')} in {len(bent)} of "
        f"{len(left)} matrices{where}. The matrix itself, with one scale for all, leaves {say(linear, '.1%')}: in many "
        "dimensions lengths |xA| hardly differ, so little bends. That a matrix bends the sphere at all is true by "
        "definition."
    )
