"""Is an update simpler than its input, more so than before training, and simpler than attention's?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.probes.filter.by_layer import each_above, each_beats, nearest, where
from armillary.probes.filter.writes.layer_writes import ATTENTION, INPUT, KEPT, STREAMS, THROUGH, WRITE
from armillary.probes.filter.writes.write_bits import WriteBits
from armillary.probes.machinery import (
    NAN3,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    beats,
    missing_interval,
    over_twins,
)
from armillary.probes.machinery.verdicts import by_layers
from armillary.probes.sphere.across_sites import drawn_interval
from armillary.results import Part, Statistic, Why, say


@dataclass(frozen=True, eq=False)
class Saved:
    """A share saved: [layer, (value, low, high)] and of the mean over layers."""

    each: Floats
    mean: Interval


@dataclass(frozen=True, eq=False)
class WriteSavings:
    """What the write saves beside other streams, in the layers that write anything."""

    layers: tuple[int, ...]
    bits: Mapping[str, Saved]
    """Share of the bits of another stream that the write does not need."""
    attention: Saved
    """The same of attention's write beside the input."""
    rank: Saved
    """Share of the input's effective rank."""
    untrained: Saved
    """Share of the input's bits in untrained models, in the nearest layer that was measured; NaN without twins."""
    number: int
    """How many untrained models."""

    @classmethod
    def of(cls, evidence: Evidence, measured: WriteBits, twins: Mapping[str, WriteBits]) -> "WriteSavings":
        chosen = measured.writing
        layers = tuple(layer for layer, flag in zip(measured.layers, chosen, strict=True) if flag)
        sums, ranks = measured.sums[:, chosen], measured.ranks[:, chosen]
        return cls(
            layers,
            {name: _saved(evidence, sums, WRITE, name) for name in (INPUT, ATTENTION, KEPT, THROUGH)},
            _saved(evidence, sums, ATTENTION, INPUT),
            _drawn(evidence, 1 - ranks[..., 1] / ranks[..., 0]),
            _untrained(evidence, layers, twins),
            len(twins),
        )


def _saved(evidence: Evidence, sums: Floats, name: str, beside: str) -> Saved:
    """1 − bits of one stream over those of another, from sums [group, layer, (coordinates, bits of each stream)]."""
    pair = sums[..., [1 + STREAMS.index(name), 1 + STREAMS.index(beside)]]
    known: Flags = ~np.isnan(pair.sum((0, 2)))
    each = np.full((len(known), 3), np.nan)
    if not known.any():
        return Saved(each, NAN3)
    each[known] = evidence.intervals(pair[:, known], _share)
    return Saved(each, evidence.interval(pair[:, known], lambda drawn: _share(drawn).mean(-1)))


def _share(sums: Floats) -> Floats:
    return np.asarray(1 - sums[..., 0] / np.maximum(sums[..., 1], 1e-300))


def _drawn(evidence: Evidence, values: Floats) -> Saved:
    """From values [1 + draw, layer]."""
    each = [drawn_interval(evidence, column) for column in values.T]
    return Saved(np.array(each), drawn_interval(evidence, values.mean(1)))


def _untrained(evidence: Evidence, layers: tuple[int, ...], twins: Mapping[str, WriteBits]) -> Saved:
    if not twins:
        return Saved(np.full((len(layers), 3), np.nan), NAN3)
    saved = [_saved(evidence, twin.sums, WRITE, INPUT) for twin in twins.values()]
    measured = next(iter(twins.values())).layers
    value, low, high = over_twins([twin.mean for twin in saved]).tolist()
    return Saved(over_twins(np.stack([twin.each for twin in saved]))[nearest(layers, measured)], (value, low, high))


def write_parts(saved: WriteSavings) -> tuple[Part, ...]:
    return _simpler(saved), _learned(saved), _beside(saved), _discarding(saved), _directions(saved)


def _simpler(saved: WriteSavings) -> Part:
    share = saved.bits[INPUT]
    text = f"At the same relative precision the feed-forward's write takes {_fewer(share.mean)} bits than its input"
    return _part("the write is simpler than its input", saved, share, text)


def _learned(saved: WriteSavings) -> Part:
    name, control = "training makes it so", saved.untrained
    if np.isnan(control.each).all():
        return Part(name, "undecided", "There is no untrained model to compare with.", None, True, Why.NO_CONTROL)
    holds = each_beats(saved.bits[INPUT].each, control.each, saved.number, -np.inf, T.write_margin)
    overall = beats(saved.bits[INPUT].mean, control.mean, saved.number, T.write_margin)
    text = f"In untrained models it takes {_fewer(control.mean)}; training saves {T.write_margin:.0%} more than that"
    return _decided(name, saved, holds, overall, text, saved.bits[INPUT].mean, "saved by the write")


def _beside(saved: WriteSavings) -> Part:
    name = "it is simpler than attention's write"
    if np.isnan(saved.bits[ATTENTION].each).all():
        reading = "Attention's write cannot be separated in this model."
        return Part(name, "undecided", reading, None, False, Why.NOT_APPLICABLE)
    text = f"It takes {_fewer(saved.bits[ATTENTION].mean)} bits than attention's write"
    return _part(name, saved, saved.bits[ATTENTION], text, False)


def _discarding(saved: WriteSavings) -> Part:
    through, kept_bits = saved.bits[THROUGH], saved.bits[KEPT].mean
    text = (
        f"It takes {_fewer(through.mean)} bits than with the discarded values let through ({_fewer(kept_bits)} than "
        "what units above zero write alone)"
    )
    return _part("discarding makes it simpler", saved, through, text, False)


def _directions(saved: WriteSavings) -> Part:
    text = f"By effective rank it takes {_fewer(saved.rank.mean)} directions than its input"
    return _part("it takes fewer directions", saved, saved.rank, text, False)


def _fewer(interval: Interval) -> str:
    """'12% fewer', or '3% more'."""
    value = interval[0]
    return f"{say(abs(value), '.0%')} {'more' if value < 0 else 'fewer'}"


def _part(name: str, saved: WriteSavings, share: Saved, text: str, asserted: bool = True) -> Part:
    holds, overall = each_above(share.each, T.write_saved), above(share.mean, T.write_saved)
    return _decided(name, saved, holds, overall, f"{text}; {T.write_saved:.0%} fewer", share.mean, name, asserted)


def _decided(
    name: str,
    saved: WriteSavings,
    holds: list[bool | None],
    overall: bool | None,
    text: str,
    mean: Interval,
    what: str,
    asserted: bool = True,
) -> Part:
    verdict, why = by_layers(holds, overall)
    why = None if why is None else missing_interval(*mean)
    names = [f"L{layer}" for layer in saved.layers]
    statistic = Statistic(f"share saved, mean over layers: {what}", *mean)
    return Part(name, verdict, f"{text} {where(names, holds)}.", statistic, asserted, why)
