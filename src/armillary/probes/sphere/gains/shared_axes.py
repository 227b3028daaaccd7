"""How alike are gains, shifts and principal axes of two layers, by their distance?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.machinery import Evidence, Floats, over_sites

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.measures import Moments

# Principal axes that are compared: as many as d/16, the strongest.
AXES_SHARE = 16


@dataclass(frozen=True, eq=False)
class GainLikeness:
    """Correlations over axes of the gains (or shifts) of two layers' norms of the same name, by distance in layers."""

    gain: Floats
    """[distance − 1], the mean over pairs and norms; NaN where a gain is constant."""
    shift: Floats
    chance: float
    """How large the mean over neighbours gets by permuting axes, in 2.5 % of cases."""


def gain_likeness(evidence: Evidence) -> GainLikeness:
    anatomy = evidence.anatomy
    names = [site.split(".", 1)[1] for site in anatomy.norms if site.startswith("L0.")]
    stacks: dict[str, list[Floats]] = {"gain": [], "shift": []}
    for name in names:
        norms = [anatomy.norms[f"L{layer}.{name}"] for layer in range(anatomy.layers)]
        stacks["gain"].append(np.stack([norm.gain.double().cpu().numpy() for norm in norms]))
        if all(norm.shift is not None for norm in norms):
            stacks["shift"].append(np.stack([n.shift.double().cpu().numpy() for n in norms if n.shift is not None]))
    gain, shift = (_by_distance(stacks[part], anatomy.layers) for part in ("gain", "shift"))
    # A correlation over d permuted axes has variance 1/(d − 1); neighbouring pairs of one gain are nearly independent.
    count = max(1, len(names) * (anatomy.layers - 1))
    return GainLikeness(gain, shift, 1.96 / np.sqrt((anatomy.d - 1) * count))


def _by_distance(stacks: list[Floats], layers: int) -> Floats:
    matrices = []
    for rows in stacks:
        away = rows - rows.mean(1, keepdims=True)
        size = np.linalg.norm(away, axis=1)
        unit = away / np.where(size > 1e-9 * np.abs(rows).max(), size, np.nan)[:, None]
        matrices.append(unit @ unit.T)
    values = []
    for distance in range(1, layers):
        diagonals = [np.diagonal(matrix, distance) for matrix in matrices]
        known = np.concatenate(diagonals) if diagonals else np.zeros(0)
        known = known[np.isfinite(known)]
        values.append(float(known.mean()) if known.size else np.nan)
    return np.array(values)


@dataclass(frozen=True, eq=False)
class AxisOverlap:
    """Mean squared cosine of the angles between the strongest axes of z at two layers' norms of the same name, the axes
    of one from either half of the documents and those of the other from the other half."""

    by_distance: Floats
    """[distance, (value, low, high)] with distance 0 first, the halves of one layer: as alike as sampling allows. Low
    and high are the two ways of halving."""
    axes: int
    chance: float


def axis_overlap(evidence: Evidence, arm: str) -> AxisOverlap | None:
    """None where a half of the documents has too few tokens."""
    anatomy = evidence.anatomy
    sites = [f"L{layer}.ln1" for layer in range(anatomy.layers)]
    state, axes = evidence[COVARIANCES][arm], max(1, anatomy.d // AXES_SHARE)
    if min(half.count for site in sites for half in state.halves(site)) <= 2 * axes:
        return None
    bases = over_sites(sites, lambda site: [_strongest(half, axes) for half in state.halves(site)])
    rows = []
    for distance in range(anatomy.layers):
        near = [(bases[sites[i]], bases[sites[i + distance]]) for i in range(anatomy.layers - distance)]
        ways = [np.mean([_overlap(lower[way], upper[1 - way]) for lower, upper in near]) for way in (0, 1)]
        rows.append((np.mean(ways), min(ways), max(ways)))
    return AxisOverlap(np.array(rows, dtype=np.float64), axes, axes / anatomy.d)


def _strongest(moments: "Moments", axes: int) -> "Tensor":
    import torch

    return torch.linalg.eigh(moments.covariance())[1][:, -axes:]


def _overlap(axes: "Tensor", others: "Tensor") -> float:
    """Mean squared cosine of the principal angles of two orthonormal bases."""
    return float((axes.T @ others).square().sum()) / axes.shape[1]
