"""How few of a head's left singular vectors does a word match, and how few would it match by chance?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.lexicon.word_directions import oriented, word_directions
from armillary.probes.machinery import Evidence, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

ROTATIONS, BATCH, ENOUGH = 999, 40, 10
# Rotations are k × k matrices: heads of 256 dimensions get fewer of them, so that all fit in 128 MB.
NUMBERS = 1 << 24


@dataclass(frozen=True, eq=False)
class KeyMatches:
    """Concentration Σp² of every word's update over a head's directions."""

    values: Floats  # [word, layer, head, (as it is, keys rotated, words rotated)]
    p: Floats  # [layer, head]

    @property
    def ratio(self) -> Floats:
        """[layer, head]."""
        return ratios(self.values.mean(0))

    @property
    def keys(self) -> Floats:
        """[layer, head, 3]: effective number of keys that a word matches."""
        return 1 / np.maximum(self.values.mean(0), 1e-30)


def key_matches(
    evidence: Evidence, arm: str, ids: Ints, layers: Sequence[int], rotations: int = ROTATIONS
) -> KeyMatches:
    """The matches in these layers; fewer `rotations` give coarser p-values, and hardly another concentration."""
    import torch

    size = vocabulary(evidence, arm).anatomy.k
    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised an untrained model.
    count = min(rotations, max(199, NUMBERS // size**2))
    normal = torch.from_numpy(np.random.default_rng(evidence.seed).standard_normal((count, size, size)))
    # Q of a Gaussian matrix is uniform over rotations once R's diagonal is made positive.
    q, r = torch.linalg.qr(normal)
    turns = (q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]).to(evidence.anatomy.device)
    values, p = [], []
    for layer, z in zip(layers, word_directions(evidence, arm, layers, ids), strict=True):
        svd = oriented(evidence, arm, layer, ids)
        heads = [_head(z.values.double() @ u, s, turns) for u, s in zip(svd.left, svd.values, strict=True)]
        values.append(np.stack([concentrations for concentrations, _ in heads], 1))
        p.append([larger for _, larger in heads])
    return KeyMatches(np.stack(values, 1), np.array(p))


def _head(coordinates: "Tensor", values: "Tensor", rotations: "Tensor") -> tuple[Floats, float]:
    """[word, (as it is, keys rotated, words rotated)] for coordinates [word, key], and the larger p-value."""
    import torch

    mean = coordinates.mean(0)
    variance, axes = torch.linalg.eigh((coordinates - mean).mT @ (coordinates - mean) / len(coordinates))
    # Axes whose variance is only rounding hold nothing to rotate.
    spread = torch.where(variance > 1e-12 * variance[-1], variance, 0.0).sqrt()
    white = (coordinates - mean) @ axes * torch.where(spread > 0, 1 / spread, 0.0)
    as_is = concentration(coordinates.float(), values)
    keys, p_keys = _by_chance(coordinates, torch.zeros_like(mean), values, rotations, as_is.mean())
    words, p_words = _by_chance(white, mean, values, rotations @ (spread[:, None] * axes.mT), as_is.mean())
    return torch.stack([as_is, keys, words], -1).double().cpu().numpy(), max(p_keys, p_words)


def _by_chance(
    rows: "Tensor", mean: "Tensor", values: "Tensor", rotations: "Tensor", observed: "Tensor"
) -> tuple["Tensor", float]:
    """Mean concentration of every word under the rotations, and the p-value of the observed mean.

    Rotations are drawn until enough of them are as concentrated: a head that chance explains needs few (Besag and
    Clifford, 1991).
    """
    import torch

    total, drawn, above = torch.zeros(len(rows), device=rows.device), 0, 0
    for batch in torch.split(rotations.float(), BATCH):
        # One product for all rotations: [word, key] with [key, rotation · key].
        rotated = (rows.float() @ batch.transpose(0, 1).flatten(1)).view(len(rows), len(batch), -1)
        concentrations = concentration(rotated.add_(mean.float()), values)
        total, drawn = total + concentrations.sum(1), drawn + len(batch)
        above += int((concentrations.mean(0) >= observed - 1e-7).sum())
        if above >= ENOUGH:
            break
    return total / drawn, (above + 1) / (drawn + 1)


def concentration(coordinates: "Tensor", values: "Tensor") -> "Tensor":
    """Σp² over keys […] of coordinates […, key], which are overwritten; 0 where nothing is written."""
    energy = coordinates.mul_(values.to(coordinates)).square_()
    total = energy.sum(-1)
    return energy.square_().sum(-1) / total.square_().clamp_min_(1e-30)


def ratios(means: Floats) -> Floats:
    """Concentration over the larger by chance, of means […, 3]; 1 where a head writes nothing."""
    chance = means[..., 1:].max(-1)
    return np.where(chance > 0, means[..., 0] / np.where(chance > 0, chance, 1), 1.0)
