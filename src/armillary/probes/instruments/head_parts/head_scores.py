"""The statistics of one layer's sampled queries, from their scores.

Sums over the keys of a query are float32, the precision of the model's q and k; sums over queries are float64. Masks
are numbers that are added or multiplied: selecting by a broadcast condition takes ten times as long.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Attention
from armillary.flow.attention import capped
from armillary.geometry.fused import batched, fused
from armillary.geometry.fused.queries import MOST_KEYS, correlations, query_statistics

# Subtracted from a score it leaves no attention; the score itself is lost to rounding.
HIDDEN = 1e30
# The smallest length to divide by; float32 can represent its square.
LEAST = 1e-15


@dataclass(frozen=True, eq=False)
class QueryScores:
    """b windows with n queries and t keys each: q [b, h, n, k] and k [b, h or groups, t, k] rotated and normed, z
    [b, t, d]."""

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
    bare_q: Tensor | None = None
    """[b, h, n, k]: what biases alone make of a query; None where there are none."""
    bare_k: Tensor | None = None
    """[b, h, n, k]: the same of keys, at the positions of the queries."""
    distinct: Tensor | None = None
    """[b, n]: False where a query is repeated to fill a row; None where none is."""

    @cached_property
    def among(self) -> Tensor:
        """[b, 1, n, t]: 1 where the query sees the key, 0 elsewhere."""
        return self.sees[:, None].float()

    @cached_property
    def later(self) -> Tensor:
        """The same without position 0."""
        return self.among * (torch.arange(self.sees.shape[-1], device=self.sees.device) > 0)

    def with_keys(self, q: Tensor) -> Tensor:
        """q·k [b, h, n, t] of queries [b, h, n, k]; those of heads that share keys in one product."""
        b, _, n, k = q.shape
        return (q.reshape(b, self.k.shape[1], -1, k) @ self.k.mT).view(b, -1, n, self.k.shape[2])

    def per_head(self, of_keys: Tensor) -> Tensor:
        """[b, h, …] of what heads that share keys have in common."""
        shared = self.q.shape[1] // self.k.shape[1]
        return of_keys if shared == 1 else of_keys.repeat_interleave(shared, 1)

    @cached_property
    def products(self) -> Tensor:
        """q·k [b, h, n, t]."""
        return self.with_keys(self.q)

    @cached_property
    def scores(self) -> Tensor:
        return self.scored(self.products)

    @cached_property
    def added(self) -> Tensor | None:
        """What distances add to the scores [b, h, n, t]; None where they add nothing."""
        if self.attention.bias is None:
            return None
        keys = torch.arange(self.sees.shape[-1], device=self.query.device)
        return self.attention.bias(self.query[..., None] - keys).transpose(0, 1).float()

    def scored(self, products: Tensor) -> Tensor:
        """Scores from products of queries and keys."""
        scores = capped(self.attention, products)
        return scores if self.added is None else scores + self.added

    def attended(self, scores: Tensor, among: Tensor) -> Tensor:
        """The pattern of scores over the keys marked by 1, of which sinks take their share."""
        return attended(scores, among, self.attention.sinks)

    @cached_property
    def k_length(self) -> Tensor:
        """[b, h, t]."""
        return self.per_head(self.k.norm(dim=-1).clamp_min(LEAST))

    @cached_property
    def along(self) -> Tensor:
        """|q| cos(q, k) [b, h, n, t]: every key at length 1."""
        return self.products / self.k_length[:, :, None]


def fields_of(seen: QueryScores, null: tuple[Tensor, Tensor, Tensor], fields: tuple[str, ...]) -> Tensor:
    """[b, n, h, fields]; `null` holds null shares of queries and keys [b, h, n] and of values [b, h, t]."""
    if _kernel_reads(seen):
        columns = _by_kernel(seen, null)
        return torch.stack([columns[name] for name in fields], -1).transpose(1, 2)
    pattern, unscaled = (seen.attended(values, seen.among) for values in (seen.scores, seen.products))
    sinks = seen.attention.sinks
    count = seen.among.sum(-1)
    largest = count.log().clamp_min(1e-9)
    null_query, null_key, null_value = null
    columns = {
        "keys": count.expand(pattern.shape[:3]),
        **_cosine(seen),
        **_variation(seen, pattern),
        **_geodesic(seen),
        **_unseen(seen, largest),
        "entropy": entropy_of(pattern, seen.scores, seen.among, sinks) / largest,
        "entropy_unscaled": entropy_of(unscaled, seen.products, seen.among, sinks) / largest,
        "null_query": null_query,
        "null_key": null_key,
        "null_value": (pattern @ null_value[..., None])[..., 0],
        "update": seen.update,
    }
    return torch.stack([columns[name] for name in fields], -1).transpose(1, 2)


def _kernel_reads(seen: QueryScores) -> bool:
    """Are scores products times a scale, and in one piece?"""
    attention = seen.attention
    plain = attention.softcap is None and attention.bias is None and attention.sinks is None and attention.scale > 0
    return plain and fused(seen.q) and batched(seen.q.device) and seen.k.shape[2] <= MOST_KEYS


def _by_kernel(seen: QueryScores, null: tuple[Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
    """The columns of `fields_of`, on a GPU: what needs whole rows of scores is one read of them."""
    count, length = seen.among.sum(-1), seen.q.norm(dim=-1).clamp_min(LEAST)
    largest, null_query, null_key, null_value = count.log().clamp_min(1e-9), *null
    bare = None if seen.bare_q is None else seen.with_keys(seen.bare_q)
    statistics = query_statistics(seen.products, bare, seen.k_length, null_value, seen.sees, seen.attention.scale)
    near, itself = _nearness(seen)
    # Scores are products times a positive scale, so their ranks are the same.
    rho, rho_later = correlations(seen.products, (seen.among - itself)[:, 0], near[:, 0])
    product_power = statistics["score_power"] / seen.attention.scale**2
    named = ("mean_score", "score_power", "score_power_later", "variation", "variation_later")
    return {
        **{name: statistics[name] for name in named},
        **{f"cosine_power{side}": statistics[f"along_power{side}"] / length.square() for side in ("", "_later")},
        **{f"score_cosine{side}": statistics[f"score_along{side}"] / length for side in ("", "_later")},
        **{name: statistics[name] / largest for name in ("entropy", "entropy_unscaled", "entropy_bare")},
        **_key_spread(seen),
        "keys": count.expand(seen.q.shape[:3]),
        "product_power": product_power,
        "axis_power": _axis_power(seen, product_power),
        "null_query": null_query,
        "null_key": null_key,
        "null_value": statistics["null_value"],
        "update": seen.update,
        "rho": rho,
        "rho_later": rho_later,
    }


def attended(scores: Tensor, among: Tensor, sinks: Tensor | None = None) -> Tensor:
    """The attention pattern: softmax of the scores [..., h, n, t] over the keys marked by 1, and over sinks [h].

    >>> attended(torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 0.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    if sinks is None:
        return _hiding(scores, among).softmax(-1)
    return log_attention(scores, among, sinks).exp()


def entropy_of(pattern: Tensor, scores: Tensor, among: Tensor, sinks: Tensor | None = None) -> Tensor:
    """In nats. Logarithms come from the scores: a pattern may be rounded to 0 where they are still finite."""
    return -(pattern * log_attention(scores, among, sinks)).sum(-1)


def log_attention(scores: Tensor, among: Tensor, sinks: Tensor | None) -> Tensor:
    """The logarithm of the pattern."""
    hidden = _hiding(scores, among)
    if sinks is None:
        return hidden.log_softmax(-1)
    total = torch.logaddexp(hidden.logsumexp(-1), sinks.to(hidden)[:, None])
    return hidden - total[..., None]


def _hiding(scores: Tensor, among: Tensor) -> Tensor:
    return scores + (among - 1) * HIDDEN


@dataclass(frozen=True, eq=False)
class Deviations:
    """Deviations of values from their mean over the keys after position 0; position 0 is added on request."""

    values: Tensor
    """Deviations; 0 at keys that the query does not see, and at position 0."""
    later_mean: Tensor
    first: Tensor
    """The deviation of position 0."""
    share: Tensor
    """The share of position 0 among all keys, 1 / (m + 1) for m later keys; 0 where it is not seen."""

    @staticmethod
    def of(values: Tensor, among: Tensor, later: Tensor) -> "Deviations":
        """
        >>> values, later = torch.tensor([6.0, 1.0, 1.0, 4.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])
        >>> deviations = Deviations.of(values, torch.ones(4), later)
        >>> deviations.mean(), deviations.products(deviations)
        (tensor(3.), (tensor(18.), tensor(6.)))
        """
        count = later.sum(-1).clamp_min(1)
        mean = (values * later).sum(-1) / count
        return Deviations((values - mean[..., None]) * later, mean, values[..., 0] - mean, among[..., 0] / (count + 1))

    def mean(self) -> Tensor:
        return self.later_mean + self.share * self.first

    def products(self, other: "Deviations") -> tuple[Tensor, Tensor]:
        """Sums over keys of products of centred values, with position 0 and without it."""
        without = (self.values * other.values).sum(-1)
        # A value that joins m others adds m / (m + 1) of its squared deviation to the sum of squares.
        joins = torch.where(self.share > 0, 1 - self.share, 0.0)
        return without + joins * self.first * other.first, without


def _cosine(seen: QueryScores) -> dict[str, Tensor]:
    score, along = (Deviations.of(values, seen.among, seen.later) for values in (seen.scores, seen.along))
    power = score.products(score)
    product_power = power[0] / seen.attention.scale**2
    if seen.attention.softcap is not None or seen.added is not None:
        product = Deviations.of(seen.products, seen.among, seen.later)
        product_power = product.products(product)[0]
    axis_power = _axis_power(seen, product_power)
    # The query's length is the same factor for all its keys.
    length = seen.q.norm(dim=-1).clamp_min(LEAST)
    square = [sums / length.square() for sums in along.products(along)]
    both = [sums / length for sums in score.products(along)]
    return {
        "mean_score": score.mean(),
        "product_power": product_power,
        "axis_power": axis_power,
        "score_power": power[0],
        "cosine_power": square[0],
        "score_cosine": both[0],
        "score_power_later": power[1],
        "cosine_power_later": square[1],
        "score_cosine_later": both[1],
    }


def _variation(seen: QueryScores, pattern: Tensor) -> dict[str, Tensor]:
    """How much attention moves when every key gets the mean length of the keys that the query sees."""

    def moved(true: Tensor, among: Tensor) -> Tensor:
        mean = (among[:, 0] @ seen.k_length.mT).mT[..., None] / among.sum(-1, keepdim=True).clamp_min(1)
        equal = seen.attended(seen.scored(seen.along * mean), among)
        return (1 - torch.minimum(true, equal).sum(-1)).clamp_min(0)

    return {
        "variation": moved(pattern, seen.among),
        "variation_later": moved(seen.attended(seen.scores, seen.later), seen.later),
    }


def _axis_power(seen: QueryScores, product_power: Tensor) -> Tensor:
    """Sum over keys of (q·a k·a − its mean)² for an axis a of the head's space, times k; mean over all axes a."""
    # Keys are centred per window first: a bias a hundred times their spread would leave rounding errors.
    keys, among = seen.k - seen.k.mean(2, keepdim=True), seen.among
    count = among.sum(-1).clamp_min(1)
    total = (among @ keys.square().sum(-1)[..., None])[..., 0] - (among @ keys).square().sum(-1) / count
    total = seen.per_head(total)
    # For a random unit vector a, (q·a)²(k·a)² is (|q|²|k|² + 2(q·k)²) / (k(k + 2)) on average.
    return (seen.q.square().sum(-1) * total.clamp_min(0) + 2 * product_power) / (seen.q.shape[-1] + 2)


def _unseen(seen: QueryScores, largest: Tensor) -> dict[str, Tensor]:
    """The pattern of a query of which only biases are left, and how a token's score as a key varies over queries."""
    bare_q = torch.zeros_like(seen.q) if seen.bare_q is None else seen.bare_q
    scores, sinks = seen.scored(seen.with_keys(bare_q)), seen.attention.sinks
    bare = entropy_of(seen.attended(scores, seen.among), scores, seen.among, sinks) / largest
    return {"entropy_bare": bare, **_key_spread(seen)}


def _key_spread(seen: QueryScores) -> dict[str, Tensor]:
    rows = torch.arange(len(seen.z), device=seen.z.device)[:, None]
    keys = seen.per_head(seen.k.transpose(1, 2)[rows, seen.query].transpose(1, 2))
    keys = keys if seen.bare_k is None else keys - seen.bare_k
    at_keys = seen.sees.gather(2, seen.query[:, None].expand(-1, seen.query.shape[1], -1))
    asked = at_keys if seen.distinct is None else at_keys & seen.distinct[..., None]
    among = asked[:, None].float()
    count = among.sum(-2)
    products = seen.q @ keys.mT * seen.attention.scale
    mean = (products * among).sum(-2, keepdim=True) / count.clamp_min(1)[..., None, :]
    spread = ((products - mean).square() * among).sum(-2) / count.clamp_min(1)
    return {"key_queries": count.expand(spread.shape), "key_spread": spread}


def _geodesic(seen: QueryScores) -> dict[str, Tensor]:
    """Spearman's ρ of score and −angle over the other keys: at the token itself the angle is 0 by definition."""
    nearness, itself = _nearness(seen)
    others, rest = seen.among - itself, seen.later - itself
    score = ranks(seen.scores, others)
    return {
        "rho": _correlation(nearness, score, others),
        "rho_later": _correlation(_without_first(nearness) * rest, _without_first(score) * rest, rest),
    }


def _nearness(seen: QueryScores) -> tuple[Tensor, Tensor]:
    """[b, 1, n, t]: ranks of the other keys' cosines with the query; and 1 where the key is the query itself."""
    rows = torch.arange(len(seen.z), device=seen.z.device)[:, None]
    # −angle and the cosine have the same ranks, whatever the query's own length.
    cosines = seen.z[rows, seen.query] @ seen.z.mT / seen.z.norm(dim=-1)[:, None].clamp_min(LEAST)
    itself = torch.zeros_like(cosines).scatter_(-1, seen.query[..., None], 1.0)[:, None]
    return ranks(cosines[:, None], seen.among - itself), itself


def _correlation(a: Tensor, b: Tensor, among: Tensor) -> Tensor:
    """Of ranks that are 0 outside the keys marked by 1; 0 where one side does not vary."""
    count = among.sum(-1)
    mean = ((count + 1) / 2)[..., None]
    a = (a - mean) * among
    # Ranks 1 … m have a known mean, ties or not, and a is centred already.
    b_power = b.square().sum(-1) - count * mean[..., 0].square()
    return (a * b).sum(-1) / (a.square().sum(-1) * b_power).clamp_min(1e-30).sqrt()


def _without_first(ranked: Tensor) -> Tensor:
    """Ranks of the later keys among themselves: one less above position 0, a half less where tied with it."""
    first = ranked[..., :1]
    return ranked - ((ranked - first).sign_() + 1) * ((first > 0).float() / 2)


def ranks(values: Tensor, among: Tensor) -> Tensor:
    """Ranks along the last axis among the entries marked by 1, ties at their mean rank; 0 elsewhere.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    tensor([2.5000, 1.0000, 2.5000, 0.0000])
    """
    shifted = values + (1 - among) * HIDDEN
    # On a CPU NumPy sorts ten times as fast as torch.
    on_cpu = shifted.device.type == "cpu"
    order = torch.from_numpy(np.argsort(shifted.numpy(), axis=-1)) if on_cpu else shifted.argsort(-1)
    ranked = torch.empty_like(shifted).scatter_(-1, order, _middles(shifted.gather(-1, order)))
    return ranked * among


def _middles(ordered: Tensor) -> Tensor:
    """Ranks of sorted rows, equal neighbours at their mean rank."""
    place = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device, dtype=ordered.dtype).expand_as(ordered)
    equal = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] < HIDDEN / 2)
    if ordered.device.type == "cpu" and not bool(equal.any()):
        return place
    edge = torch.zeros_like(equal[..., :1])
    low = torch.where(torch.cat((edge, equal), -1), 0, place).cummax(-1).values
    high = torch.where(torch.cat((equal, edge), -1), torch.inf, place).flip(-1).cummin(-1).values.flip(-1)
    return (low + high) / 2
