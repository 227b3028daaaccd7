"""Which tokens' keys score highest for a noun's query, and are they the noun, a form of it or a related noun?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.attention.lexicon.known_words import marks, vocabulary
from armillary.probes.attention.lexicon.related_nouns import related
from armillary.probes.attention.lexicon.word_directions import folded, keys, queries, word_directions
from armillary.probes.machinery import Evidence, Flags, Floats, Ints

TOP, PERMUTATIONS = 5, 999
KINDS = ("itself", "form", "relative")


@dataclass(frozen=True, eq=False)
class TopKeys:
    """The top keys of every noun by layer and head, and what is among them."""

    keys: Ints  # [layer, head, noun, rank]
    hits: Flags  # [layer, head, noun, other noun]: do its keys hold the other noun, a form or a relative of it?
    kinds: Flags  # [layer, head, noun, KINDS]
    biased: Flags  # [layer, head, noun]: does it hit where the query's bias is included?
    excess: Floats  # [noun, layer, head]: hit or not, less the share of unrelated nouns that its keys hit

    @property
    def clarity(self) -> Floats:
        """[layer, head]: share of nouns that hit."""
        return np.asarray(self.hits.diagonal(axis1=-2, axis2=-1).mean(-1))

    @property
    def chance(self) -> Floats:
        """[layer, head]: clarity of the same keys for unrelated nouns."""
        return self.clarity - self.excess.mean(0)

    def permuted(self, seed: int) -> Floats:
        """[permutation, layer, head]: clarity with every noun's keys assigned to a random noun."""
        n = self.hits.shape[-1]
        draw = np.random.default_rng(seed)
        return np.stack([self.hits[..., np.arange(n), draw.permutation(n)].mean(-1) for _ in range(PERMUTATIONS)])


def top_keys(evidence: Evidence, arm: str, nouns: dict[str, int], layers: Sequence[int]) -> TopKeys:
    own = marks(evidence, [[noun] for noun in nouns])
    relatives = marks(evidence, [sorted(related().get(noun, ())) for noun in nouns])
    ids = np.array(list(nouns.values()))
    best, biased = _best(evidence, arm, ids, layers)
    every = np.arange(len(ids))
    itself = (best == ids[:, None]).any(-1)
    others = own[every[:, None], best] & (best != ids[:, None])
    kinds = np.stack([itself, others.any(-1), relatives[every[:, None], best].any(-1)], -1)
    either = own | relatives
    hits = np.asarray(either.T[best].any(-2))
    unrelated = ~either[:, ids].T & ~np.eye(len(ids), dtype=bool)
    chance = (hits & unrelated).sum(-1) / unrelated.sum(-1)
    excess = np.moveaxis(hits[..., every, every] - chance, -1, 0)
    return TopKeys(best, hits, kinds, np.asarray(either[every[:, None], biased].any(-1)), excess)


def _best(evidence: Evidence, arm: str, ids: Ints, layers: Sequence[int]) -> tuple[Ints, Ints]:
    """[layer, head, noun, rank] by the bilinear form alone, and with the query's bias."""
    import torch

    from armillary.geometry.readout import top_tokens

    shown = np.flatnonzero(vocabulary(evidence, arm).shown)
    places = np.searchsorted(shown, ids)
    plain, biased = [], []
    for layer, z in zip(layers, word_directions(evidence, arm, layers, shown), strict=True):
        heads = folded(evidence, arm, layer)
        without, with_bias = queries(heads, z[places]), queries(heads, z[places], biased=True)
        same = bool((without == with_bias).all())
        for head in range(len(without)):
            if head % heads.attention.group == 0:  # the heads of a group share their keys
                key = keys(heads, z, head)
            query = without[head] if same else torch.cat([without[head], with_bias[head]])
            best = shown[top_tokens(query, key, TOP).ids.cpu().numpy()]
            plain.append(best[: len(ids)])
            biased.append(best[-len(ids) :])
    shape = (len(layers), -1, len(ids), TOP)
    return np.reshape(plain, shape), np.reshape(biased, shape)
