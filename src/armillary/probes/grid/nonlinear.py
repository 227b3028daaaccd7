"""Does a linear map act non-linearly on the sphere, and by how much for a model's own matrices and directions?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    by_share,
    missing_interval,
    name_sites,
    over_sites,
    spread_layers,
    undecided,
    weighed,
)
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.bending.map_tables import MapResult
    from armillary.probes.grid.bending.maps import SiteMatrix, Unexplained
    from armillary.probes.machinery.bench import Bench

LAYERS, WIDE = 3, 1024


@dataclass(frozen=True)
class Nonlinear:
    """The share of x ↦ xA that is not linear in the sphere's own coordinates."""

    claim: ClassVar[Claim] = Claim(
        id="map.nonlinear",
        chapter="F",
        statement="A linear map acts non-linearly on the sphere.",
        source="S3",
        question=(
            "A matrix is a linear map. Does it still look linear if tokens are described by coordinates on their "
            "sphere?"
        ),
        definition=(
            "How much of xA, what a matrix A makes of a direction x, is not linear in coordinates of the sphere that "
            "x lies on?\n"
            "S3 describes a point of the sphere by its shadow on a plane. A shear moves the shadow (x, y) to (x ± "
            "s√(r² − x² − y²), y), and the root is not linear (r is the radius of the sphere, s the size of the "
            "shear).\n"
            "On a model the shadow is the part of a direction perpendicular to the mean direction. A matrix's share "
            "is the part of the variance of xA that is left by the best map that is linear in the shadow (A itself, "
            "or least squares). It is taken for the weight matrices of a few layers at the model's own directions. "
            "W_Q, W_K, W_V, W_QK at offset 0, W_VO and the first matrices of the feed-forward are folded onto "
            "directions before their norm; W_O and the last matrix act on their own input. Fits use half of the "
            "documents and are tested on the other.\n"
            "The statistic is the share of the median matrix.\n"
            "Our own addition brings xA back to a sphere: the share of xA/|xA| that neither a rotation nor a map "
            "linear between tangent spaces explains."
        ),
        control=(
            "a rotation in the matrix's place: its shadow has the same root, (x cos a ± sin a·√(r² − x² − y²), y), "
            "although it bends nothing; Gaussian matrices of equal shapes and ranks"
        ),
        rule=(
            "Two parts; the weaker decides.\n"
            "Part 1, S3's shear, by definition.\n"
            "Supported if the shadow follows the closed form to rounding.\n"
            "Refuted otherwise.\n"
            f"Part 2, weight matrices. A matrix acts non-linearly if its share lies above {T.bent_share}, and exceeds "
            f"that of a rotation at the same points by more than {T.straight_share}, both with the whole interval.\n"
            f"Supported if at least {T.sites_most:.0%} of matrices do.\n"
            f"Qualified if more than {T.sites_few:.0%} do, and fewer than {T.sites_most:.0%} could within their "
            "intervals.\n"
            f"Refuted if at most {T.sites_few:.0%} do, and the median matrix lies below one of the two limits with "
            "its whole interval.\n"
            "Undecided otherwise.\n"
            "Part 3 is ours and decides nothing: on directions, xA/|xA|. What is left unexplained of it is compared, "
            "matrix by matrix, with two limits.\n"
            f"Supported if more than {T.bent_share} is left in at least {T.sites_most:.0%} of matrices, with the "
            "whole interval.\n"
            f"Refuted if more than {T.straight_share} could be left in at most {T.sites_few:.0%} of matrices, by the "
            "upper end of the interval.\n"
            "Qualified otherwise."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "The verdict is about xA in the sphere's own coordinates, as S3 says, and a rotation is the control. "
                "It had been about xA/|xA|, which is now a part of our own.",
            ),
            RuleChange(
                "2026-11-18",
                "Matrices whose interval spans a limit count as open: with enough of them to reach nine tenths, the "
                "first part is undecided; it had been qualified.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "aecb569e18de", 2),
            Rewording("2026-11-18", "05c7f1aa77cf", 2),
            Rewording("2026-11-19", "c115ff5ad756", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 1.0

    def experiment(self, bench: "Bench") -> "MapResult | None":
        import torch

        from armillary.probes.grid.bending.map_tables import MapResult
        from armillary.probes.grid.bending.maps import (
            Points,
            directions,
            matrices,
            shadow_sums,
            unexplained_at,
            unexplained_at_uniform,
        )

        anatomy, groups = bench.anatomy, bench.corpus.groups
        chosen = tuple(m for layer in measured_layers(anatomy, bench.quick) for m in matrices(anatomy, layer))
        directions_at, documents = directions(bench, sorted({matrix.site for matrix in chosen}))
        if not chosen or len(set((documents % 2).tolist())) < 2:
            return None
        points = {site: Points(x, documents, groups) for site, x in directions_at.items()}
        if not all(at.spread for at in points.values()):
            return None
        by_name = {matrix.name: matrix for matrix in chosen}
        rng = np.random.default_rng([bench.seed, 73])
        middle = chosen[len(chosen) // 2].layer
        random = {m.name: _gaussian(m, rng) for m in chosen if m.layer == middle}

        def at_own(matrix: "SiteMatrix") -> "Unexplained":
            return unexplained_at(matrix.values.cpu(), points[matrix.site], matrix.polar)

        def at_uniform(matrix: "SiteMatrix") -> "Unexplained":
            return unexplained_at_uniform(matrix.values.cpu(), bench.seed, matrix.polar)

        def of_gaussian(name: str) -> "Unexplained":
            return unexplained_at(torch.as_tensor(random[name]), points[by_name[name].site])

        own = over_sites(list(by_name), lambda name: at_own(by_name[name]))
        uniform = over_sites(list(by_name), lambda name: at_uniform(by_name[name]))
        gaussian = over_sites(list(random), of_gaussian)
        width = points[chosen[0].site].x.shape[1]
        rotation = torch.linalg.qr(torch.as_tensor(rng.standard_normal((width, width))))[0]
        orthogonal = unexplained_at(rotation, points[chosen[0].site]).share("rotation")
        turned = {site: shadow_sums(None, points[site]) for site in points}
        return MapResult(chosen, own, uniform, gaussian, turned, orthogonal, len(documents))

    def conclude(self, evidence: Evidence, result: "MapResult | None") -> Finding:
        from armillary.probes.grid.bending.map_tables import map_grid, map_table, shadow_curve, shear_curve, shear_table
        from armillary.probes.grid.bending.maps import unexplained

        if result is None:
            reading = "Maps are fitted on half of the documents and tested on the other half. Give more text, with "
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, f"{reading}different words.")
        left = evidence.intervals(_best_sums(result.own), unexplained)
        shadows = evidence.intervals(result.shadows(), unexplained)
        statistic, turned = (_median_shadow(evidence, result, column) for column in (0, 1))
        parts = (
            _shear(),
            _weights(evidence, result, shadows[:, 0], statistic, turned),
            _directions(evidence, result, left),
        )
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic("share of xA that is not linear in the shadow of x, median matrix", *statistic),
            n=result.points,
            controls=(
                Control("a rotation in the matrix's place", *turned),
                Control("Gaussian matrices of the same shapes and ranks", *_gaussian_shadow(evidence, result)),
            ),
            headline=f"Of what a matrix makes of a sphere, {say(statistic[0], '.1%')} is not linear in the sphere's "
            f"own coordinates; of a rotation {say(turned[0], '.1%')}",
            table=map_table(result, shadows[:, 0], left),
            quantities=(shadow_curve(), shear_curve(), map_grid(result, shadows[:, 0, 0])),
            more_tables={"shear": shear_table()},
        )


def measured_layers(anatomy: "Anatomy", quick: bool) -> tuple[int, ...]:
    """A few layers; one if `quick`, and in wide models, whose matrices take minutes to decompose."""
    layers = spread_layers(anatomy, LAYERS)
    return (layers[len(layers) // 2],) if quick or anatomy.d > WIDE else layers


def _gaussian(matrix: "SiteMatrix", rng: np.random.Generator) -> Floats:
    """Of the same shape; of a head's d × d matrix also of the rank that its k axes leave."""
    shape, rank = matrix.values.shape, len(matrix.singular_values)
    if rank > min(shape) // 2:
        return rng.standard_normal(shape)
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


def _best_sums(results: Mapping[str, "Unexplained"]) -> Floats:
    """[group, matrix, (y², g², y·g)] of the map that explains each matrix better."""
    return np.stack([result.sums[result.best] for result in results.values()], 1)


def _median(evidence: Evidence, results: Mapping[str, "Unexplained"]) -> Interval:
    from armillary.probes.grid.bending.maps import unexplained

    return evidence.interval(_best_sums(results), lambda drawn: np.median(unexplained(drawn), axis=-1))


def _median_shadow(evidence: Evidence, result: "MapResult", column: int) -> Interval:
    """Of the matrices (0), or of rotations in their places (1)."""
    from armillary.probes.grid.bending.maps import unexplained

    return evidence.interval(result.shadows()[:, :, column], lambda drawn: np.median(unexplained(drawn), axis=-1))


def _gaussian_shadow(evidence: Evidence, result: "MapResult") -> Interval:
    from armillary.probes.grid.bending.maps import unexplained

    sums = np.stack([left.sums["shadow"] for left in result.gaussian.values()], 1)
    return evidence.interval(sums, lambda drawn: np.median(unexplained(drawn), axis=-1))


def count_verdict(certain: Flags, possible: Flags, median: Interval, beyond: Interval) -> tuple[Verdict, Why | None]:
    """From the matrices that hold with their whole interval, those that hold with a part of it, the share in the median
    matrix, and by how much it exceeds that of a rotation."""
    if np.isnan([*median, *beyond]).any():
        return "undecided", Why.NO_INTERVAL
    if certain.mean() > T.sites_few:
        if certain.mean() >= T.sites_most:
            return "supported", None
        return ("qualified", None) if possible.mean() < T.sites_most else ("undecided", Why.SPANS_LIMIT)
    fails = above(median, T.bent_share) is False or above(beyond, T.straight_share) is False
    return ("refuted", None) if fails else ("undecided", Why.SPANS_LIMIT)


def _shear() -> Part:
    from armillary.probes.grid.bending.map_tables import closed_form_error

    error = closed_form_error()
    return Part(
        "S3's shear",
        "supported" if error < 1e-12 else "refuted",
        "The shadow of a sheared sphere moves as (x ± s√(r² − x² − y²), y), by definition and to rounding: not linear "
        "in (x, y). A rotation's shadow has the same root, so the root belongs to the drawing and does not show that a "
        "map bends anything.",
        Statistic("largest deviation from the closed form, radii", error, error, error),
    )


def _weights(evidence: Evidence, result: "MapResult", shadow: Floats, statistic: Interval, turned: Interval) -> Part:
    from armillary.probes.grid.bending.maps import unexplained

    def beyond(drawn: Floats) -> Floats:
        shares = unexplained(drawn)
        return np.asarray(shares[..., 0] - shares[..., 1])

    apart = evidence.intervals(result.shadows(), beyond)
    certain, possible = ((shadow[:, end] > T.bent_share) & (apart[:, end] > T.straight_share) for end in (1, 2))
    median = evidence.interval(result.shadows(), lambda drawn: np.median(beyond(drawn), axis=-1))
    verdict, why = count_verdict(certain, possible, statistic, median)
    names = [matrix.name for matrix, holds in zip(result.matrices, certain, strict=True) if holds]
    which = f" ({name_sites(names)})" if names and len(names) < len(certain) else ""
    return Part(
        "weight matrices",
        verdict,
        f"{say(statistic[0], '.1%')} of what the median matrix makes of a direction is not linear in that direction's "
        f"shadow; with a rotation in its place, which bends nothing, {say(turned[0], '.1%')}. {len(names)} of "
        f"{len(certain)} matrices exceed both limits{which}.",
        Statistic("share of xA that is not linear in the shadow, median matrix", *statistic),
        why=why,
    )


def _directions(evidence: Evidence, result: "MapResult", left: Floats) -> Part:
    statistic = _median(evidence, result.own)
    verdict: Verdict = by_share(left[:, 1] > T.bent_share, left[:, 2] > T.straight_share)
    verdict = "undecided" if np.isnan(statistic).any() else verdict
    rotation, tangent, linear = (float(np.median(result.shares(k))) for k in ("rotation", "tangent", "linear"))
    gaussian = _median(evidence, result.gaussian)
    return Part(
        "on directions, xA/|xA|",
        verdict,
        f"With images brought back to a sphere (our addition), the best rotation leaves {say(rotation, '.0%')} of them "
        f"unexplained, the best tangent-linear map {say(tangent, '.1%')}; for Gaussian matrices the better one leaves "
        f"{say(gaussian[0], '.1%')}, for an orthogonal one {say(result.orthogonal, '.1g')}. The matrix itself, with "
        f"one scale for all, leaves {say(linear, '.1%')}: in many dimensions the lengths |xA| hardly differ, so little "
        "bends.",
        Statistic("share of xA/|xA| that no rotation or tangent-linear map explains, median matrix", *statistic),
        asserted=False,
        why=missing_interval(*statistic) if verdict == "undecided" else None,
    )
