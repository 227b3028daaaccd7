"""At every norm: how well do angle, distance and length separate, and does a norm ignore scale?"""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.samples import SAMPLES, Sampled
from armillary.probes.machinery import MODEL, Evidence, Floats, over_sites, spread
from armillary.probes.sphere.across_sites import document_weights
from armillary.probes.sphere.directions.displacements import FACTORS
from armillary.probes.sphere.directions.next_token_pairs import COSINE, DRAWS, EUCLIDEAN, pairs_of

if TYPE_CHECKING:
    from armillary.anatomy import Norm

MOST_SITES = 12


def separation_by_site(evidence: Evidence) -> tuple[Floats, Floats, Floats]:
    """AUC of cosine, distance and length [site, 3]; same pairs [site]; largest change of z under a scaling [site]."""

    def measure(site: str) -> tuple[Floats, int, float]:
        sample = evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, site)
        change = _scale_change(evidence.anatomy.norms[site], sample)
        pairs = pairs_of(sample, evidence.seed)
        return (np.full(3, np.nan), 0, change) if pairs is None else (pairs.aucs(), int(pairs.same.sum()), change)

    by_site = list(over_sites(evidence.sites, measure).values())
    aucs, pairs, changes = (np.array([row[i] for row in by_site]) for i in range(3))
    return aucs, pairs, changes


def _scale_change(norm: "Norm", sample: Sampled) -> float:
    changes = [(norm.direction(sample.x * factor) - sample.z).norm(dim=-1) / norm.d**0.5 for factor in FACTORS]
    return max(float(change.max()) for change in changes) if len(sample) else 0.0


def advantages(evidence: Evidence) -> tuple[Floats, Floats]:
    """[1 + draw, site]: AUC(cosine) − AUC(distance), and the spread of ‖x‖, at a dozen norms spread over the depth."""
    weights = document_weights(evidence, DRAWS)
    groups = weights.shape[1]

    def measure(site: str) -> tuple[Floats, Floats] | None:
        sample = evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, site)
        pairs = pairs_of(sample, evidence.seed)
        if pairs is None:
            return None
        aucs, length = pairs.drawn(weights), np.linalg.norm(sample.x.numpy(), axis=1)
        sums = np.zeros((groups, 3))
        np.add.at(sums, sample.document % groups, np.stack([np.ones(len(length)), length, length**2], 1))
        return aucs[:, COSINE] - aucs[:, EUCLIDEAN], spread(weights @ sums)

    sites = evidence.sites[:: max(1, -(-len(evidence.sites) // MOST_SITES))]
    measured = [row for row in over_sites(sites, measure).values() if row is not None]
    if len(measured) < 3:
        return np.zeros((0, 0)), np.zeros((0, 0))
    return np.stack([row[0] for row in measured], 1), np.stack([row[1] for row in measured], 1)
