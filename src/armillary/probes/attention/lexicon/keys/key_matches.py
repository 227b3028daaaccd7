"""How few of its keys does a word match, and how few would it match by chance? Keys are a head's left singular vectors,
or the units of a feed-forward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.lexicon.word_directions import oriented, word_directions
from armillary.probes.machinery import Evidence, Floats, Ints, once

if TYPE_CHECKING:
    from torch import Tensor

ROTATIONS, BATCH, ENOUGH = 999, 40, 10
# Rotations are k × k matrices: heads of 256 dimensions get fewer of them, so that all fit in 128 MB.
NUMBERS = 1 << 24

Measure = Callable[["Tensor"], "Tensor"]
"""From coordinates of words in the keys' span […, axis], which may be overwritten, to concentrations […]."""


@dataclass(frozen=True, eq=False)
class KeyMatches:
    """Concentration Σp² of every word's update over keys."""

    values: Floats  # [word, layer, head, (as it is, keys rotated, words rotated)], or without heads
    p: Floats  # [layer, head], or [layer]

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
    size = vocabulary(evidence, arm).anatomy.k
    turns = random_rotations(evidence, min(rotations, max(199, NUMBERS // size**2)), size)
    values, p = [], []
    for layer, z in zip(layers, word_directions(evidence, arm, layers, ids), strict=True):
        svd = oriented(evidence, arm, layer, ids)
        heads = [
            matched(z.values.double() @ u, partial(concentration, values=s), turns)
            for u, s in zip(svd.left, svd.values, strict=True)
        ]
        values.append(np.stack([head.values for head in heads], 1))
        p.append([head.p for head in heads])
    return KeyMatches(np.stack(values, 1), np.array(p))


@once
def random_rotations(evidence: Evidence, count: int, size: int) -> "Tensor":
    """[count, size, size], uniform over rotations."""
    import torch

    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised an untrained model.
    normal = torch.from_numpy(np.random.default_rng(evidence.seed).standard_normal((count, size, size)))
    # Q of a Gaussian matrix is uniform over rotations once R's diagonal is made positive.
    q, r = torch.linalg.qr(normal)
    return (q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]).to(evidence.anatomy.device)


@dataclass(frozen=True, eq=False)
class Matched:
    """One set of keys: concentrations as they are and by chance."""

    values: Floats  # [word, (as it is, keys rotated, words rotated)]
    observed: float
    drawn: tuple[Floats, Floats]  # the mean over words under each rotation of keys, and of words

    @property
    def p(self) -> float:
        """Share of rotations that are as concentrated, the larger of both kinds."""
        return max((1 + int((null >= self.observed - 1e-7).sum())) / (1 + len(null)) for null in self.drawn)

    @property
    def student_p(self) -> float:
        """The same from few rotations: how likely one more of them is as concentrated, by Student's distribution."""
        from scipy.stats import t

        away = [(self.observed - null.mean()) / max(null.std(ddof=1), 1e-12) for null in self.drawn]
        return max(
            float(t.sf(far / np.sqrt(1 + 1 / len(null)), len(null) - 1))
            for far, null in zip(away, self.drawn, strict=True)
        )


def matched(
    coordinates: "Tensor",
    measure: Measure,
    rotations: "Tensor",
    first: int | None = None,
    enough: int | None = ENOUGH,
    batch: int = BATCH,
) -> Matched:
    """Coordinates [word, axis] in the keys' span, compared with rotated keys and with rotated words.

    Words are whitened, rotated and shaped back: all of them give mean and covariance, the `first` ones are measured.
    Rotations are drawn until `enough` of them are as concentrated, or all of them.
    """
    import torch

    mean = coordinates.mean(0)
    variance, axes = torch.linalg.eigh((coordinates - mean).mT @ (coordinates - mean) / len(coordinates))
    axes = signed(axes)
    # Axes whose variance is only rounding hold nothing to rotate.
    spread = torch.where(variance > 1e-12 * variance[-1], variance, 0.0).sqrt()
    rows = coordinates[:first]
    white = (rows - mean) @ axes * torch.where(spread > 0, 1 / spread, 0.0)
    as_is = measure(rows.float())
    chance = partial(_by_chance, measure=measure, observed=as_is.mean(), enough=enough, batch=batch)
    keys, by_keys = chance(rows, torch.zeros_like(mean), rotations)
    words, by_words = chance(white, mean, rotations @ (spread[:, None] * axes.mT).to(rotations))
    values = torch.stack([as_is, keys, words], -1).double().cpu().numpy()
    return Matched(values, float(as_is.mean()), (by_keys.cpu().numpy(), by_words.cpu().numpy()))


def signed(axes: "Tensor") -> "Tensor":
    """Columns with their largest component positive: a library may give either sign, and so another rotation."""
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    return axes * largest.sign()


def _by_chance(
    rows: "Tensor",
    mean: "Tensor",
    rotations: "Tensor",
    measure: Measure,
    observed: "Tensor",
    enough: int | None,
    batch: int,
) -> tuple["Tensor", "Tensor"]:
    """Mean concentration of every word over the rotations, and of every rotation over the words.

    Rotations are drawn until enough of them are as concentrated: a head that chance explains needs few (Besag and
    Clifford, 1991).
    """
    import torch

    total, drawn, above = torch.zeros(len(rows), device=rows.device), list["Tensor"](), 0
    for some in torch.split(rotations.float(), batch):
        # One product for all rotations: [word, key] with [key, rotation · key].
        rotated = (rows.float() @ some.transpose(0, 1).flatten(1)).view(len(rows), len(some), -1)
        concentrations = measure(rotated.add_(mean.float()))
        total = total + concentrations.sum(1)
        drawn.append(concentrations.mean(0))
        above += int((drawn[-1] >= observed - 1e-7).sum())
        if enough is not None and above >= enough:
            break
    return total / sum(map(len, drawn)), torch.cat(drawn)


def concentration(coordinates: "Tensor", values: "Tensor") -> "Tensor":
    """Σp² over keys […] of coordinates […, key], which are overwritten; 0 where nothing is written."""
    energy = coordinates.mul_(values.to(coordinates)).square_()
    total = energy.sum(-1)
    return energy.square_().sum(-1) / total.square_().clamp_min_(1e-30)


def ratios(means: Floats) -> Floats:
    """Concentration over the larger by chance, of means […, 3]; 1 where a head writes nothing."""
    chance = means[..., 1:].max(-1)
    return np.where(chance > 0, means[..., 0] / np.where(chance > 0, chance, 1), 1.0)
