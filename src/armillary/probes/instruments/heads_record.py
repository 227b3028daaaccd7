"""What is kept of every head during the one pass?

Two tiers. Exact, over all tokens: lengths of q and k. Sampled, on seeded queries of seeded windows:
everything that needs the scores themselves, one row of numbers per query and head. The sample is a share of the tokens,
so that it costs a share of the pass, between a least size that short texts need and a most beyond which nothing grows;
records of parts of a text add up to the record of the whole.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.flow.tokens import Corpus, Window
from armillary.measures import GroupedScalars

FIELDS = (
    "keys",  # how many keys the query sees
    "mean_score",  # over them
    "score_power",  # sum over keys of (score − the query's mean score)²
    "product_power",  # the same of q·k, unscaled and uncapped
    "cosine_power",  # the same of cos(q, k)
    "score_cosine",  # sum of products of both
    "variation",  # total variation to the pattern with every key at the mean key length
    "rho",  # Spearman correlation over the other keys of score and −angle(z_i, z_j)
    "score_power_later",  # what follows without position 0: a key that many heads attend to for want of another
    "cosine_power_later",
    "score_cosine_later",
    "variation_later",
    "rho_later",
    "entropy",  # of the pattern, over ln(keys): 1 is uniform
    "entropy_unscaled",  # the same without 1/√k
    "first",  # attention to position 0
    "self",  # to the token itself
    "previous",  # to the token before
    "same",  # to earlier tokens of the same word
    "same_keys",  # share of keys that are such
    "induction",  # to what followed the same word earlier
    "induction_keys",  # share of keys that are such
    "null_query",  # share of |z|² that W_QK cannot see from the query side
    "null_key",  # the same from the key side
    "null_value",  # share of |z|² that W_VO cannot see, mean over keys by attention
    "update",  # length of what the head writes
)
EXACT = ("q_length", "k_length")
# One query in forty, with what its window needs, costs about a tenth of the pass. Fewer than 512 would widen the intervals
# of short texts; with more than 2048 in 64 windows they hardly shrink (in SmolLM2 at 20 000 tokens, 640 queries in 63
# documents gave intervals 1.15 to 1.35 times as wide as 2016).
ONE_IN, LEAST = 40, 512
WINDOWS, QUERIES = 64, 32
# A correlation over fewer keys is luck.
KEYS_LEAST = 8


@dataclass(frozen=True)
class Sampling:
    """Which queries of which windows are looked at closely: the same for every layer, head and arm."""

    chosen: dict[Window, tuple[int, ...]]
    windows: int
    rate: float
    """Share of all tokens that are sampled queries."""

    @classmethod
    def of(cls, corpus: Corpus, seed: int) -> "Sampling":
        rng = np.random.default_rng([seed, 41])
        windows = [w for w in corpus.windows if len(w.ids) > KEYS_LEAST]
        picked = sorted(rng.choice(len(windows), min(WINDOWS, len(windows)), replace=False)) if windows else []
        wanted = max(LEAST, corpus.tokens // ONE_IN)
        each = min(QUERIES, math.ceil(wanted / max(1, len(picked))))
        chosen = {}
        for i in picked:
            places = np.arange(KEYS_LEAST, len(windows[i].ids))
            some = rng.choice(places, min(each, len(places)), replace=False)
            chosen[windows[i]] = tuple(int(t) for t in np.sort(some))
        count = sum(map(len, chosen.values()))
        return cls(chosen, len(windows), count / max(1, corpus.tokens))


@dataclass
class LayerRecord:
    """One layer: the exact scalars per document group, and the sampled rows [query, head, FIELDS] batch by batch."""

    exact: GroupedScalars
    rows: list[Tensor] = field(default_factory=list)
    scores_error: float = 0.0
    """Largest difference of scores rebuilt from the folded matrices, over the largest score."""
    results_error: float = 0.0
    """The same of the heads' results, over the size of the largest score too: softmax magnifies a score's rounding so."""
    unfolded_error: float = 0.0
    """Scores rebuilt without the norm's gain and shift: what forgetting them would cost."""

    def __add__(self, other: "LayerRecord") -> "LayerRecord":
        errors = (
            max(getattr(self, name), getattr(other, name))
            for name in ("scores_error", "results_error", "unfolded_error")
        )
        return LayerRecord(self.exact + other.exact, [*self.rows, *other.rows], *errors)


@dataclass
class AttentionRecord:
    """Every layer's heads in one arm."""

    groups: int
    heads: int
    rate: float
    layers: list[LayerRecord]
    places: list[Tensor] = field(default_factory=list)
    """Document and position of each sampled query, batch by batch; the same for all layers."""

    @classmethod
    def empty(cls, groups: int, layers: int, heads: int, rate: float) -> "AttentionRecord":
        names = tuple(f"{name} H{h}" for name in EXACT for h in range(heads))
        made = [LayerRecord(GroupedScalars.empty(groups, names)) for _ in range(layers)]
        return cls(groups, heads, rate, made)

    def __add__(self, other: "AttentionRecord") -> "AttentionRecord":
        layers = [a + b for a, b in zip(self.layers, other.layers, strict=True)]
        return AttentionRecord(self.groups, self.heads, self.rate, layers, [*self.places, *other.places])

    @property
    def queries(self) -> int:
        return sum(map(len, self.places))

    def documents(self) -> NDArray[np.int64]:
        """The document of each sampled query, in the order of `sampled`."""
        return self._placed()[:, 0]

    def positions(self) -> NDArray[np.int64]:
        return self._placed()[:, 1]

    def sampled(self, name: str) -> NDArray[np.float64]:
        """[layer, head, query] of one field, queries in order of document and position."""
        column = FIELDS.index(name)
        order = np.lexsort(self._joined().T[::-1])
        rows = [torch.cat(layer.rows)[:, :, column].T.numpy()[:, order] for layer in self.layers]
        return np.stack(rows).astype(np.float64)

    def exact(self, name: str) -> NDArray[np.float64]:
        """[layer, head, group, (count, sum, sum of squares)] of one exact scalar."""
        first = EXACT.index(name) * self.heads
        parts = [layer.exact.additive()[:, first : first + self.heads] for layer in self.layers]
        return np.stack(parts).transpose(0, 2, 1, 3)

    def _joined(self) -> NDArray[np.int64]:
        return torch.cat(self.places).numpy() if self.places else np.zeros((0, 2), dtype=np.int64)

    def _placed(self) -> NDArray[np.int64]:
        joined = self._joined()
        return joined[np.lexsort(joined.T[::-1])]
