"""How much of what a block gives is a linear function of what it gets? On documents that the map was not fitted to."""

from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.stream_pairs import STREAM_PAIRS, block_states
from armillary.probes.machinery import Evidence, Floats, over_sites
from armillary.probes.machinery.intervals import ratio
from armillary.probes.others.streams.sampled_stream import sampled_streams

# Ridge penalties, as shares of the mean variance. A penalty shrinks what the block adds towards nothing: towards the
# skip alone. Which one is used for one half of the documents is decided on the other.
PENALTIES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TOKENS, ERROR, WRITE, STREAM = range(4)


@dataclass(frozen=True, eq=False)
class BlockFits:
    """Of one arm."""

    blocks: tuple[str, ...]
    sums: Floats
    """[document group, block, (tokens, squared error, |write|², |stream after|²)], the latter about their means."""
    in_sample: Floats
    """[block]: the authors' score, fitted and measured on the same tokens."""
    fitted: int
    """Tokens that the smaller half was fitted to."""


def whole(sums: Floats) -> Floats:
    """[draw, block]: the share of the stream after a block that is linear in the stream before it."""
    return np.asarray(1 - ratio(sums, ERROR, STREAM))


def write(sums: Floats) -> Floats:
    """[draw, block]: the same for what the block adds; NaN where it adds nothing."""
    added = sums[..., WRITE] > 1e-12 * sums[..., STREAM]
    return np.asarray(np.where(added, 1 - ratio(sums, ERROR, WRITE), np.nan))


def skip(sums: Floats) -> Floats:
    """[draw, block]: the share that the skip alone explains, with no map fitted."""
    return np.asarray(1 - ratio(sums, WRITE, STREAM))


def block_fits(evidence: Evidence, arm: str) -> BlockFits:
    pairs = block_states(evidence.anatomy)
    measured = over_sites(list(pairs), lambda block: _fit(evidence, arm, block))
    counts = [half.count for block in pairs for half in evidence[STREAM_PAIRS][arm].halves(block)]
    sums, scores = zip(*measured.values(), strict=True)
    return BlockFits(tuple(pairs), np.stack(sums, 1), np.array(scores), min(counts))


def _fit(evidence: Evidence, arm: str, block: str) -> tuple[Floats, float]:
    assert evidence.corpus is not None
    before, after = block_states(evidence.anatomy)[block]
    streams, d, groups = sampled_streams(evidence, arm), evidence.anatomy.d, evidence.corpus.groups
    x, y = (streams.x[state.name].astype(np.float64) for state in (before, after))
    halves = evidence[STREAM_PAIRS][arm].halves(block)
    if min(half.count for half in halves) < 2:
        return np.zeros((groups, 4)), np.nan
    # halves[0] has the even documents: its map is tried on the odd ones.
    odd = streams.document % 2 == 1
    tried = [
        _errors(half.mean().numpy(), half.covariance().numpy(), x[of], y[of])
        for half, of in zip(halves, (odd, ~odd), strict=True)
    ]
    totals = [errors.sum(0) for errors, *_ in tried]
    sums = np.zeros((groups, 4))
    for side, of in enumerate((odd, ~odd)):
        errors, written, stream = tried[side]
        chosen = errors[:, int(np.argmin(totals[1 - side]))]
        np.add.at(sums, streams.document[of] % groups, np.stack((np.ones_like(chosen), chosen, written, stream), 1))
    return sums, _in_sample((halves[0] + halves[1]).covariance().numpy(), d)


def _errors(means: Floats, covariance: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Per token: squared errors for every penalty, |write|² and |stream after|², about the fitted half's means."""
    d = x.shape[1]
    values, vectors = np.linalg.eigh(covariance[:d, :d])
    values = np.maximum(values, 0)
    typical = max(float(values.mean()), 1e-300)
    joint = vectors.T @ (covariance[:d, d:] - covariance[:d, :d])
    away, after = (x - means[:d]) @ vectors, y - means[d:]
    added = after - (x - means[:d])
    maps = (away / (values + penalty * typical) @ joint for penalty in PENALTIES)
    errors = np.stack([np.square(added - predicted).sum(1) for predicted in maps], 1)
    return errors, np.square(added).sum(1), np.square(after).sum(1)


def _in_sample(covariance: Floats, d: int) -> float:
    """1 − min ‖X̃A − Ỹ‖² of centred clouds scaled to ‖X̃‖ = ‖Ỹ‖ = 1, as Razzhigaev et al. define it."""
    values, vectors = np.linalg.eigh(covariance[:d, :d])
    some = values > 1e-10 * values.max(initial=0)
    joint = vectors[:, some].T @ covariance[:d, d:]
    total = float(np.trace(covariance[d:, d:]))
    return float((joint**2 / values[some, None]).sum()) / total if total > 0 else float("nan")
