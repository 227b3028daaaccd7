"""Statistics over words: their intervals, and which layers are compared."""

import numpy as np

from armillary.probes.machinery import Evidence, Floats, Interval, line
from armillary.probes.machinery.intervals import Statistic
from armillary.results import Quantity

# All layers of a randomly initialised model are alike, so only this many are measured (at each end, where ends differ).
TWIN_LAYERS = 2


def thirds(layers: int) -> tuple[range, range]:
    """The first and the last third of the layers, at least one layer each.

    >>> thirds(7), thirds(2)
    ((range(0, 2), range(5, 7)), (range(0, 1), range(1, 2)))
    """
    size = max(1, layers // 3)
    return range(size), range(layers - size, layers)


def shown_layers(layers: int) -> list[int]:
    """First, middle and last layer: their words are listed in tables.

    >>> shown_layers(12), shown_layers(1)
    ([0, 5, 11], [0])
    """
    return sorted({0, (layers - 1) // 2, layers - 1})


def word_intervals(evidence: Evidence, values: Floats, statistic: Statistic = lambda means: means) -> Floats:
    """[…, (value, low, high)] of a statistic of means [draw, …], by bootstrap over the first axis of `values`.

    That axis holds words, pairs or heads: a sample of those that might have been there.
    """
    from armillary.geometry.resample import bootstrap

    if len(values) < 2:
        value = statistic(values)[0]
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)], -1)
    drawn = bootstrap(values, lambda sums: statistic(sums / len(values)), seed=evidence.seed)
    return np.stack([drawn.value, drawn.low, drawn.high], -1)


def word_interval(evidence: Evidence, values: Floats, statistic: Statistic) -> Interval:
    """The same of a statistic that is one number."""
    value, low, high = word_intervals(evidence, values, statistic).tolist()
    return value, low, high


def median_over_heads(means: Floats) -> Floats:
    """From [draw, layer, head] to [draw]."""
    return np.median(means.reshape(len(means), -1), axis=1)


def depth_line(evidence: Evidence, name: str, meaning: str, unit: str, values: Floats, enough: float) -> Quantity:
    """A line over layers of values [word, layer], with its interval over words and the threshold of the claim."""
    layers = [f"L{layer}" for layer in range(values.shape[1])]
    theory = {"chance: 0": np.zeros(len(layers)), f"threshold: {enough}": np.full(len(layers), enough)}
    return line(name, meaning, unit, "layer", layers, word_intervals(evidence, values), theory=theory)
