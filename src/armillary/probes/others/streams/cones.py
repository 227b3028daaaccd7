"""How narrow is the cone that tokens fill, and which dimensions make it so?"""

from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery import Evidence, Floats, over_sites
from armillary.probes.others.streams.sampled_stream import sampled_streams
from armillary.probes.sphere.across_sites import document_weights
from armillary.probes.sphere.spectra.clouds import mean_cosine, membership

DRAWS = 400
ROGUE = 3


@dataclass(frozen=True, eq=False)
class Cones:
    """Of one arm, [1 + draw, state]; the first draw is the text itself."""

    cosine: Floats
    """Mean cosine of two tokens of different documents."""
    rogue: Floats
    """The share of it that comes from three dimensions, found on the other half of the documents."""
    standardised: Floats
    """[state]: the mean cosine after every dimension has been given mean 0 and variance 1."""
    dimensions: tuple[tuple[int, ...], ...]
    """Per state the dimensions with the largest share over all documents."""
    tokens: int


def cones(evidence: Evidence, arm: str) -> Cones:
    streams = sampled_streams(evidence, arm)
    weights = document_weights(evidence, DRAWS)
    member = membership(streams.document, weights.shape[1])

    def of(state: str) -> tuple[Floats, Floats, float, tuple[int, ...]]:
        x = streams.x[state].astype(np.float64)
        spread = x.std(0)
        level = (x - x.mean(0)) / np.where(spread > 0, spread, 1)
        sums = member @ (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))
        shares = contributions(sums, np.ones((1, len(sums))))[0]
        named = tuple(np.argsort(-shares)[:ROGUE].tolist())
        return (
            mean_cosine(x, member, weights),
            rogue_share(sums, weights),
            mean_cosine(level, member, weights)[0],
            named,
        )

    measured = over_sites(list(streams.x), of)
    cosine, rogue, standardised, dimensions = zip(*measured.values(), strict=True)
    return Cones(np.stack(cosine, 1), np.stack(rogue, 1), np.array(standardised), dimensions, len(streams.document))


def cosines(evidence: Evidence, arm: str) -> Floats:
    """[1 + draw, state]: the mean cosine of two tokens of different documents alone."""
    streams = sampled_streams(evidence, arm)
    weights = document_weights(evidence, DRAWS)
    member = membership(streams.document, weights.shape[1])
    measured = over_sites(list(streams.x), lambda state: mean_cosine(streams.x[state].astype(float), member, weights))
    return np.stack(list(measured.values()), 1)


def contributions(sums: Floats, weights: Floats) -> Floats:
    """[draw, d]: what each dimension adds to the cosine of two tokens of different documents, up to a factor that all
    share, from sums of unit vectors [group, d] (Timkey and van Schijndel, section 3)."""
    return np.asarray((weights @ sums) ** 2 - weights**2 @ sums**2)


def rogue_share(sums: Floats, weights: Floats) -> Floats:
    """[draw]: the share of the largest dimensions. They are found on one half of the documents and weighed on the
    other, both ways: found and weighed on the same tokens, noise alone would have large ones. NaN where the mean
    cosine is not positive."""
    halves = [np.arange(len(sums)) % 2 == side for side in (0, 1)]
    shares = []
    for chosen, weighed in (halves, halves[::-1]):
        largest = np.argsort(-contributions(sums[chosen], np.ones((1, int(chosen.sum()))))[0])[:ROGUE]
        parts = contributions(sums[weighed], weights[:, weighed])
        total = parts.sum(1)
        shares.append(parts[:, largest].sum(1) / np.where(total > 0, total, np.nan))
    return np.asarray(np.mean(shares, axis=0))
