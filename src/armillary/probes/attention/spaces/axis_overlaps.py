"""How much do the leading singular vectors of W_QK overlap with principal axes of the data, and by chance?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.spaces.decomposed_heads import LayerHeads, decomposed
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, Evidence, Floats, Interval, once, over_sites
from armillary.probes.machinery.intervals import Statistic, intervals, null_interval

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy

RANK = 8
GAUSSIANS = 64
DRAWS, TWIN_DRAWS = 400, 100
# Axes of resampled documents are looked for among this many leading axes of the whole text.
WIDE = 4 * RANK


@dataclass(frozen=True, eq=False)
class LayerAxes:
    """One layer's singular vectors, seen along the leading axes of the data that it reads."""

    sums: Floats
    """[document group, 1 + WIDE + WIDE²]: count, sum and sum of products of the directions along these axes."""
    heads: Floats
    """[side, head, WIDE, RANK]: query and key side of the layer's heads, then of Gaussian ones behind the same norm."""
    words: Floats
    """[side, head]: overlap with the axes of the token embeddings."""


@dataclass(frozen=True, eq=False)
class AxisOverlaps:
    """Overlaps: mean cos² of principal angles between subspaces of `RANK` dimensions; sides are query and key.

    A head's overlap is that of its larger side, and so is a random head's: the two are compared like with like.
    """

    sides: Floats  # [side, layer, head]
    gaussian: Floats  # [layer, random head]: the larger side of random heads
    words: Floats  # [side, layer, head]: with the axes of the token embeddings
    median: Interval  # the median head's ratio to random heads, over documents
    shared: Interval  # the median head's overlap, over documents

    @property
    def larger(self) -> Floats:
        """[layer, head]: the overlap of the larger side."""
        return np.asarray(self.sides.max(0))

    @property
    def null(self) -> Floats:
        """[layer, 1]: a random head's, on average."""
        return np.asarray(self.gaussian.mean(1, keepdims=True))

    @property
    def ratio(self) -> Floats:
        """[layer, head]: a head's overlap over a random head's."""
        return self.larger / self.null

    @property
    def p(self) -> Floats:
        """[layer, head]: probability that a random head overlaps as much, by a normal approximation."""
        from scipy.stats import norm

        spread = self.gaussian.std(1, ddof=1, keepdims=True)
        return np.asarray(norm.sf((self.larger - self.null) / np.maximum(spread, 1e-12)))

    def by_chance(self, seed: int, draws: int = 400) -> Interval:
        """The median ratio if as many random heads stood in place of the layers' own."""
        draw = np.random.default_rng(seed)
        layers, heads = self.ratio.shape
        picked = draw.integers(self.gaussian.shape[1], size=(draws, layers, heads))
        ratios = self.gaussian[np.arange(layers)[:, None], picked] / self.null
        return null_interval(np.median(ratios.reshape(draws, -1), axis=1))


def axis_overlaps(evidence: Evidence, arm: str, layers: Sequence[int], words: bool = False) -> AxisOverlaps:
    """The overlaps of these layers of an arm, with the axes of the token embeddings too if `words` says so."""
    heads = decomposed(evidence, arm)
    parts = over_sites([str(i) for i in layers], lambda name: _layer(evidence, arm, heads[int(name)], words)).values()
    sums, count = np.stack([part.sums for part in parts], 1), evidence.anatomy.n_heads

    def sides(sums: Floats) -> Floats:
        """[draw, side, layer, head]: the heads of each layer, and after them the random ones."""
        return np.stack([_sides(sums[:, i], part.heads) for i, part in enumerate(parts)], 2)

    def medians(sums: Floats) -> Floats:
        """[draw, (ratio, overlap)] of the median head."""
        larger = sides(sums).max(1)
        own, null = larger[..., :count], larger[..., count:].mean(-1, keepdims=True)
        return np.stack([np.median(each.reshape(len(sums), -1), 1) for each in (own / null, own)], -1)

    whole = sides(sums.sum(0)[None])[0]
    median, shared = _centred(evidence, sums, medians, DRAWS if arm == MODEL else TWIN_DRAWS)
    return AxisOverlaps(
        sides=whole[..., :count],
        gaussian=whole[..., count:].max(0),
        words=np.stack([part.words for part in parts], 1),
        median=median,
        shared=shared,
    )


def _centred(evidence: Evidence, sums: Floats, medians: Statistic, draws: int) -> list[Interval]:
    """The intervals of several statistics over documents, moved so that the draws' median is the measured value.

    Axes of resampled documents are noisier than those of all documents, and overlap less with anything.
    """
    calls: list[Floats] = []

    def recorded(sums: Floats) -> Floats:
        calls.append(medians(sums))
        return calls[-1]

    value, low, high = intervals(sums, recorded, evidence.seed, draws).T
    shift = value - np.median(max(calls, key=len), axis=0)
    return [(v, a, b) for v, a, b in np.stack([value, low + shift, high + shift], -1).tolist()]


def _layer(evidence: Evidence, arm: str, layer: LayerHeads, words: bool) -> LayerAxes:
    import torch

    anatomy, corpus, index = evidence.model(arm), evidence.corpus, layer.folded.layer
    assert corpus is not None, "principal axes of activations need a text"
    sample = evidence[SAMPLES][arm].ordinary(anatomy, _site(evidence, index))
    z = (sample.z - sample.z.mean(0)).cpu()
    wide = _principal(z.T @ z, min(WIDE, z.shape[1] - 1, max(1, len(z) - 1)))
    along = (z @ wide).numpy()
    rows = np.concatenate([np.ones((len(z), 1)), along, np.einsum("ni,nj->nij", along, along).reshape(len(z), -1)], 1)
    sums = np.zeros((corpus.groups, rows.shape[1]))
    np.add.at(sums, corpus.group(torch.from_numpy(sample.document)).numpy(), rows)
    sides = [side[..., :RANK].cpu() for side in (layer.qk.left, layer.qk.right)]
    norm = layer.folded.norm
    gain = None if norm is None else norm.gain.double().cpu().numpy().tobytes()
    gaussian = _gaussian_heads(evidence, anatomy.d, anatomy.k, None if norm is None else norm.kind, gain)
    axes = _principal(_word_covariance(anatomy, index), min(RANK, anatomy.d - 1)) if words else None
    return LayerAxes(
        sums=sums,
        heads=np.stack([(wide.T @ torch.cat(pair)).numpy() for pair in zip(sides, gaussian, strict=True)]),
        words=np.stack([np.zeros(len(side)) if axes is None else _shared(axes.T @ side) for side in sides]),
    )


def _shared(cosines: "Tensor") -> Floats:
    """Mean cos² of principal angles from the products [h, r, s] of two orthonormal bases."""
    return np.asarray((cosines.square().sum((-2, -1)) / min(cosines.shape[-2:])).numpy())


def _sides(sums: Floats, heads: Floats) -> Floats:
    """[draw, side, head]: overlap with the principal axes of sums [draw, …] of heads [side, head, WIDE, RANK]."""
    wide, rank = heads.shape[2:]
    count = np.maximum(sums[:, :1], 1)
    mean, products = sums[:, 1 : 1 + wide] / count, sums[:, 1 + wide :] / count
    covariance = products.reshape(-1, wide, wide) - mean[:, :, None] * mean[:, None]
    axes = np.linalg.eigh(covariance)[1][:, :, -RANK:]
    cosines = axes.swapaxes(1, 2) @ np.moveaxis(heads, 2, 0).reshape(wide, -1)
    squares = np.square(cosines).sum(1).reshape(len(sums), *heads.shape[:2], rank).sum(-1)
    return np.asarray(squares / min(rank, axes.shape[2]))


def _site(evidence: Evidence, index: int) -> str:
    from armillary.anatomy.folded import reading_norm

    # Where no norm stands before the first layer, the first norm of the model is the nearest to what that layer reads.
    return reading_norm(evidence.anatomy, index)[0] or evidence.sites[0]


def _word_covariance(anatomy: "Anatomy", index: int) -> "Tensor":
    import torch

    from armillary.anatomy.vocabulary import Vocabulary

    # Five thousand tokens, evenly spread over the vocabulary, show its axes; their texts do not matter.
    some = torch.arange(0, anatomy.vocabulary, max(1, anatomy.vocabulary // 5000), device=anatomy.device)
    z = Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset()).directions(index, some).values
    z = z - z.mean(0)
    return z.T @ z / len(z)


def _principal(covariance: "Tensor", rank: int) -> "Tensor":
    import torch

    return torch.linalg.eigh(covariance.double().cpu()).eigenvectors[:, -rank:]


@once
def _gaussian_heads(
    evidence: Evidence, d: int, k: int, kind: str | None, gain: bytes | None
) -> "tuple[Tensor, Tensor]":
    """Leading vectors [random head, d, r], query and key side, of Gaussian weights behind this gain and centring."""
    import torch

    from armillary.geometry.factored import Factored

    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised an untrained model.
    generator = np.random.default_rng(evidence.seed)
    sides = []
    for _ in range(2):
        side = torch.from_numpy(generator.standard_normal((GAUSSIANS, d, k)))
        if gain is not None:
            side = side * torch.from_numpy(np.frombuffer(gain).copy())[:, None]
        sides.append(side - side.mean(1, keepdim=True) if kind == "layernorm" else side)
    svd = Factored(*sides).svd()
    # Copies: a view would keep all k vectors of every layer's random heads, a gigabyte for 30 layers of width 576.
    return svd.left[..., :RANK].clone(), svd.right[..., :RANK].clone()
