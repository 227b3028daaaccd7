"""What do the statistics of attention heads come to, in plain NumPy? The heads' part of `crosscheck.py`."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from crosscheck_run import Array, Run

Columns = dict[str, Array]
# By how much float32 may move a state, relative to its size. A sum of 128 terms is off by about √128 rounding errors of
# 6e-8, and some ten such sums follow one another on the way through three layers.
ROUNDING = 2e-6


class Query(NamedTuple):
    """One query of a layer: its place, its keys' places and words, q [h, k], k [h, j, k], scores [h, j], z."""

    place: int
    keys: Array
    words: Array
    q: Array
    k: Array
    scores: Array
    z: Array

    def among(self, chosen: Array) -> "Query":
        """The same query with some of its keys."""
        return self._replace(keys=self.keys[chosen], k=self.k[:, chosen], scores=self.scores[:, chosen])


def length(x: Array) -> Array:
    return np.sqrt(np.square(x).sum(-1))


def angle(a: Array, b: Array) -> Array:
    """In degrees, by the tangent: the arc cosine of nearly 1 loses half of the digits."""
    a, b = a / length(a)[..., None], b / length(b)[..., None]
    return np.degrees(2 * np.arctan2(length(a - b), length(a + b)))


def centred(x: Array) -> Array:
    return x - x.mean(-1, keepdims=True)


def softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def ranks(x: Array) -> Array:
    """Ranks along the last axis; equal values share their mean rank."""
    below = (x[..., None, :] < x[..., :, None]).sum(-1)
    return below + ((x[..., None, :] == x[..., :, None]).sum(-1) + 1) / 2


def _queries(run: Run, layer: int) -> Iterator[Query]:
    for trace in run.traces:
        q, k, scores = run.scores(trace, layer)
        z = run.heads_input(trace, layer)
        for place, keys in run.queries(trace):
            yield Query(place, keys, trace.ids, q[:, place], k[:, keys], scores[:, place, keys], z)


def _means(run: Run, look: Callable[[Query], Columns]) -> Columns:
    """Means over queries of what a function sees at each [h], one row per head; it may leave a column out."""
    columns: dict[str, list[Array]] = {}
    for layer in range(run.layers):
        seen: dict[str, list[Array]] = {}
        for query in _queries(run, layer):
            for name, values in look(query).items():
                seen.setdefault(name, []).append(values)
        for name, rows in seen.items():
            columns.setdefault(name, []).append(np.mean(rows, axis=0))
    return {name: np.concatenate(layers, axis=-1) for name, layers in columns.items()}


def cosine(run: Run) -> Columns:
    """attention.cosine: R² pooled over queries, and attention moved by keys of equal length."""

    def look(query: Query) -> Columns:
        long = length(query.k)
        level = query.scores * long.mean(-1, keepdims=True) / long
        cos = np.einsum("hk,hjk->hj", query.q, query.k) / length(query.q)[:, None] / long
        sums = {}
        for name, part in (("r2", slice(None)), ("r2_later", query.keys > 0)):
            y, x = centred(query.scores[:, part]), centred(cos[:, part])
            sums[name] = np.stack([(x * y).sum(-1), (x * x).sum(-1), (y * y).sum(-1)])
        return {"variation": np.abs(softmax(query.scores) - softmax(level)).sum(-1) / 2, **sums}

    seen = _means(run, look)
    for name in ("r2", "r2_later"):
        xy, xx, yy = seen[name]
        seen[name] = xy**2 / xx / yy
    return seen


def _others(query: Query) -> dict[str, Query]:
    """Without its own key, and without the first one, too."""
    others = query.among(query.keys != query.place)
    return {"rho": others, "rho_later": others.among(others.keys > 0)}


def geodesic(run: Run) -> Columns:
    """attention.geodesic: Spearman's ρ of score and nearness, per query."""

    def rho(query: Query) -> Array:
        near = centred(ranks(-angle(query.z[query.keys], query.z[query.place])))
        high = centred(ranks(query.scores))
        return (high * near).sum(-1) / length(high) / length(near)

    return _means(run, lambda query: {name: rho(part) for name, part in _others(query).items()})


def swaps(run: Run) -> Columns:
    """By how much ρ may change if keys that rounding cannot tell apart change places."""

    def change(query: Query) -> Array:
        away = np.radians(angle(query.z[query.keys], query.z[query.place]))
        near, high, n = ranks(-away), ranks(query.scores), len(query.keys)
        size = (length(query.q)[:, None] * length(query.k) / np.sqrt(query.q.shape[-1])).max(-1)[:, None, None]
        close_scores = np.abs(query.scores[:, :, None] - query.scores[:, None]) < ROUNDING * size
        close_angles = np.abs(away[:, None] - away) < ROUNDING
        moved = close_scores * np.abs(near[:, None] - near) + close_angles * np.abs(high[:, :, None] - high[:, None])
        # Two neighbours in one ranking that change places move ρ by 12/(n(n² − 1)) times their distance in the other.
        return moved.sum((1, 2)) / 2 * 12 / (n * (n**2 - 1))

    return _means(run, lambda query: {name: change(part) for name, part in _others(query).items()})


def specialise(run: Run) -> Columns:
    """heads.specialise: shares of attention, its entropy, and how far a head's patterns are from its layer's others."""

    def look(query: Query) -> Columns:
        pattern = softmax(query.scores)
        apart = np.abs(pattern[:, None] - pattern).sum(-1) / 2
        shares = {
            "previous": pattern[:, query.keys == query.place - 1].sum(-1),
            "first": pattern[:, query.keys == 0].sum(-1),
            "self": pattern[:, query.keys == query.place].sum(-1),
            "entropy": -(pattern * np.log(pattern)).sum(-1) / np.log(len(query.keys)),
            "differs": apart.sum(-1) / (len(apart) - 1),
        }
        same = (query.words[query.keys] == query.words[query.place]) & (query.keys != query.place)
        return {**shares, "same": pattern[:, same].sum(-1)} if same.any() else shares

    return _means(run, look)
