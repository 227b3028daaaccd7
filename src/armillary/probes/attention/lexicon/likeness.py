"""How alike are the tokens that a head's directions promote, and how alike would others be?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import sampled_words, vocabulary, whole
from armillary.probes.attention.lexicon.written_words import Words, onto_stream, turned
from armillary.probes.machinery.evidence import Evidence, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

DIRECTIONS, TOP = 8, 10
RANDOM_DIRECTIONS, SPREAD, MATCHES = 512, 100, 4
# The largest principal axes of embeddings tell how frequent a token is, not what it means; one in a hundred axes is what
# Mu and Viswanath (All-but-the-Top, 2018) take away. Left in, tokens that training hardly saw are as alike as synonyms.
COMMON = 0.01


@dataclass(frozen=True, eq=False)
class Read:
    """Top tokens of the first right vectors of every head, and how alike they are; [layer, head, direction]."""

    layers: tuple[int, ...]
    tokens: Ints  # [layer, head, direction, top]
    coherence: Floats
    values: Floats
    topics: Ints  # [layer, head, 2]
    matched: Floats  # [layer, head, direction, match]: tokens of like frequency
    random: Floats  # [direction]: top tokens of random directions
    plain: "Read | None" = None  # the same by embeddings that were centred only

    @property
    def weights(self) -> Floats:
        """Singular values as shares of their sum; equal where a head writes nothing."""
        total = self.values.sum(-1, keepdims=True)
        return np.where(total > 0, self.values / np.where(total > 0, total, 1), 1 / self.values.shape[-1])

    @property
    def found(self) -> Floats:
        return (self.weights * self.coherence).sum(-1)

    @property
    def chances(self) -> Floats:
        """[layer, head, (random directions, tokens of like frequency)]."""
        frequency = (self.weights * self.matched.mean(-1)).sum(-1)
        return np.stack([np.full_like(frequency, self.random.mean()), frequency], -1)

    @property
    def excess(self) -> Floats:
        """[layer, head] above the harder kind of chance."""
        return self.found - self.chances.max(-1)


def read_subjects(evidence: Evidence, arm: str, layers: Sequence[int]) -> Read:
    """Read the right vectors of the given layers in tokens, and measure how alike these are."""
    import torch

    words = Words.of(evidence, arm, letters=True)
    anatomy = vocabulary(evidence, arm).anatomy
    ids = sampled_words(evidence, whole(evidence, NOUNS))
    places, values = [], []
    for layer in layers:
        svd = turned(evidence, arm, layer, ids)
        right = onto_stream(anatomy, layer, svd.right[..., :DIRECTIONS].mT)
        tokens = words.top(right.flatten(0, 1), min(TOP, len(words.ids)))
        places.append(np.searchsorted(words.ids, tokens).reshape(*right.shape[:2], -1))
        values.append(svd.values[:, :DIRECTIONS].cpu().numpy())
    place = np.stack(places)
    draw = np.random.default_rng(evidence.seed)
    step = draw.integers(-SPREAD, SPREAD + 1, (*place.shape[:3], MATCHES, place.shape[-1]))
    near = np.clip(place[..., None, :] + step, 0, len(words.ids) - 1)
    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised the random twin.
    normal = torch.from_numpy(draw.standard_normal((RANDOM_DIRECTIONS, anatomy.d)))
    chance = np.searchsorted(words.ids, words.top(normal.to(words.rows), place.shape[-1]))
    rows = vocabulary(evidence, arm).embedded(torch.from_numpy(words.ids)).values.float()

    stems = _stems(evidence, words)
    lists = (place, near, chance)

    def by(unit: "Tensor", apart: Ints, plain: Read | None) -> Read:
        found, matched, random = (coherence(unit, each, apart) for each in lists)
        topics = words.ids[_medoids(unit, place[:, :, 0])]
        return Read(tuple(layers), words.ids[place], found, np.stack(values), topics, matched, random, plain)

    plain = by(specific(rows, 0), np.arange(len(words.ids)), None)
    return by(specific(rows, COMMON * anatomy.d), stems, plain)


def _stems(evidence: Evidence, words: Words) -> Ints:
    """A number for every token of letters, the same for the forms of one word."""
    texts = vocabulary(evidence).texts
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(stem(texts[i]), len(numbers)) for i in words.ids])


def stem(text: str) -> str:
    """A token without space, case and a few endings: by spelling alone, so that forms of one word fall together.

    >>> stem(" Houses") == stem("house"), stem(" Playing") == stem("plays"), stem(" sing") == stem("s")
    (True, True, False)
    """
    bare = text.strip().casefold()
    for ending in ("'s", "ing", "es", "ed", "s", "e"):
        if bare.endswith(ending) and len(bare) - len(ending) >= 3:
            return bare.removesuffix(ending)
    return bare


def specific(rows: "Tensor", common: float) -> "Tensor":
    """Embeddings on the unit sphere without their mean and so many of their largest principal axes (rounded up)."""
    import torch

    rows = rows - rows.mean(0)
    axes = torch.linalg.eigh(rows.mT @ rows).eigenvectors[:, rows.shape[1] - math.ceil(common) :]
    return torch.nn.functional.normalize(rows - rows @ axes @ axes.mT, dim=-1)


def coherence(unit: "Tensor", place: Ints, stems: Ints) -> Floats:
    """Mean cosine between the tokens of every list [..., top] that are no forms of one word; 0 where all are."""
    import torch

    made = []
    for part in np.array_split(place.reshape(-1, place.shape[-1]), 1 + place.size // 2**16):
        rows = unit[torch.from_numpy(part)]
        apart = stems[part][:, :, None] != stems[part][:, None]
        cosines = (rows @ rows.mT).double().cpu().numpy()
        made.append((cosines * apart).sum((1, 2)) / np.maximum(apart.sum((1, 2)), 1))
    return np.concatenate(made).reshape(place.shape[:-1])


def _medoids(unit: "Tensor", place: Ints) -> Ints:
    """[..., 2]: of every list the two tokens most like all others."""
    import torch

    rows = unit[torch.from_numpy(place)]
    total = (rows * rows.sum(-2, keepdim=True)).sum(-1).cpu().numpy()
    order = np.argsort(-total, axis=-1, kind="stable")[..., :2]
    return np.take_along_axis(place, order, -1)
