"""What the activation saves, what training adds to it, and what the directions of W_1 add."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.filter.by_layer import each_above, each_beats, nearest, where
from armillary.probes.machinery import NAN3, Evidence, Floats, Interval, T, above, beats, missing_interval, over_twins
from armillary.probes.machinery.verdicts import Answers, by_layers
from armillary.results import Part, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.probes.filter.compression.bits import CodedLayer, CodedLayers

BITS = "bits/coordinate"
BEYOND = "bits per coordinate saved beyond random directions with matched moments"


@dataclass(frozen=True, eq=False)
class Savings:
    """Bits per coordinate, [layer, (value, low, high)]."""

    saved: Floats
    more: Floats
    """Beyond random directions with matched moments."""
    untrained: Floats
    """Saved by untrained models, in the nearest layer that was coded; NaN without twins."""
    mean_more: Interval
    means: dict[str, Interval]
    """Mean over layers, by source."""
    twins: Interval
    """Mean over layers, over untrained models."""
    number: int
    """Of these."""

    @classmethod
    def of(cls, evidence: Evidence, coded: "CodedLayers") -> "Savings":
        layers = list(coded.layers.values())
        means = {
            source: evidence.interval(_sums(layers, source), lambda sums: _saved(sums).mean(-1))
            for source in ("model", "turned", "unshifted")
        }
        return cls(
            saved_by(evidence, layers),
            saved_beyond(evidence, layers),
            _untrained(evidence, coded),
            evidence.interval(
                _sums(layers, "model", "turned"), lambda s: (_saved(s) - _saved(s[..., [0, 3, 4]])).mean(-1)
            ),
            means,
            _over_twins(
                [
                    evidence.interval(_sums(list(twin.values()), "model"), lambda sums: _saved(sums).mean(-1))
                    for twin in coded.twins.values()
                ]
            ),
            len(coded.twins),
        )


def saved_by(evidence: Evidence, layers: "list[CodedLayer]") -> Floats:
    """[layer, (value, low, high)]: bits per coordinate that the activation saves."""
    return evidence.intervals(_sums(layers, "model"), _saved)


def saved_beyond(evidence: Evidence, layers: "list[CodedLayer]") -> Floats:
    """[layer, (value, low, high)]: the same beyond random directions with matched moments."""
    return evidence.intervals(_sums(layers, "model", "turned"), lambda s: _saved(s) - _saved(s[..., [0, 3, 4]]))


def _over_twins(each: list[Interval]) -> Interval:
    if not each:
        return NAN3
    value, low, high = over_twins(each).tolist()
    return value, low, high


def _untrained(evidence: Evidence, coded: "CodedLayers") -> Floats:
    if not coded.twins:
        return np.full((len(coded.layers), 3), np.nan)
    numbers = list(next(iter(coded.twins.values())))
    each = [evidence.intervals(_sums(list(twin.values()), "model"), _saved) for twin in coded.twins.values()]
    control = over_twins(np.stack(each))
    return control[nearest(coded.layers, numbers)]


def _sums(layers: "list[CodedLayer]", *sources: str) -> Floats:
    """[group, layer, (coordinates, bits before and after of each source)]."""
    sides = [f"{source} {side}" for source in sources for side in ("before", "own")]
    return np.stack([np.stack([layer.count, *(layer.bits[name] for name in sides)], -1) for layer in layers], 1)


def _saved(sums: Floats) -> Floats:
    return np.asarray((sums[..., 1] - sums[..., 2]) / np.maximum(sums[..., 0], 1e-300))


def compress_parts(savings: Savings, names: Sequence[str]) -> tuple[Part, ...]:
    return _saves(savings, names), _learned(savings, names), _directions(savings, names)


def _saves(savings: Savings, names: Sequence[str]) -> Part:
    mean = savings.means["model"]
    holds, overall = each_above(savings.saved, T.compress_bits), above(mean, T.compress_bits)
    text = f"The activation saves {say(mean[0], '.2f')} bits per coordinate"
    return _part("the activation saves bits", holds, f"{text}: more than {T.compress_bits}", names, overall, mean)


def _learned(savings: Savings, names: Sequence[str]) -> Part:
    gain, control = savings.saved, savings.untrained
    name = "training adds to it"
    mean = savings.means["model"]
    if np.isnan(control).all():
        return Part(name, "undecided", "There is no untrained model to compare with.", None, True, Why.NO_CONTROL)
    holds = each_beats(gain, control, savings.number, -np.inf, T.compress_margin)
    overall = beats(mean, savings.twins, savings.number, T.compress_margin)
    text = f"Untrained models save {say(savings.twins[0], '.2f')} bits; the model saves {T.compress_margin} bits more"
    return _part(name, holds, text, names, overall, mean)


def _directions(savings: Savings, names: Sequence[str]) -> Part:
    holds, mean = each_above(savings.more, T.compress_margin), savings.mean_more
    overall = above(mean, T.compress_margin)
    opposed = each_above(-savings.more[:, [0, 2, 1]], T.compress_margin)
    text = f"Random directions with the same means and variances save {say(savings.means['turned'][0], '.2f')} bits"
    if True in opposed:
        text += f", {T.compress_margin} bits more than the model's own {where(names, opposed)}"
    text += f"; the model's own save {T.compress_margin} bits more"
    return _part("the directions of W_1 add to it", holds, text, names, overall, mean, BEYOND)


def _part(
    name: str,
    holds: Answers,
    text: str,
    names: Sequence[str],
    overall: bool | None,
    mean: Interval,
    measured: str = "bits per coordinate saved by the model",
) -> Part:
    verdict, why = by_layers(holds, overall)
    if why is not None:
        why = missing_interval(*mean)
    statistic = Statistic(f"{measured}, mean over layers", *mean, BITS)
    return Part(name, verdict, f"{text} {where(names, holds)}.", statistic, why=why)
