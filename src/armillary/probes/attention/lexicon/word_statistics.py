"""Statistics over words: their intervals, and which layers are compared."""

import numpy as np

from armillary.probes.machinery import Evidence, Floats, Interval, Ints, line
from armillary.probes.machinery.intervals import Statistic
from armillary.results import Quantity

# All layers of a randomly initialised model are alike, so only this many are measured at either end of a twin.
TWIN_LAYERS = 2


def thirds(layers: int) -> tuple[range, range]:
    """The first and the last third of the layers, at least one layer each.

    >>> thirds(7), thirds(2)
    ((range(0, 2), range(5, 7)), (range(0, 1), range(1, 2)))
    """
    size = max(1, layers // 3)
    return range(size), range(layers - size, layers)


def twin_layers(layers: int) -> list[int]:
    """The layers of a twin that are measured: the first few of the first third, the last few of the last third.

    >>> twin_layers(12), twin_layers(3)
    ([0, 1, 10, 11], [0, 2])
    """
    first, last = thirds(layers)
    return [*first[:TWIN_LAYERS], *last[-TWIN_LAYERS:]]


def twin_note(evidence: Evidence, measured: int) -> str:
    """How many untrained models a claim was compared with, and how many layers of each were measured."""
    layers = evidence.anatomy.layers
    part = "all layers" if measured == layers else f"{measured} of {layers} layers"
    return f"Random initialisation: {len(evidence.twins)} untrained models of this architecture, {part} of each."


def shown_layers(layers: int) -> list[int]:
    """First, middle and last layer: their words are listed in tables.

    >>> shown_layers(12), shown_layers(1)
    ([0, 5, 11], [0])
    """
    return sorted({0, (layers - 1) // 2, layers - 1})


def word_intervals(
    evidence: Evidence, values: Floats, statistic: Statistic = lambda means: means, document: Ints | None = None
) -> Floats:
    """[…, (value, low, high)] of a statistic of means [draw, …], by bootstrap over the first axis of `values`.

    That axis holds words, pairs or heads: a sample of those that might have been there. Where it holds tokens of a
    text, `document` says which each came from, and documents are drawn.
    """
    # The first column counts: a word for which every value is 0 was measured all the same.
    rows = np.concatenate([np.ones((len(values), 1)), values.reshape(len(values), -1)], 1)
    if document is not None:
        assert evidence.corpus is not None, "documents need a text"
        tokens, rows = rows, np.zeros((evidence.corpus.groups, rows.shape[1]))
        np.add.at(rows, document % len(rows), tokens)

    def of_sums(sums: Floats) -> Floats:
        return statistic((sums[:, 1:] / sums[:, :1]).reshape(len(sums), *values.shape[1:]))

    return evidence.intervals(rows, of_sums)


def word_interval(evidence: Evidence, values: Floats, statistic: Statistic, document: Ints | None = None) -> Interval:
    """The same of a statistic that is one number."""
    value, low, high = word_intervals(evidence, values, statistic, document).tolist()
    return value, low, high


def median_over_heads(means: Floats) -> Floats:
    """From [draw, layer, head] to [draw]."""
    return np.median(means.reshape(len(means), -1), axis=1)


def depth_line(name: str, meaning: str, unit: str, values: Floats, enough: float) -> Quantity:
    """A line over layers of values [layer] or [layer, (value, low, high)], with chance and the claim's threshold."""
    layers = [f"L{layer}" for layer in range(len(values))]
    theory = {"chance: 0": np.zeros(len(layers)), f"threshold: {enough}": np.full(len(layers), enough)}
    return line(name, meaning, unit, "layer", layers, values, theory=theory)
