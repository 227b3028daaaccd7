"""How are regions shown? By head and layer, and with the words that fall into them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from armillary.anatomy.vocabulary import Vocabulary
from armillary.probes.grid.regions.partition import REGIONS, Explained
from armillary.probes.grid.regions.readings import MEASURES
from armillary.probes.grid.regions.region_parts import RegionShares
from armillary.probes.grid.regions.shares import RANDOM_PARTITION, layer_shares
from armillary.probes.machinery import RANDOM, Floats, T, cells, line, table
from armillary.results import Quantity, Table

EXAMPLES = 6
MEANINGS = {
    "write": "share of the variance of the length of its write (its rank) that regions explain on other documents",
    "entropy": "the same of the entropy of its attention",
    "score": "the same of its mean score",
}


def shares_table(measured: RegionShares) -> Table:
    return table(
        cells("head", "attention head", measured.names),
        cells("share", "mean of the next three", measured.by_head),
        *(cells(name, MEANINGS[name], values) for name, values in zip(MEASURES, measured.by_measure, strict=True)),
        cells(
            "depends",
            f"is the share {T.regions_share} or more, and significant after correcting for all heads?",
            measured.heads,
        ),
    )


def region_table(measured: RegionShares, parts: Sequence[Explained]) -> Table:
    """The regions of the layer with the largest median share: the words of one half, by regions of the other."""
    best = int(np.argmax(np.median(measured.by_head, axis=1)))
    document, _, token = measured.passes.places.T
    words = [Counter(token[(document % 2 == 1) & (parts[best].labels == i)].tolist()) for i in range(REGIONS)]
    anatomy, writes = measured.evidence.anatomy, parts[best].fitted[0]
    texts = None if anatomy.tokenizer is None else Vocabulary.of(anatomy).texts
    return table(
        cells("region", f"region of layer L{measured.passes.layers[best]}", range(REGIONS)),
        cells("tokens", "tokens of the other half in it", [sum(count.values()) for count in words]),
        cells("words", "its most frequent ones", [_shown(texts, count) for count in words]),
        cells(
            "most", "the head that writes most there, compared with what it writes elsewhere", _heads(writes.argmax(1))
        ),
        cells("least", "the head that writes least there, compared likewise", _heads(writes.argmin(1))),
    )


def _heads(numbers: Floats) -> list[str]:
    return [f"H{number}" for number in numbers]


def _shown(texts: Sequence[str] | None, count: Counter[int]) -> str:
    """The most frequent tokens; their numbers where there is no tokenizer."""
    most = [token for token, _ in count.most_common(EXAMPLES)]
    shown = most if texts is None else [texts[token].replace("\n", "⏎").replace(" ", "␣") for token in most]
    return " · ".join(map(str, shown))


def region_quantities(measured: RegionShares) -> tuple[Quantity, ...]:
    layers = [f"L{layer}" for layer in measured.passes.layers]
    arms = measured.passes.arms
    twins = [layer_shares(arms[arm], measured.seed)[:, 0] for arm in measured.evidence.twins]
    by_layer = line(
        "what regions explain, by layer",
        "share of the variance of what a layer's median head does, on documents that did not define the regions",
        "share",
        "layer",
        layers,
        layer_shares(measured.parts, measured.seed),
        {
            RANDOM: np.mean(twins, axis=0),
            "random partitions": layer_shares(measured.parts, measured.seed, RANDOM_PARTITION)[:, 0],
        },
        {f"the limit: {T.regions_share}": np.full(len(layers), T.regions_share)},
    )
    maps = Quantity(
        "what regions explain, by head",
        "share of the variance of a head's write length, entropy and mean score; below 0: no better than the mean",
        "share",
        ("measure", "layer", "head"),
        {"measure": list(MEASURES), "layer": layers, "head": [f"H{i}" for i in range(measured.heads.shape[1])]},
        measured.by_measure,
    )
    return by_layer, maps
