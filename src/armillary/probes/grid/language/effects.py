"""Which head tells the target from the distractor best, and how well does it on items that did not choose it?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery import Flags, Floats, Interval, discoveries, mean
from armillary.probes.machinery.intervals import counted, interval

Gaps = Mapping[str, Floats]
"""Phenomenon → attention on the target less that on the distractor [pair, order, layer, head]."""
Head = tuple[int, int]
"""Layer and number."""


@dataclass(frozen=True, eq=False)
class Cost:
    """What removing some heads costs."""

    heads: tuple[Head, ...]
    items: Floats
    """[pair]: nats per token more, at the query and after it, on items that did not choose the heads."""
    text: Floats
    """[document group, (tokens, nats more)]."""

    def beyond(self, seed: int) -> Interval:
        """Nats per token more on items than on text; pairs and documents are independent, so errors add in squares."""
        items, text = self.on_items(seed), self.on_text(seed)
        value = items[0] - text[0]
        below, above = (
            np.hypot(items[0] - items[1], text[2] - text[0]),
            np.hypot(items[2] - items[0], text[0] - text[1]),
        )
        return value, float(value - below), float(value + above)

    def on_items(self, seed: int) -> Interval:
        return interval(counted(self.items), mean, seed)

    def on_text(self, seed: int) -> Interval:
        return interval(self.text, mean, seed)


def weaker(gaps: Floats) -> Floats:
    """[layer, head]: the mean gap over pairs [pair, order, layer, head], in the order in which it is smaller."""
    return np.asarray(gaps.mean(0).min(0))


def best_heads(gaps: Floats) -> tuple[Head, Head]:
    """The best head by the second half of the pairs, and by the first (every other pair)."""
    return _best(gaps[1::2]), _best(gaps[::2])


def _best(gaps: Floats) -> Head:
    means = weaker(gaps)
    layer, head = np.unravel_index(int(np.argmax(means)), means.shape)
    return int(layer), int(head)


def held_out(gaps: Floats) -> Floats:
    """[pair, order]: the gap of the head that the other half of the pairs chose.

    >>> gaps = np.zeros((4, 2, 1, 2)); gaps[:, 0, 0, 1], gaps[:, 1, 0, 1] = [1, 2, 3, 4], 5
    >>> held_out(gaps).T
    array([[1., 2., 3., 4.],
           [5., 5., 5., 5.]])
    """
    halves = best_heads(gaps)
    return np.array([pair[:, *halves[number % 2]] for number, pair in enumerate(gaps)])


def best_gap(gaps: Floats, seed: int, tests: int) -> Interval:
    """Mean of `held_out` over pairs in the weaker order, with an interval that corrects for so many tests."""
    values = held_out(gaps)
    rows = np.concatenate([np.ones((len(values), 1)), values], 1)
    return interval(rows, lambda sums: sums[:, 1:].min(1) / sums[:, 0], seed, draws=2000, level=1 - 0.05 / tests)


def significant(gaps: Gaps) -> dict[str, Flags]:
    """Phenomenon → [layer, head]: is the mean gap above 0 in both orders, corrected for all heads and phenomena?"""
    p = np.stack([_p_values(values).max(0) for values in gaps.values()])
    return dict(zip(gaps, discoveries(p), strict=True))


def _p_values(gaps: Floats) -> Floats:
    """[order, layer, head]: one-sided, by Student's law over pairs."""
    from scipy.stats import t

    count, average, spread = len(gaps), gaps.mean(0), gaps.std(0, ddof=1)
    statistic = average / np.where(spread > 0, spread, 1) * np.sqrt(count)
    return np.where(spread > 0, t.sf(statistic, count - 1), np.where(average > 0, 0.0, 1.0))
