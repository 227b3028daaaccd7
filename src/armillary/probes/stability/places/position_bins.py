"""How far apart are the distributions of a norm's output in two ranges of positions? By energy distance."""

from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.position_samples import POSITION_SAMPLES, range_of, ranges
from armillary.probes.machinery import Evidence, Floats, Ints, T, over_sites
from armillary.probes.sphere.across_sites import document_weights
from armillary.probes.sphere.spectra.clouds import crossed_mean, membership

DRAWS = 400


def energy(between: Floats, first: Floats, second: Floats) -> Floats:
    """1 − (mean distance within either)/(mean distance between): 0 for equal distributions, 1 for two far points."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - (first + second) / (2 * between))


@dataclass(frozen=True, eq=False)
class BinDistances:
    """Of one norm, [1 + draw]: between the earliest and the latest range of positions, and between two halves of the
    documents in one of these."""

    between: Floats
    halves: Floats
    pairs: Floats
    """[range, range] of the text itself."""
    radius: float
    """The largest deviation of any range's mean length of z from √d, over √d."""


def distances(points: Floats, document: Ints, bins: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """`between`, `halves` and `pairs`, from points [n, d] and the number of each one's range.

    Pairs of tokens of one document are left out: they are alike for its own sake.
    """
    import torch

    present = np.unique(bins)
    cloud = torch.from_numpy(points)
    apart = torch.cdist(cloud, cloud).numpy()
    groups = weights.shape[1]
    member = {first: membership(document[bins == first], groups) for first in present}
    means: dict[tuple[int, int], Floats] = {}
    for i, first in enumerate(present):
        for second in present[i:]:
            sums = member[first] @ apart[np.ix_(bins == first, bins == second)] @ member[second].T
            size = member[first].sum(1), member[second].sum(1)
            means[first, second] = _crossed(sums, *size, weights)
    pairs = np.full((len(present), len(present)), np.nan)
    for i, first in enumerate(present):
        for j, second in enumerate(present[i + 1 :], i + 1):
            between = energy(means[first, second], means[first, first], means[second, second])
            pairs[i, j] = pairs[j, i] = between[0]
    ends = present[[0, -1]]
    between = energy(means[tuple(ends)], *(means[end, end] for end in ends))
    halves = [_halves(apart[np.ix_(bins == end, bins == end)], member[end], weights) for end in ends]
    return between, np.mean(halves, axis=0), pairs


def _crossed(sums: Floats, first: Floats, second: Floats, weights: Floats) -> Floats:
    """[draw]: the mean over pairs of tokens of different documents, one from either range."""
    sums, count = sums.copy(), np.outer(first, second)
    for table in (sums, count):
        np.fill_diagonal(table, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.einsum("bg,gh,bh->b", weights, sums, weights)
        return np.asarray(total / np.einsum("bg,gh,bh->b", weights, count, weights))


def _halves(apart: Floats, member: Floats, weights: Floats) -> Floats:
    """The distance between documents of even and of odd number, within one range."""
    sums, size = member @ apart @ member.T, member.sum(1)
    even = np.arange(len(size)) % 2 == 0
    even_size, odd_size = np.where(even, size, 0), np.where(even, 0, size)
    inside = [
        crossed_mean(np.where(np.outer(own > 0, own > 0), sums, 0), own, weights) for own in (even_size, odd_size)
    ]
    return energy(_crossed(np.where(np.outer(even, ~even), sums, 0), even_size, odd_size, weights), *inside)


def counted_ranges(evidence: Evidence) -> list[int]:
    """The ranges of positions with enough tokens and documents at every norm of every arm."""
    counted = []
    state = evidence[POSITION_SAMPLES]
    samples = [rows.sample() for arm in state.values() for rows in arm.rows.values()]
    for index in range(len(ranges())):
        inside = [(s.marks == 0) & (range_of(s.payload[:, 1]) == index) for s in samples]
        tokens = min(int(where.sum()) for where in inside)
        documents = min(len(np.unique(s.payload[where, 0])) for s, where in zip(samples, inside, strict=True))
        if tokens >= T.tokens_least and documents >= T.documents_least:
            counted.append(index)
    return counted


def site_distances(evidence: Evidence, arm: str, counted: list[int]) -> dict[str, BinDistances]:
    """Of y at every norm, over the counted ranges."""
    weights = document_weights(evidence, DRAWS)
    anatomy = evidence.model(arm)

    def of(site: str) -> BinDistances:
        sample, norm = evidence[POSITION_SAMPLES][arm].rows[site].sample(), anatomy.norms[site]
        bins = range_of(sample.payload[:, 1]).numpy()
        chosen = (sample.marks.numpy() == 0) & np.isin(bins, counted)
        x = sample.rows[chosen]
        radius = norm.direction(x).double().norm(dim=1).numpy() / norm.d**0.5
        y = norm(x.to(norm.gain.device)).double().cpu().numpy()
        bins, document = bins[chosen], sample.payload[chosen, 0].numpy()
        off = max(abs(float(radius[bins == index].mean()) - 1) for index in counted)
        return BinDistances(*distances(y, document, bins, weights), off)

    return over_sites(evidence.sites, of)
