"""What do one layer's scores say of a few queries? Pure arithmetic on what the watch laid out.

A query's own sums run over its keys in float32, the precision of the model's q and k; sums over queries meet in float64.
Masks are numbers, added or multiplied: choosing by a broadcast condition takes ten times as long.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Attention
from armillary.flow.attention import capped

# Added to a score it leaves no attention, and absorbs the score.
HIDDEN = 1e30
# A length that divides nothing by nothing, and whose square float32 still holds.
LEAST = 1e-15


@dataclass(frozen=True, eq=False)
class QueryScores:
    """b windows with n sampled queries each and t keys: q [b, h, n, k], k [b, h, t, k] as they meet, z [b, t, d]."""

    attention: Attention
    q: Tensor
    k: Tensor
    z: Tensor
    update: Tensor
    """[b, h, n]: length of what each head writes at the sampled queries."""
    query: Tensor
    """[b, n] positions."""
    sees: Tensor
    """[b, n, t]."""

    @cached_property
    def among(self) -> Tensor:
        """[b, 1, n, t]: 1 where the query sees the key, 0 elsewhere."""
        return self.sees[:, None].float()

    @cached_property
    def later(self) -> Tensor:
        """The same without position 0."""
        return self.among * (torch.arange(self.sees.shape[-1], device=self.sees.device) > 0)

    @cached_property
    def products(self) -> Tensor:
        """q·k [b, h, n, t]."""
        return self.q @ self.k.mT

    @cached_property
    def scores(self) -> Tensor:
        return capped(self.attention, self.products)

    @cached_property
    def k_length(self) -> Tensor:
        """[b, h, t]."""
        return self.k.norm(dim=-1).clamp_min(LEAST)

    @cached_property
    def along(self) -> Tensor:
        """|q| cos(q, k) [b, h, n, t]: every key at length 1."""
        return self.products / self.k_length[:, :, None]


def fields_of(seen: QueryScores, lost: tuple[Tensor, Tensor, Tensor], fields: tuple[str, ...]) -> Tensor:
    """[b, n, h, fields]; `lost` holds null shares of queries and keys [b, h, n] and of values [b, h, t]."""
    pattern, unscaled = (attended(values, seen.among) for values in (seen.scores, seen.products))
    count = seen.among.sum(-1)
    room = count.log().clamp_min(1e-9)
    null_query, null_key, null_value = lost
    found = {
        "keys": count.expand(pattern.shape[:3]),
        **_cosine(seen),
        **_variation(seen, pattern),
        **_geodesic(seen),
        "entropy": entropy_of(pattern, seen.scores, seen.among) / room,
        "entropy_unscaled": entropy_of(unscaled, seen.products, seen.among) / room,
        "null_query": null_query,
        "null_key": null_key,
        "null_value": (pattern @ null_value[..., None])[..., 0],
        "update": seen.update,
    }
    return torch.stack([found[name] for name in fields], -1).transpose(1, 2)


def attended(scores: Tensor, among: Tensor) -> Tensor:
    """The pattern that softmax makes of the scores among the keys marked by 1.

    >>> attended(torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 0.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _hiding(scores, among).softmax(-1)


def entropy_of(pattern: Tensor, scores: Tensor, among: Tensor) -> Tensor:
    """In nats; with logarithms from the scores, which reach where those of a pattern are rounded to nothing."""
    return -(pattern * _hiding(scores, among).log_softmax(-1)).sum(-1)


def _hiding(scores: Tensor, among: Tensor) -> Tensor:
    return scores + (among - 1) * HIDDEN


@dataclass(frozen=True, eq=False)
class Spread:
    """How values over keys differ from their mean over the keys after position 0, which is added where it is asked for."""

    values: Tensor
    """Less that mean; 0 where the query does not see, and at position 0."""
    later_mean: Tensor
    first: Tensor
    """What position 0 has above it."""
    share: Tensor
    """1 / (m + 1) for m later keys, what position 0 is of all keys; 0 where it is not seen."""

    @staticmethod
    def of(values: Tensor, among: Tensor, later: Tensor) -> "Spread":
        """
        >>> spread = Spread.of(torch.tensor([6.0, 1.0, 1.0, 4.0]), torch.ones(4), torch.tensor([0.0, 1.0, 1.0, 1.0]))
        >>> spread.mean(), spread.products(spread)
        (tensor(3.), (tensor(18.), tensor(6.)))
        """
        count = later.sum(-1).clamp_min(1)
        mean = (values * later).sum(-1) / count
        return Spread((values - mean[..., None]) * later, mean, values[..., 0] - mean, among[..., 0] / (count + 1))

    def mean(self) -> Tensor:
        return self.later_mean + self.share * self.first

    def products(self, other: "Spread") -> tuple[Tensor, Tensor]:
        """Sums over keys of products, each value less its mean: with position 0, and without it."""
        without = (self.values * other.values).sum(-1)
        # A value that joins m others raises the sum of squares by m / (m + 1) of its own.
        joins = torch.where(self.share > 0, 1 - self.share, 0.0)
        return without + joins * self.first * other.first, without


def _cosine(seen: QueryScores) -> dict[str, Tensor]:
    score, along = (Spread.of(values, seen.among, seen.later) for values in (seen.scores, seen.along))
    power = score.products(score)
    product_power = power[0] / seen.attention.scale**2
    if seen.attention.softcap is not None:
        product = Spread.of(seen.products, seen.among, seen.later)
        product_power = product.products(product)[0]
    # The query's length is one factor for all its keys.
    length = seen.q.norm(dim=-1).clamp_min(LEAST)
    square = [sums / length.square() for sums in along.products(along)]
    both = [sums / length for sums in score.products(along)]
    return {
        "mean_score": score.mean(),
        "product_power": product_power,
        "score_power": power[0],
        "cosine_power": square[0],
        "score_cosine": both[0],
        "score_power_later": power[1],
        "cosine_power_later": square[1],
        "score_cosine_later": both[1],
    }


def _variation(seen: QueryScores, pattern: Tensor) -> dict[str, Tensor]:
    """How much attention moves when every key has the mean length of those that the query sees."""

    def moved(true: Tensor, among: Tensor) -> Tensor:
        mean = (among[:, 0] @ seen.k_length.mT).mT[..., None] / among.sum(-1, keepdim=True).clamp_min(1)
        level = attended(capped(seen.attention, seen.along * mean), among)
        return (1 - torch.minimum(true, level).sum(-1)).clamp_min(0)

    return {
        "variation": moved(pattern, seen.among),
        "variation_later": moved(attended(seen.scores, seen.later), seen.later),
    }


def _geodesic(seen: QueryScores) -> dict[str, Tensor]:
    """Spearman's ρ of score and −angle over the other keys: at the token itself the angle is 0 by definition."""
    rows = torch.arange(len(seen.z), device=seen.z.device)[:, None]
    # A falling function of the angle: −angle and the cosine have the same ranks, whatever the query's own length.
    cosines = seen.z[rows, seen.query] @ seen.z.mT / seen.z.norm(dim=-1)[:, None].clamp_min(LEAST)
    itself = torch.zeros_like(cosines).scatter_(-1, seen.query[..., None], 1.0)[:, None]
    others, rest = seen.among - itself, seen.later - itself
    nearness, score = ranks(cosines[:, None], others), ranks(seen.scores, others)
    return {
        "rho": _correlation(nearness, score, others),
        "rho_later": _correlation(_without_first(nearness) * rest, _without_first(score) * rest, rest),
    }


def _correlation(a: Tensor, b: Tensor, among: Tensor) -> Tensor:
    """Of ranks that are 0 outside the keys marked by 1; 0 where one side does not vary."""
    count = among.sum(-1)
    mean = ((count + 1) / 2)[..., None]
    a = (a - mean) * among
    # Ranks 1 … m have one mean, ties or not, and what is paired with it here has none.
    b_power = b.square().sum(-1) - count * mean[..., 0].square()
    return (a * b).sum(-1) / (a.square().sum(-1) * b_power).clamp_min(1e-30).sqrt()


def _without_first(ranked: Tensor) -> Tensor:
    """Ranks of the later keys among themselves: above position 0 one less, level with it a half."""
    first = ranked[..., :1]
    return ranked - ((ranked - first).sign_() + 1) * ((first > 0).float() / 2)


def ranks(values: Tensor, among: Tensor) -> Tensor:
    """Ranks along the last axis among the entries marked by 1, ties at their middle; 0 elsewhere.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    tensor([2.5000, 1.0000, 2.5000, 0.0000])
    """
    given = values + (1 - among) * HIDDEN
    # NumPy sorts ten times as fast as torch on a CPU.
    on_cpu = given.device.type == "cpu"
    order = torch.from_numpy(np.argsort(given.numpy(), axis=-1)) if on_cpu else given.argsort(-1)
    ranked = torch.empty_like(given).scatter_(-1, order, _middles(given.gather(-1, order)))
    return ranked * among


def _middles(ordered: Tensor) -> Tensor:
    """Ranks of rows that are in order, equal neighbours at their middle."""
    place = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device, dtype=ordered.dtype).expand_as(ordered)
    equal = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] < HIDDEN / 2)
    if ordered.device.type == "cpu" and not bool(equal.any()):
        return place
    edge = torch.zeros_like(equal[..., :1])
    low = torch.where(torch.cat((edge, equal), -1), 0, place).cummax(-1).values
    high = torch.where(torch.cat((equal, edge), -1), torch.inf, place).flip(-1).cummin(-1).values.flip(-1)
    return (low + high) / 2
