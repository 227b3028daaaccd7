"""How much of what heads do is explained by regions, and are the regions of different heads different?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.grid.regions.partition import Explained, explain
from armillary.probes.grid.regions.readings import read_heads, region_documents
from armillary.probes.machinery import MODEL, NAN3, Flags, Floats, Interval, Ints, T, discoveries, median_defined
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.intervals import interval, intervals, redrawn

REGION, RANDOM_PARTITION = 1, 2
DRAWS = 400


@dataclass(frozen=True, eq=False)
class RegionPasses:
    """Per arm and layer what regions explain."""

    layers: tuple[int, ...]
    arms: Mapping[str, Sequence[Explained]]
    places: Ints
    """[token, (document, position, token)] of the model's arm."""


def region_passes(bench: Bench) -> RegionPasses | None:
    """None with too few documents, or where a half of them has too few tokens for regions of its own."""
    if region_documents(bench.corpus) < T.regions_documents:
        return None
    counts = np.bincount(np.concatenate([np.array(window.ids) for window in bench.corpus.windows]))
    arms: dict[str, list[Explained]] = {}
    first = read_heads(bench)
    if np.bincount(first.places[:, 0] % 2, minlength=2).min() < T.tokens_least:
        return None
    for arm in (MODEL, *bench.twins):
        readings = first if arm == MODEL else read_heads(bench.arm(arm))
        frequency = counts[readings.places[:, 2]].astype(np.float64)
        arms[arm] = [
            explain(
                z.float().numpy(),
                readings.heads[layer].numpy(),
                readings.places,
                frequency,
                bench.corpus.groups,
                bench.seed,
            )
            for layer, z in readings.z.items()
        ]
    return RegionPasses(tuple(first.z), arms, first.places)


def by_document(parts: Sequence[Explained]) -> Floats:
    """[group, layer, head, measure, (all, region, random partition)]."""
    return np.stack([part.squares for part in parts], 1)


def shares(sums: Floats, which: int = REGION) -> Floats:
    """[…, measure]: the share that region (or a random partition) explains, from sums […, measure, 3].

    A head that always does the same has nothing to explain: 0.
    """
    whole = np.where(sums[..., 0] > 0, sums[..., 0], 1)
    return np.where(sums[..., 0] > 0, 1 - sums[..., which] / whole, 0.0)


def head_shares(sums: Floats, which: int = REGION) -> Floats:
    """[…, layer, head]: the mean of the measures."""
    return np.asarray(shares(sums, which).mean(-1))


def median_share(parts: Sequence[Explained], seed: int, which: int = REGION) -> Interval:
    """Of the median head, over documents."""
    return interval(
        by_document(parts), lambda sums: np.median(head_shares(sums, which).reshape(len(sums), -1), axis=1), seed, DRAWS
    )


def layer_shares(parts: Sequence[Explained], seed: int, which: int = REGION) -> Floats:
    """[layer, (value, low, high)]: of each layer's median head."""
    return intervals(by_document(parts), lambda sums: np.median(head_shares(sums, which), axis=-1), seed, DRAWS)


def region_heads(parts: Sequence[Explained], seed: int) -> Flags:
    """[layer, head]: is the share large enough, and above 0 by a normal law over documents, corrected for all heads?"""
    from scipy.special import ndtr

    sums = by_document(parts)
    used = sums[(sums != 0).any(tuple(range(1, sums.ndim)))]
    value = head_shares(used.sum(0))
    if len(used) < T.documents_least:
        return np.zeros(value.shape, dtype=bool)
    drawn = head_shares(np.tensordot(redrawn(len(used), DRAWS, seed)[1:], used, 1))
    spread = np.maximum(drawn.std(0, ddof=1), 1e-12)
    return np.asarray(discoveries(ndtr(-value / spread)) & (value >= T.regions_share))


def alike(parts: Sequence[Explained], seed: int) -> Interval:
    """Agreement of two heads of a layer on the regions where they write much, median over layers: 1 for the same
    regions, 0 for unrelated ones. Profiles of the two halves are multiplied, so that noise does not count."""
    fitted = np.stack([part.fitted for part in parts])
    profiles = np.stack([part.profiles for part in parts], 1)
    # Layers in which the halves do not agree about any head have no profiles to compare.
    defined = np.isfinite(layers_alike(profiles.sum(0)[None], fitted)[0])
    if not defined.any():
        return NAN3
    return interval(profiles[:, defined], lambda sums: _medians(layers_alike(sums, fitted[defined])), seed, DRAWS)


def _medians(values: Floats) -> Floats:
    """[draw]: of the layers that have a value."""
    return np.array([median_defined(row) for row in values])


def layers_alike(sums: Floats, fitted: Floats) -> Floats:
    """[draw, layer] from profiles [draw, layer, half, region, (tokens, heads …)] and [layer, half, region, head]."""
    tokens = sums[..., :1]
    means = sums[..., 1:] / np.maximum(tokens, 1)
    weights = tokens / np.maximum(tokens.sum(-2, keepdims=True), 1)
    products = np.einsum("alfrh,alfrg->alhg", weights * fitted, means)
    heads = products.shape[-1]
    own = np.einsum("alhh->al", products) / heads
    other = (products.sum((-2, -1)) - own * heads) / max(heads * (heads - 1), 1)
    return np.where(own > 0, other / np.where(own > 0, own, 1), np.nan)
