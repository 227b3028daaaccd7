"""How large is |cos| in each head, over that of random projections of the same vectors, with intervals over documents?

A pair of tokens belongs to two documents, so sums per document are not enough: every bootstrap draw weighs all pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.anatomy import Anatomy
from armillary.probes.grid.spaces.token_pairs import PairSums, law
from armillary.probes.machinery import MODEL, Flags, Floats, Interval, T, cells, interval_cells, line, redrawn, table
from armillary.probes.machinery.intervals import discoveries, interval_of_draws
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
        self.text = present[None].astype(float)
        self.weights = np.zeros((1 + DRAWS, len(present)))
        self.weights[:, present] = redrawn(int(present.sum()), DRAWS, seed)

    def heads(self, spaces: Spaces) -> Floats:
        """[draw, layer · head]: mean |cos|, the mean of q, k and v."""
        layers = [np.mean([spaces[layer][side].means(self.weights) for side in SIDES], axis=0) for layer in spaces]
        return np.concatenate(layers, axis=1)

    def space(self, spaces: Spaces, name: str) -> Floats:
        """[draw, layer]: mean |cos| in a space, mean over its copies."""
        return np.stack([spaces[layer][name].means(self.weights).mean(1) for layer in spaces], 1)

    def excess(self, spaces: Spaces) -> Floats:
        """[draw, layer · head]: |cos| in a head over that of random projections of its layer's vectors to k axes."""
        random = np.repeat(self.space(spaces, "random"), self.anatomy.n_heads, axis=1)
        return np.asarray(self.heads(spaces) / np.maximum(random, 1e-300))

    def median_excess(self, arm: str) -> Interval:
        """Of the median head of an arm."""
        return self.interval(np.median(self.excess(self.sums.raw[arm]), axis=1))

    def interval(self, draws: Floats) -> Interval:
        """Value (the first) and interval of draws over documents."""
        return interval_of_draws(draws, self.sums.documents, around=True)

    def intervals(self, draws: Floats) -> Floats:
        """[column, (value, low, high)] of draws [draw, column]."""
        return np.array([self.interval(column) for column in draws.T])

    def head_table(self, excess: Floats, centred: Floats, pocket: Flags) -> Table:
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
                "excess",
                "mean of the first three, over that of random projections of the same vectors to k axes",
                self.intervals(excess),
                ends="",
            ),
            cells("centred", "the same with the mean vector removed", centred[0]),
            cells(
                "ratio", "mean of the first three, over random directions of k axes", self.heads(spaces)[0] / self.law_k
            ),
            cells("pocket", f"excess and centred exceed {T.pocket_ratio}, with Benjamini–Hochberg over heads", pocket),
        )

    def full_table(self) -> Table:
        spaces, centred = self.sums.raw[MODEL], self.sums.centred
        full = self.space(spaces, "full")[0]
        return table(
            cells("layer", "layer", [f"L{layer}" for layer in self.layers]),
            cells("cos", "mean |cos| of the heads' input, all d axes", full),
            cells("ratio", "over that of random directions of d axes", full / self.law_d),
            cells("centred", "the same with the mean vector removed", self.space(centred, "full")[0] / self.law_d),
            cells(
                "slices",
                "|cos| of k consecutive axes, not projected, over random directions of k axes",
                self.space(spaces, "slices")[0] / self.law_k,
            ),
            cells(
                "random",
                "|cos| of random projections of the same vectors to k axes, over random directions of k axes",
                self.space(spaces, "random")[0] / self.law_k,
            ),
        )

    def quantities(self, twins: Floats) -> tuple[Quantity, ...]:
        """`twins` [layer]: the median head's |cos| at random initialisation, mean over twins."""
        spaces, layers = self.sums.raw[MODEL], [f"L{layer}" for layer in self.layers]
        by_layer = self.heads(spaces).reshape(len(self.weights), len(layers), -1)
        return (
            line(
                "|cos| of two words' vectors",
                "the median head of each layer, mean of q, k and v",
                "mean |cos|",
                "layer",
                layers,
                self.intervals(np.median(by_layer, axis=2)),
                {
                    "random projections of the same vectors": self.space(spaces, "random")[0],
                    "full space": self.space(spaces, "full")[0],
                    "random initialisation": twins,
                },
                {"random directions of k axes": np.full(len(layers), self.law_k)},
                logs=("value",),
            ),
            Quantity(
                "|cos| over random projections of the same vectors",
                "mean of q, k and v of every head",
                "ratio",
                ("layer", "head"),
                {"layer": layers, "head": [f"H{head}" for head in range(by_layer.shape[2])]},
                self.excess(spaces)[0].reshape(len(layers), -1),
            ),
        )


def pocket_heads(excess: Floats) -> Flags:
    """The heads whose excess [draw, head] exceeds the threshold, by a normal law of its logarithm over documents."""
    from scipy.special import ndtr

    logs = np.log(np.maximum(excess, 1e-300))
    distance = (logs[0] - np.log(T.pocket_ratio)) / np.maximum(logs[1:].std(0, ddof=1), 1e-12)
    return discoveries(ndtr(-distance))
