"""How much do the leading singular vectors of W_QK overlap with principal axes of the data, and by chance?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.decomposed_heads import DecomposedHeads, LayerHeads, decomposed
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, Evidence, Floats, over_sites

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy

RANK = 8
NULLS = 32
BLOCKS = 8


@dataclass(frozen=True, eq=False)
class AxisOverlaps:
    """Overlaps: mean cos² of principal angles between subspaces of `RANK` dimensions; sides are query and key."""

    data: Floats  # [side, layer, head] with the axes of the directions that the head reads
    words: Floats  # [side, layer, head] with the axes of the token embeddings
    null: Floats  # [layer, 1]: mean for Gaussian heads behind the same norm
    null_spread: Floats  # [layer, 1]: standard deviation for such heads

    @property
    def larger(self) -> Floats:
        """[layer, head]: the overlap of the larger side."""
        return np.asarray(self.data.max(0))

    @property
    def ratio(self) -> Floats:
        """[layer, head]: the larger side over a random head's."""
        return self.larger / self.null

    @property
    def p(self) -> Floats:
        """[layer, head]: probability that a random head overlaps as much, by a normal approximation."""
        from scipy.stats import norm

        # The larger of two sides: twice the probability of one.
        return np.asarray(np.minimum(1.0, 2 * norm.sf((self.larger - self.null) / np.maximum(self.null_spread, 1e-12))))


def axis_overlaps(evidence: Evidence, arm: str) -> AxisOverlaps:
    layers, anatomy = decomposed(evidence, arm), evidence.model(arm)

    def of_layer(name: str) -> tuple[Floats, Floats, Floats]:
        index = int(name)
        even, odd = evidence[COVARIANCES][arm].halves(_site(evidence, index))
        data, words = _principal((even + odd).covariance()), _principal(_word_covariance(anatomy, index))
        rank = data.shape[1]
        sides = [side[..., :rank] for side in (layers[index].qk.left, layers[index].qk.right)]
        # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised the random twin.
        generator = np.random.default_rng([evidence.seed, index])
        null = _overlaps(_random_heads(layers[index], generator)[..., :rank], data)
        return (
            np.stack([_overlaps(side, data) for side in sides]),
            np.stack([_overlaps(side, words) for side in sides]),
            np.array([np.mean(null), np.std(null, ddof=1)]),
        )

    parts = over_sites([str(i) for i in range(len(layers))], of_layer).values()
    data, words, null = (np.stack(part) for part in zip(*parts, strict=True))
    return AxisOverlaps(data.swapaxes(0, 1), words.swapaxes(0, 1), null[:, :1], null[:, 1:])


def jackknife_error(evidence: Evidence, overlaps: AxisOverlaps) -> float:
    """1.96 standard errors of the median ratio: axes of sampled tokens, without one group of documents at a time."""
    from armillary.geometry.resample import jackknife_se

    layers: DecomposedHeads = decomposed(evidence)
    samples = {
        str(i): evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, _site(evidence, i)) for i in range(len(layers))
    }
    groups = [np.unique(sample.document % BLOCKS) for sample in samples.values()]
    if min(map(len, groups)) < 2 or min(map(len, samples.values())) < 4 * RANK:
        return float("nan")

    def without_each(name: str) -> Floats:
        """[group, head]: the layer's ratios."""
        index, sample = int(name), samples[name]
        sides = (layers[index].qk.left, layers[index].qk.right)
        ratios = []
        for group in np.unique(sample.document % BLOCKS):
            z = sample.z[sample.document % BLOCKS != group]
            axes = _leading(z - z.mean(0), evidence.seed)
            ratios.append(np.max([_overlaps(side[..., : axes.shape[1]], axes) for side in sides], axis=0))
        return np.stack(ratios) / overlaps.null[index]

    parts = over_sites(list(samples), without_each)
    medians = np.median(np.concatenate(list(parts.values()), 1), axis=1)
    return 1.96 * float(jackknife_se(medians))


def _overlaps(sides: "Tensor", axes: "Tensor") -> Floats:
    """Of every head's subspace [h, d, r] with one set of axes [d, s]."""
    from armillary.geometry.subspace import overlap

    return np.asarray(overlap(sides.cpu(), axes.expand(len(sides), -1, -1)).numpy())


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


def _principal(covariance: "Tensor") -> "Tensor":
    import torch

    rank = min(RANK, covariance.shape[0] - 1)
    return torch.linalg.eigh(covariance.double().cpu()).eigenvectors[:, -rank:]


def _random_heads(layer: LayerHeads, generator: np.random.Generator) -> "Tensor":
    """Leading vectors [NULLS, d, r] of heads with Gaussian weights behind this layer's gain and centring."""
    import torch

    from armillary.geometry.factored import Factored

    (_, d, k), norm = layer.folded.A_Q.shape, layer.folded.norm
    sides = []
    for _ in range(2):
        side = torch.from_numpy(generator.standard_normal((NULLS, d, k)))
        if norm is not None:
            side = side * norm.gain.double().cpu()[:, None]
            side = side - side.mean(1, keepdim=True) if norm.kind == "layernorm" else side
        sides.append(side)
    return Factored(*sides).svd().left


def _leading(z: "Tensor", seed: int) -> "Tensor":
    """Leading right singular vectors by subspace iteration, precise enough for a jackknife."""
    import torch

    rank = min(RANK, z.shape[1] - 1, len(z) - 1)
    basis = torch.randn(z.shape[1], 2 * rank, generator=torch.Generator().manual_seed(seed), dtype=z.dtype)
    for _ in range(8):
        basis = torch.linalg.qr(z.T @ (z @ basis)).Q
    return basis @ torch.linalg.svd(z @ basis, full_matrices=False).Vh.T[:, :rank]
