"""Radial and tangential variance in balls of nearest tokens, as they are and contracted towards their centre."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.samples import SAMPLES, Sampled
from armillary.probes.machinery import MODEL, Evidence, Floats

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.geometry.clouds.local_spread import Balls

SCALES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
NEIGHBOURS = 24
CENTRES = 48
OWN_BALLS = (8, 16, 32, 64, 128)
OWN_CENTRES = 96


@dataclass(frozen=True, eq=False)
class SiteBalls:
    """The balls of one site: sums [document group, scale, (radial, tangential, tangential · α²)]."""

    after: Floats
    """Of z, on the sphere."""
    before: Floats
    """Of x, before the norm."""
    along_ones: float
    """Variance along 1 over the mean tangential variance, in one contracted ball: 0 under LayerNorm."""
    own: Floats | None
    """[document group, ball size, as above] in balls of 8 to 128 nearest tokens, not contracted; None where there are
    too few tokens."""
    tokens: int

    @property
    def own_slope(self) -> float:
        return float("nan") if self.own is None else float(slope(self.own.sum(0)[None])[0])

    @property
    def own_alpha(self) -> tuple[float, float]:
        """Angular size in degrees of the smallest and the largest of the balls that are not contracted."""
        if self.own is None:
            return float("nan"), float("nan")
        alpha, _ = pooled(self.own)
        return float(alpha[0]), float(alpha[-1])


def slope(sums: Floats) -> Floats:
    """Slope of log(radial/tangential variance) on log α."""
    from armillary.geometry.clouds.local_spread import pooled_slope

    return np.asarray(pooled_slope(sums))


def pooled(sums: Floats) -> tuple[Floats, Floats]:
    """α in degrees and radial over tangential variance, per scale."""
    radial, tangential, weighted = np.moveaxis(sums.sum(0), -1, 0)
    return np.degrees(np.sqrt(weighted / tangential)), radial / tangential


def site_balls(evidence: Evidence, site: str) -> SiteBalls | None:
    """None where there are too few tokens."""
    norm = evidence.anatomy.norms[site]
    sample = _words(evidence, MODEL, site)
    after = _contracted(evidence, sample, norm.direction)
    before = _contracted(evidence, sample, lambda x: x)
    if after is None or before is None:
        return None
    near = (sample.z @ sample.z[0]).topk(NEIGHBOURS).indices
    ball = norm.direction(sample.x[0] + SCALES[-1] * (sample.x[near] - sample.x[0]))
    along_ones = float(ball.sum(-1).var() / norm.d / (ball.var(0).sum() / norm.d))
    return SiteBalls(after, before, along_ones, _own_balls(evidence, sample), len(sample))


def arm_sums(evidence: Evidence, arm: str, site: str) -> Floats | None:
    """`SiteBalls.after` in a control arm."""
    return _contracted(evidence, _words(evidence, arm, site), evidence.anatomy.norms[site].direction)


def _words(evidence: Evidence, arm: str, site: str) -> Sampled:
    """One token per word form: copies of a point have no shape."""
    return evidence[SAMPLES][arm].ordinary(evidence.anatomy, site).distinct()


def _outside(sample: Sampled) -> int:
    """How many tokens lie outside the document that has most of them."""
    return len(sample) - int(np.bincount(sample.document).max(initial=0))


def _contracted(evidence: Evidence, sample: Sampled, onto: "Callable[[Tensor], Tensor]") -> Floats | None:
    import torch

    from armillary.geometry.clouds.local_spread import contracted

    if _outside(sample) < 2 * NEIGHBOURS:
        return None
    document = torch.from_numpy(sample.document)
    return _grouped(evidence, sample, contracted(sample.x, onto, SCALES, NEIGHBOURS, CENTRES, evidence.seed, document))


def _grouped(evidence: Evidence, sample: Sampled, balls: "Balls") -> Floats:
    """The balls' sums, added by the document group of their centre."""
    assert evidence.corpus is not None
    sums = np.zeros((evidence.corpus.groups, *balls.sums().shape[1:]))
    np.add.at(sums, sample.document[balls.centres] % evidence.corpus.groups, balls.sums())
    return sums


def _own_balls(evidence: Evidence, sample: Sampled) -> Floats | None:
    """Sums in balls that hold the tokens themselves."""
    import torch

    from armillary.geometry.clouds.local_spread import radial_to_tangential

    counts = [k for k in OWN_BALLS if k + 1 < _outside(sample)]
    if len(counts) < 3:
        return None
    balls = radial_to_tangential(sample.z, counts, OWN_CENTRES, evidence.seed, torch.from_numpy(sample.document))
    return _grouped(evidence, sample, balls)
