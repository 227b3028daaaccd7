"""The instrument of heads: lengths of q and k at all tokens, and statistics of attention at sampled queries.

Whatever needs scores is computed at a seeded sample of queries, one row of numbers per query and head. The sample is a
share of the tokens, so its cost is a share of the pass. It has a minimum that short texts need, and a maximum beyond
which intervals hardly shrink.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.measures.state import Named, State
from armillary.probes.machinery import ARMS

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus, Window
    from armillary.measures import GroupedScalars, Largest, Rows
    from armillary.probes.instruments.head_parts.heads_watch import HeadWatch

FIELDS = (
    "keys",  # how many keys the query sees
    "mean_score",  # over them
    "score_power",  # sum over keys of (score − the query's mean score)²
    "product_power",  # the same of q·k, unscaled and uncapped
    "axis_power",  # the same along one axis of the head, times k; mean over axes (product_power, if independent)
    "cosine_power",  # the same of cos(q, k)
    "score_cosine",  # sum of products of both
    "variation",  # total variation to the pattern with every key at the mean key length
    "rho",  # Spearman correlation over the other keys of score and −angle(z_i, z_j)
    "score_power_later",  # these five again without position 0, where many heads put attention that they do not need
    "cosine_power_later",
    "score_cosine_later",
    "variation_later",
    "rho_later",
    "entropy",  # of the pattern, over ln(keys): 1 is uniform
    "entropy_unscaled",  # the same without 1/√k
    "entropy_bare",  # the same as `entropy` with the query reduced to what biases alone give
    "null_query",  # share of |z|² that W_QK cannot see from the query side
    "null_key",  # the same from the key side
    "null_value",  # share of |z|² that W_VO cannot see, mean over keys by attention
    "update",  # length of what the head writes
    "key_queries",  # how many sampled queries see this token as a key
    "key_spread",  # variance over them of the score that this token's key gets, biases apart
)
EXACT = ("q_length", "k_length")
ERRORS = ("scores_error", "results_error", "unfolded_error")
"""Largest error of scores rebuilt from the folded matrices, divided by the largest score; the same of results, divided
by the largest score as well (softmax amplifies a score's rounding that much); and of scores rebuilt without the norm's
gain and shift."""
# One query in forty costs about a tenth of the pass. Fewer than 512 would widen the intervals of short texts; with more
# than 2048 in 64 windows they hardly shrink (SmolLM2, 20 000 tokens, 63 documents: with 640 queries intervals are 1.15
# to 1.35 times as wide as with 2016).
ONE_IN, LEAST = 40, 512
WINDOWS, QUERIES = 64, 32
# A correlation over fewer keys is mostly noise.
KEYS_LEAST = 8


@dataclass(frozen=True)
class Sampling:
    """The sampled queries of each window: the same for every layer, head and arm."""

    chosen: "dict[Window, tuple[int, ...]]"
    windows: int
    rate: float
    """Share of all tokens that are sampled queries."""

    @classmethod
    def of(cls, corpus: "Corpus", seed: int) -> "Sampling":
        rng = np.random.default_rng([seed, 41])
        windows = [w for w in corpus.windows if len(w.ids) > KEYS_LEAST]
        sampled = sorted(rng.choice(len(windows), min(WINDOWS, len(windows)), replace=False)) if windows else []
        wanted = max(LEAST, corpus.tokens // ONE_IN)
        each = min(QUERIES, math.ceil(wanted / max(1, len(sampled))))
        chosen = {}
        for i in sampled:
            places = np.arange(KEYS_LEAST, len(windows[i].ids))
            queries = rng.choice(places, min(each, len(places)), replace=False)
            chosen[windows[i]] = tuple(int(t) for t in np.sort(queries))
        count = sum(map(len, chosen.values()))
        return cls(chosen, len(windows), count / max(1, corpus.tokens))


@dataclass
class HeadRows(State):
    """Every layer's heads in one arm; layers are named L0, L1, …"""

    groups: int
    heads: int
    rate: float
    """Share of all tokens that are sampled queries."""
    lengths: "Named[GroupedScalars]"
    """Per layer: `EXACT` of each head, per document group."""
    rows: "Named[Rows]"
    """Per layer: [query, head, FIELDS]."""
    errors: "Named[Largest]"
    """Per layer: `ERRORS`."""
    places: "Rows"
    """[query, (document, position)], the same for all layers."""

    @property
    def queries(self) -> int:
        return len(self.places)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.lexsort(self.places.joined().numpy().T[::-1])

    def documents(self) -> NDArray[np.int64]:
        """The document of each sampled query, in the order of `sampled`."""
        return self.places.joined().numpy()[self._order, 0]

    def positions(self) -> NDArray[np.int64]:
        return self.places.joined().numpy()[self._order, 1]

    def sampled(self, name: str) -> NDArray[np.float64]:
        """[layer, head, query] of one field, queries in order of document and position."""
        column = FIELDS.index(name)
        columns = [rows.joined()[:, :, column].T.numpy()[:, self._order] for rows in self.rows.values()]
        return np.stack(columns).astype(np.float64)

    def exact(self, name: str) -> NDArray[np.float64]:
        """[layer, head, group, (count, sum, sum of squares)] of one exact scalar."""
        first = EXACT.index(name) * self.heads
        parts = [lengths.additive()[:, first : first + self.heads] for lengths in self.lengths.values()]
        return np.stack(parts).transpose(0, 2, 1, 3)

    def error(self, name: str) -> NDArray[np.float64]:
        """[layer] of one of `ERRORS`."""
        return np.array([float(largest.values[ERRORS.index(name)]) for largest in self.errors.values()])

    def sums(self, *columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """[document group, layer, head, column]: sums of arrays [layer, head, query] over each group's queries."""
        group = self.documents() % self.groups
        stacked = np.stack(columns, -1)
        sums = np.zeros((self.groups, *stacked.shape[:2], stacked.shape[-1]))
        np.add.at(sums, group, np.moveaxis(stacked, 2, 0))
        return sums[np.bincount(group, minlength=self.groups) > 0]

    def means(self, name: str) -> NDArray[np.float64]:
        """[document group, layer, head, (count, sum)] of one sampled field."""
        values = self.sampled(name)
        return self.sums(np.ones_like(values), values)


@dataclass(frozen=True)
class Heads:
    """The instrument."""

    name: str = "heads"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "HeadWatch":
        from armillary.probes.instruments.head_parts.heads_watch import HeadWatch

        return HeadWatch(anatomy, corpus, seed)

    def count(self, state: HeadRows) -> tuple[int, str]:
        return state.queries, "queries with enough keys"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 4 * WINDOWS * QUERIES * anatomy.layers * anatomy.n_heads * len(FIELDS)


HEADS = Heads()
