"""How large is |cos| in each head, over that of random directions of as many axes, with intervals over documents?

A pair of tokens belongs to two documents, so sums per document are not enough: every bootstrap draw weighs all pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.anatomy import Anatomy
from armillary.geometry.resample import tails
from armillary.probes.grid.token_pairs import PairSums, law
from armillary.probes.machinery import MODEL, NAN3, Flags, Floats, Interval, T, cells, interval_cells, line, table
from armillary.probes.machinery.intervals import discoveries
from armillary.results import Quantity, Table

DRAWS = 1000
SIDES = ("q", "k", "v")
Spaces = Mapping[int, Mapping[str, PairSums]]
"""Layer → space → sums."""


@dataclass(frozen=True, eq=False)
class SpaceSums:
    """Sums over token pairs in every arm; and in the model with the mean vector removed."""

    raw: Mapping[str, Spaces]
    centred: Spaces
    tokens: int
    documents: int


class CosineRatios:
    """Ratios of every draw of documents; the first row of each is the text itself."""

    def __init__(self, anatomy: Anatomy, sums: SpaceSums, seed: int) -> None:
        self.anatomy, self.sums, self.layers = anatomy, sums, list(sums.centred)
        self.law_k, self.law_d = law(anatomy.k), law(anatomy.d)
        # Groups without a sampled token are not documents.
        present = next(iter(sums.centred.values()))["full"].count.sum(0) > 0
        groups = int(present.sum())
        self.text = present[None].astype(float)
        self.weights = np.concatenate([self.text, np.zeros((DRAWS, len(present)))])
        drawn = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=DRAWS)
        self.weights[1:, present] = drawn

    def heads(self, arm: str) -> Floats:
        """[draw, layer · head]: the mean of q, k and v."""
        return self._heads(self.sums.raw[arm], self.weights)

    def centred_heads(self) -> Floats:
        """[layer · head] of the text itself, the mean vector removed."""
        return np.asarray(self._heads(self.sums.centred, self.text)[0])

    def _heads(self, spaces: Spaces, weights: Floats) -> Floats:
        layers = [np.mean([spaces[layer][side].means(weights) for side in SIDES], axis=0) for layer in self.layers]
        return np.concatenate(layers, axis=1) / self.law_k

    def full(self) -> Floats:
        """[draw, layer] of all d axes."""
        return self.space("full") * self.law_k / self.law_d

    def space(self, name: str) -> Floats:
        """[draw, layer]: the ratio of a space of k axes, mean over its copies."""
        spaces = self.sums.raw[MODEL]
        return np.stack([spaces[layer][name].means(self.weights).mean(1) for layer in self.layers], 1) / self.law_k

    def interval(self, draws: Floats) -> Interval:
        """Value (the first) and interval of draws over documents."""
        if self.sums.documents < T.documents_least:
            return (float(draws[0]), *NAN3[1:])
        low, high = np.quantile(draws[1:], tails(self.sums.documents))
        return float(draws[0]), float(min(low, draws[0])), float(max(high, draws[0]))

    def intervals(self, draws: Floats) -> Floats:
        """[column, (value, low, high)] of draws [draw, column]."""
        return np.array([self.interval(column) for column in draws.T])

    def head_table(self, heads: Floats, centred: Floats, pocket: Flags) -> Table:
        spaces = self.sums.raw[MODEL]

        def cosine(side: str) -> Floats:
            return np.concatenate([spaces[layer][side].means(self.text)[0] for layer in self.layers])

        names = [f"L{layer}H{head}" for layer in self.layers for head in range(self.anatomy.n_heads)]
        return table(
            cells("head", "attention head", names),
            cells("cos_q", "mean |cos| of two tokens' queries, different words of different documents", cosine("q")),
            cells("cos_k", "the same of keys", cosine("k")),
            cells("cos_v", "the same of values", cosine("v")),
            cells("cos_match", "mean |cos| of one token's query and the other's key", cosine("match")),
            interval_cells(
                "ratio",
                "mean of the first three, over that of random directions of k axes",
                self.intervals(heads),
                ends="",
            ),
            cells("centred", "the same ratio with the mean vector removed", centred),
            cells("pocket", f"the ratio exceeds {T.pocket_ratio}, with Benjamini–Hochberg over heads", pocket),
        )

    def full_table(self) -> Table:
        full, centred = self.full()[0], self.sums.centred
        means = [centred[layer]["full"].means(self.text)[0, 0] / self.law_d for layer in self.layers]
        return table(
            cells("layer", "layer", [f"L{layer}" for layer in self.layers]),
            cells("cos", "mean |cos| of the heads' input, all d axes", full * self.law_d),
            cells("ratio", "over that of random directions of d axes", full),
            cells("centred", "the same with the mean vector removed", means),
            cells("slices", "ratio of k consecutive axes, not projected, over the law of k", self.space("slices")[0]),
            cells("random", "ratio of random projections of the same vectors to k axes", self.space("random")[0]),
        )

    def quantities(self, heads: Floats) -> tuple[Quantity, ...]:
        layers = [f"L{layer}" for layer in self.layers]
        by_layer = heads.reshape(len(heads), len(layers), -1)
        return (
            line(
                "|cos| over random directions of as many axes",
                "the median head of each layer, mean of q, k and v",
                "ratio to the law",
                "layer",
                layers,
                self.intervals(np.median(by_layer, axis=2)),
                {"full space": self.full()[0], "random heads on the same vectors": self.space("random")[0]},
                {"random directions: 1": np.ones(len(layers))},
                logs=("value",),
            ),
            Quantity(
                "|cos| over random directions of k axes",
                "mean of q, k and v of every head",
                "ratio to the law",
                ("layer", "head"),
                {"layer": layers, "head": [f"H{head}" for head in range(by_layer.shape[2])]},
                by_layer[0],
            ),
        )


def pocket_heads(heads: Floats) -> Flags:
    """The heads whose ratios [draw, head] exceed the threshold, by a normal law of their logarithm over documents."""
    from scipy.special import ndtr

    logs = np.log(np.maximum(heads, 1e-300))
    distance = (logs[0] - np.log(T.pocket_ratio)) / np.maximum(logs[1:].std(0, ddof=1), 1e-12)
    return discoveries(ndtr(-distance))
