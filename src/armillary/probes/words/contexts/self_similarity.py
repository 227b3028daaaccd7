"""How alike are the states of one word in different documents, beside the states of different words?

A pair of tokens belongs to two documents, so sums per document are not enough: every bootstrap draw weighs all pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.probes.instruments.samples import TokenSamples
from armillary.probes.machinery import NAN3, Floats, Interval, Ints, T, interval_of_draws, redrawn

DRAWS = 1000


@dataclass(frozen=True, eq=False)
class SampledStates:
    """Tokens that are ordinary at all of some sites: directions z [token, site, d], and where they stand."""

    z: Tensor
    places: Ints
    """[token, (document, position, token, following token)]."""


def sampled_states(anatomy: Anatomy, samples: TokenSamples, sites: Sequence[str]) -> SampledStates:
    """The sample keeps the same tokens, in the same order, at every site."""
    drawn = [samples.rows[site].sample() for site in sites]
    ordinary = torch.stack([sample.marks == 0 for sample in drawn]).all(0)
    z = [
        anatomy.norms[site].direction(sample.rows[ordinary].float()) for site, sample in zip(sites, drawn, strict=True)
    ]
    return SampledStates(torch.stack(z, 1).cpu(), drawn[0].payload[ordinary].numpy())


def same_tokens(first: SampledStates, second: SampledStates) -> tuple[SampledStates, SampledStates]:
    """The states of the tokens that both samples have; a token may be massive in one of them alone."""
    places = [{(int(d), int(t)): row for row, (d, t) in enumerate(each.places[:, :2])} for each in (first, second)]
    common = sorted(places[0].keys() & places[1].keys())

    def chosen(states: SampledStates, rows: Mapping[tuple[int, int], int]) -> SampledStates:
        common_rows = [rows[place] for place in common]
        return SampledStates(states.z[common_rows], states.places[common_rows])

    return chosen(first, places[0]), chosen(second, places[1])


@dataclass(frozen=True, eq=False)
class SelfSimilarity:
    """Sums of cosines and of their weights [site, (same word, different words), (cosine, weight), group, group] over
    pairs of tokens from two document groups."""

    sums: Floats
    present: Floats
    """[group]: has it a sampled token?"""
    tokens: int
    """How many tokens meet their own word in another document."""

    def own_shares(self, weights: Floats) -> Floats:
        """[draw, site]: (same − different)/(1 − different), every group counted as often as it was drawn."""
        totals = np.einsum("ag,spcgk,ak->aspc", weights, self.sums, weights, optimize=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            same, other = np.moveaxis(totals[..., 0] / totals[..., 1], -1, 0)
            return np.asarray((same - other) / (1 - other))

    def draws(self, seed: int) -> Floats:
        """[draw, site]; the first row is the text itself."""
        groups = np.flatnonzero(self.present)
        weights = np.zeros((1 + DRAWS, len(self.present)))
        if len(groups):
            weights[:, groups] = redrawn(len(groups), DRAWS, seed)
        return self.own_shares(weights)

    def cosines(self) -> Floats:
        """[site, (same word, different words)]: means."""
        totals = self.sums.sum((-2, -1))
        return np.asarray(totals[..., 0] / np.maximum(totals[..., 1], 1e-300))

    def interval(self, draws: Floats) -> Interval:
        """Value (the first) and interval over documents of one number per draw."""
        return NAN3 if self.tokens < T.tokens_least else interval_of_draws(draws, int(self.present.sum()), around=True)

    def intervals(self, draws: Floats) -> Floats:
        """[site, (value, low, high)] of draws [draw, site]."""
        return np.array([self.interval(column) for column in draws.T])


def self_similarity(states: SampledStates, groups: int) -> SelfSimilarity:
    group, word = (torch.as_tensor(states.places[:, column]) for column in (0, 2))
    group = group % groups
    same, apart = word[:, None] == word[None], group[:, None] != group[None]
    met = (same & apart).sum(1)
    # A token counts once, however many partners it has.
    each = torch.where(met > 0, 1.0 / met.clamp_min(1), 0.0)
    weights = torch.stack([(each[:, None] + each[None]) / 2 * (same & apart), (~same & apart).float()])
    member = torch.zeros(len(group), groups)
    member[torch.arange(len(group)), group] = 1
    counts = (member.T @ weights @ member).double()
    sums = []
    for unit in torch.nn.functional.normalize(states.z.float(), dim=-1).unbind(1):
        cosines = (member.T @ (weights * (unit @ unit.T)) @ member).double()
        sums.append(torch.stack([cosines, counts], 1).numpy())
    present = np.bincount(group.numpy(), minlength=groups) > 0
    return SelfSimilarity(np.stack(sums), present.astype(np.float64), int((met > 0).sum()))
