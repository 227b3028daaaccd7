"""How similar are the tokens along a head's directions, and how similar are tokens by chance?"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from armillary.probes.attention.lexicon.known_words import token_cells, vocabulary
from armillary.probes.attention.lexicon.themes.loudness import Loudness
from armillary.probes.attention.lexicon.themes.written_words import ReadableTokens, onto_stream, trained_ids
from armillary.probes.attention.lexicon.word_directions import word_directions
from armillary.probes.attention.spaces.decomposed_heads import TIE_MEANING, decomposed, vo_ties
from armillary.probes.machinery import Evidence, Floats, Interval, Ints, cells, once, once_if_small, p_values, table
from armillary.results import Table

if TYPE_CHECKING:
    from torch import Tensor

DIRECTIONS, TOP = 8, 10
RANDOM_DIRECTIONS, SPREAD, MATCHES, DRAWS = 64, 100, 4, 999
# With 64 random directions the excess of a head differs by 0.01 between seeds. In a small model more are cheap: as many
# as take this many products to read.
MOST_DIRECTIONS, PRODUCTS = 1024, 2**36
# The largest principal axes of embeddings encode how frequent a token is, not its meaning. Mu and Viswanath
# (All-but-the-Top, 2018) remove one axis in a hundred. With them, rarely trained tokens are as similar as synonyms.
COMMON = 0.01
# Draws that are computed together: few enough for the memory, enough for the time.
AT_ONCE = 50
Side = Literal["updates", "queries", "keys"]
"""Right vectors of W_VO, compared with output tokens; left and right vectors of W_QK, with tokens on the sphere."""


@dataclass(frozen=True, eq=False)
class PromotedTokens:
    """Top tokens of the first singular vectors of every head, on one side, and how similar they are."""

    layers: tuple[int, ...]
    tokens: Ints  # [layer, head, direction, rank]
    coherence: Floats  # [layer, head, direction]
    values: Floats  # [layer, head, direction]: singular values
    topics: Ints  # [layer, head, 2]: tokens of the first direction that are most similar to the others
    matched: Floats  # [layer, head, direction, match]: coherence of random tokens of similar frequency
    random: Floats  # [layer, head, draw]: coherence of the top tokens of random directions as loud as the head's

    @property
    def weights(self) -> Floats:
        """Singular values as shares of their sum; equal where a head writes nothing."""
        return shares(self.values)

    @property
    def head_coherence(self) -> Floats:
        """[layer, head]: mean over directions, weighted by singular value."""
        return np.asarray((self.weights * self.coherence).sum(-1))

    @property
    def chances(self) -> Floats:
        """[layer, head, (random directions, tokens of similar frequency)]."""
        frequency = (self.weights * self.matched.mean(-1)).sum(-1)
        return np.stack([self.random.mean(-1), frequency], -1)

    @property
    def excess(self) -> Floats:
        """[layer, head]: coherence above the larger chance level."""
        return self.head_coherence - self.chances.max(-1)

    def p(self, seed: int) -> Floats:
        """[layer, head]: the larger p-value against random directions and against tokens of similar frequency."""
        draw, size = np.random.default_rng(seed), self.coherence.shape[-1]
        shape = self.coherence.shape[:2]
        parts = []
        for pool in (self.random, np.broadcast_to(self.matched.reshape(-1), (*shape, self.matched.size))):
            null = pool[..., draw.integers(pool.shape[-1], size=(DRAWS, size))]
            parts.append(p_values(self.head_coherence, np.einsum("lhr,lhnr->nlh", self.weights, null)))
        return np.maximum(*parts)

    def intervals(self, statistics: Sequence[Callable[[Floats], float]], seed: int, draws: int = 400) -> list[Interval]:
        """Statistics of every head's excess [layer, head], with their intervals.

        The interval is a bootstrap over the directions of each head and over the draws of its chance level. All heads
        of the model are measured, so heads and layers are not drawn.
        """
        from armillary.geometry.resample import tails

        size = self.coherence.shape[-1]
        # The mean of 64 draws or more is normal, and need not be drawn from them.
        level, error = self.random.mean(-1), self.random.std(-1) / np.sqrt(self.random.shape[-1])
        frequent = self.matched.mean(-1)
        draw = np.random.default_rng(seed)
        heads = np.ogrid[tuple(slice(n) for n in self.coherence.shape[:2])]
        drawn = []
        for start in range(0, draws, AT_ONCE):
            rounds = range(start, min(draws, start + AT_ONCE))
            pairs = [
                (draw.integers(size, size=self.coherence.shape), draw.standard_normal(level.shape)) for _ in rounds
            ]
            directions, noise = map(np.stack, zip(*pairs, strict=True))
            picked = (*(axis[..., None] for axis in heads), directions)
            weight = shares(self.values[picked])
            chance = np.maximum(level + error * noise, (weight * frequent[picked]).sum(-1))
            excesses = (weight * self.coherence[picked]).sum(-1) - chance
            drawn += [[statistic(excess) for statistic in statistics] for excess in excesses]
        ends = np.quantile(drawn, tails(self.coherence.size), axis=0).T.tolist()
        return [(statistic(self.excess), low, high) for statistic, (low, high) in zip(statistics, ends, strict=True)]


def shares(values: Floats) -> Floats:
    """Singular values as shares of their sum; equal ones where all are 0."""
    total = values.sum(-1, keepdims=True)
    return np.where(total > 0, values / np.where(total > 0, total, 1), 1 / values.shape[-1])


def rise(layers: Sequence[int], last: int) -> Callable[[Floats], float]:
    """Of values [layer, head]: the rise of their mean over the whole depth (layers 0 to `last`) by least squares."""
    depth = np.array(layers) / last
    fit = (depth - depth.mean()) / np.square(depth - depth.mean()).sum()
    return lambda values: float(fit @ values.mean(1))


def affordable_directions(evidence: Evidence) -> int:
    """How many random directions each head of the model is compared with."""
    a = evidence.anatomy
    each = a.layers * a.n_heads * a.d * len(trained_ids(evidence))
    return max(RANDOM_DIRECTIONS, min(MOST_DIRECTIONS, PRODUCTS // each))


def promoted_tokens(
    evidence: Evidence,
    arm: str,
    layers: Sequence[int],
    centred: bool = False,
    sides: Sequence[Side] = ("updates",),
    randoms: int = RANDOM_DIRECTIONS,
) -> tuple[PromotedTokens, ...]:
    """Sides of the singular vectors of the given layers as tokens, and how similar these are.

    By embeddings without common axes and forms of one word; if `centred`, also by embeddings that were only centred.
    """
    ids = trained_ids(evidence)
    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised an untrained model.
    draw = np.random.default_rng(evidence.seed)
    promoted = []
    for place, chance, values in _read(evidence, arm, layers, sides, randoms, draw):
        step = draw.integers(-SPREAD, SPREAD + 1, (*place.shape[:3], MATCHES, place.shape[-1]))
        near = np.clip(place[..., None, :] + step, 0, len(ids) - 1)
        for common, stems in ((COMMON * evidence.anatomy.d, _stems(evidence)), (0, np.arange(len(ids))))[: 1 + centred]:
            unit = _meanings(evidence, arm, common)
            own, matched, random = (coherence(unit, lists, stems) for lists in (place, near, chance))
            topics = ids[_medoids(unit, place[:, :, 0])]
            promoted.append(PromotedTokens(tuple(layers), ids[place], own, values, topics, matched, random))
    return tuple(promoted)


def _read(
    evidence: Evidence, arm: str, layers: Sequence[int], sides: Sequence[Side], randoms: int, draw: np.random.Generator
) -> list[tuple[Ints, Ints, Floats]]:
    """For each side the places of the top tokens [layer, head, direction, rank] of its vectors and of random ones that
    are as loud, and the singular values."""
    import torch

    from armillary.geometry.readout import farther_end

    columns: list[tuple[list[Ints], list[Ints], list[Floats]]] = [([], [], []) for _ in sides]
    for layer, tokens in zip(layers, _loudness(evidence, arm, layers, sides), strict=True):
        for side, (places, chances, values) in zip(sides, columns, strict=True):
            vectors, strengths = side_vectors(evidence, arm, layer, side)
            values.append(strengths.cpu().numpy())
            normal = torch.from_numpy(draw.standard_normal((len(vectors), randoms, vectors.shape[-1]))).to(vectors)
            random = tokens.like(vectors, torch.from_numpy(shares(values[-1])).to(vectors), normal)
            for lists, directions in ((places, vectors), (chances, random)):
                top = farther_end(directions.flatten(0, 1), tokens.read, TOP).ids
                lists.append(top.cpu().numpy().reshape(*directions.shape[:2], -1))
    return [(np.stack(places), np.stack(chances), np.stack(values)) for places, chances, values in columns]


def side_vectors(evidence: Evidence, arm: str, layer: int, side: Side) -> "tuple[Tensor, Tensor]":
    """The first singular vectors [head, direction, d] of one side of a layer's heads, float32, and their values."""
    heads = decomposed(evidence, arm)[layer]
    if side == "updates":
        vectors = onto_stream(evidence.model(arm), layer, heads.vo.right[..., :DIRECTIONS].mT)
        return vectors.float(), heads.vo.values[:, :DIRECTIONS]
    chosen = heads.qk.left if side == "queries" else heads.qk.right
    return chosen[..., :DIRECTIONS].mT.float(), heads.qk.values[:, :DIRECTIONS]


def _loudness(evidence: Evidence, arm: str, layers: Sequence[int], sides: Sequence[Side]) -> Iterator[Loudness]:
    """For each layer the tokens that its vectors are compared with: output tokens, or tokens on the sphere."""
    if sides == ("updates",):
        yield from [Loudness.of(ReadableTokens.of(evidence, arm, letters=True).rows)] * len(layers)
        return
    last: Loudness | None = None
    for words in word_directions(evidence, arm, layers, trained_ids(evidence)):
        # Most layers read the same directions.
        last = last if last is not None and last.read is words.values else Loudness.of(words.values)
        yield last


def _bytes(unit: "Tensor") -> int:
    return unit.nbytes


@once_if_small(_bytes)
def _meanings(evidence: Evidence, arm: str, common: float) -> "Tensor":
    """Embeddings of the trained tokens made of letters, on the unit sphere, without so many common axes."""
    import torch

    tokens = vocabulary(evidence, arm)
    rows = torch.from_numpy(trained_ids(evidence)).to(tokens.anatomy.device)
    return specific(tokens.embedded(rows, torch.float32).values, common)


@once
def _stems(evidence: Evidence) -> Ints:
    """A number for every trained token made of letters, the same for the forms of one word."""
    texts = vocabulary(evidence).texts
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(stem(texts[i]), len(numbers)) for i in trained_ids(evidence)])


def stem(text: str) -> str:
    """A token without space, case and a few endings, by spelling alone, so that forms of one word have one stem.

    >>> stem(" Houses") == stem("house"), stem(" Playing") == stem("plays"), stem(" sing") == stem("s")
    (True, True, False)
    """
    bare = text.strip().casefold()
    for ending in ("'s", "ing", "es", "ed", "s", "e"):
        if bare.endswith(ending) and len(bare) - len(ending) >= 3:
            return bare.removesuffix(ending)
    return bare


def specific(rows: "Tensor", common: float) -> "Tensor":
    """Embeddings on the unit sphere without their mean and this many of their largest principal axes (rounded up)."""
    import torch

    rows = rows - rows.mean(0)
    axes = torch.linalg.eigh(rows.mT @ rows).eigenvectors[:, rows.shape[1] - math.ceil(common) :]
    # In place: of a large vocabulary every copy takes half a gigabyte.
    rows -= rows @ axes @ axes.mT
    return rows.div_(rows.norm(dim=-1, keepdim=True).clamp_min_(1e-12))


def coherence(unit: "Tensor", place: Ints, stems: Ints) -> Floats:
    """Mean cosine between the tokens of every list […, rank] that are not forms of one word; 0 where all are."""
    import torch

    means = []
    for part in np.array_split(place.reshape(-1, place.shape[-1]), 1 + place.size // 2**16):
        rows = unit[torch.from_numpy(part)]
        different = stems[part][:, :, None] != stems[part][:, None]
        cosines = (rows @ rows.mT).double().cpu().numpy()
        means.append((cosines * different).sum((1, 2)) / np.maximum(different.sum((1, 2)), 1))
    return np.concatenate(means).reshape(place.shape[:-1])


def _medoids(unit: "Tensor", place: Ints) -> Ints:
    """[…, 2]: of every list the two tokens that are most similar to all others."""
    import torch

    rows = unit[torch.from_numpy(place)]
    total = (rows * rows.sum(-2, keepdim=True)).sum(-1).cpu().numpy()
    order = np.argsort(-total, axis=-1, kind="stable")[..., :2]
    return np.take_along_axis(place, order, -1)


def token_table(evidence: Evidence, promoted: PromotedTokens, layer: int) -> Table:
    """The top tokens of every head and direction of a layer."""
    heads, size = promoted.coherence.shape[1:]
    tied = vo_ties(evidence)[layer * heads : (layer + 1) * heads]
    tokens = promoted.tokens[layer].reshape(heads * size, -1)
    return table(
        cells("head", "attention head", np.repeat([f"L{layer}H{head}" for head in range(heads)], size)),
        cells(
            "direction", "number of the right singular vector of W_VO, strongest first", [*range(1, size + 1)] * heads
        ),
        cells("value", "its singular value", promoted.values[layer]),
        cells("tie", TIE_MEANING, [label for labels in tied for label in labels[:size]]),
        cells("coherence", "mean cosine between different words among its top tokens", promoted.coherence[layer]),
        token_cells(evidence, "token", "token farthest along it, at the end where tokens reach farther", tokens),
    )
