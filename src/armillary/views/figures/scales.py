"""Axes of numbers and of labels, and their ticks."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.results.numbers import number
from armillary.results.quantity import Quantity
from armillary.views.text.quoting import in_html, is_token_column, show_label

Floats = NDArray[np.float64]
_SITE = re.compile(r"(L\d+)\.(\w+)")
_TICKS, _TOKENS = 12, 48


@dataclass(frozen=True)
class Numbers:
    """An axis of numbers; on a log scale, values that are not positive are drawn on a floor below, labelled '0'."""

    log: bool
    low: float
    high: float
    """The ends, in powers of ten on a log scale."""
    floor: float | None = None
    whole: bool = False
    """All values are whole numbers: so are the ticks."""

    @classmethod
    def of(cls, arrays: Sequence[Floats], log: bool, margin: float = 0.07) -> "Numbers":
        finite = np.concatenate([a[np.isfinite(a)].ravel() for a in arrays]) if arrays else np.zeros(0)
        positive = finite[finite > 0]
        floor = None
        if log and positive.size:
            ends = np.log10([positive.min(), positive.max()])
            if positive.size < finite.size:
                floor = float(10 ** (math.floor(ends[0]) - 0.5))
                ends[0] = math.log10(floor)
        else:
            log = False
            ends = np.array([finite.min(), finite.max()]) if finite.size else np.array([0.0, 1.0])
        room = margin * float(ends[1] - ends[0]) or margin * (abs(float(ends[0])) or 1.0)
        whole = not log and finite.size > 0 and bool(np.all(finite % 1 == 0))
        return cls(log, float(ends[0]) - room, float(ends[1]) + room, floor, whole)

    def place(self, values: Floats) -> Floats:
        return values if self.floor is None else np.where(values <= 0, self.floor, values)

    def on_floor(self, values: Floats) -> NDArray[np.bool_]:
        return np.zeros(values.shape, bool) if self.floor is None else values <= 0

    def fraction(self, value: float) -> float:
        """The height of a placed value on the axis, 0 to 1."""
        at = math.log10(value) if self.log else value
        return (at - self.low) / (self.high - self.low)

    def layout(self) -> dict[str, Any]:
        if not self.log:
            few = {"dtick": _whole_step(self.high - self.low), "tick0": 0} if self.whole else {"nticks": 7}
            return {"range": [self.low, self.high], **few}
        ticks = self.ticks()
        return {
            "type": "log",
            "range": [self.low, self.high],
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
            "minor": {"ticks": "", "showgrid": False},
        }

    def ticks(self) -> dict[float, str]:
        """Whole powers of ten; 1-2-5 where they are too few, and even steps where those are."""
        bottom = self.low if self.floor is None else math.log10(self.floor) + 0.4
        powers = range(math.ceil(bottom), math.floor(self.high) + 1)
        if len(powers) >= 3:
            step = math.ceil(len(powers) / 7)
            ticks = {10.0**p: _power(p) for p in powers if p % step == 0}
        else:
            exponents = range(math.floor(bottom) - 1, math.ceil(self.high) + 1)
            marks = [m * 10.0**p for p in exponents for m in (1, 2, 5)]
            ticks = {v: number(v, 1) for v in marks if bottom <= math.log10(v) <= self.high}
            ticks = ticks if len(ticks) >= 3 else _even_ticks(10.0**bottom, 10.0**self.high)
        return ticks if self.floor is None else {self.floor: "0", **ticks}


def _even_ticks(low: float, high: float) -> dict[float, str]:
    """Three to seven round numbers in even steps.

    >>> list(_even_ticks(25, 58).values())
    ['30', '40', '50']
    """
    power = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(m * power for m in (5, 2, 1, 0.5) if math.floor(high / m / power) - math.ceil(low / m / power) >= 2)
    digits = max(1, math.floor(math.log10(high)) - math.floor(math.log10(step)) + 1)
    marks = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    texts = [number(mark, digits) for mark in marks]
    return dict(
        zip(marks, texts if len(set(texts)) == len(texts) else [f"{mark:.{digits}g}" for mark in marks], strict=True)
    )


@dataclass(frozen=True)
class Labels:
    """An axis of names at 0, 1, 2 …, with fewer ticks where there is no room for all."""

    full: tuple[str, ...]
    """Every label, made safe to show."""
    tickvals: tuple[int, ...]
    ticktext: tuple[str, ...]

    def layout(self) -> dict[str, Any]:
        return {
            "range": [-0.6, len(self.full) - 0.4],
            "tickvals": list(self.tickvals),
            "ticktext": list(self.ticktext),
            "tickangle": -35 if self.tilted else 0,
        }

    @property
    def tilted(self) -> bool:
        """Whether the ticks side by side would be wider than the axis."""
        return sum(len(text) + 2 for text in self.ticktext) > 100

    @property
    def depth(self) -> int:
        """Additional pixels below the axis for tilted ticks."""
        return round(4.2 * max(map(len, self.ticktext))) if self.tilted else 0


def label_axis(labels: Sequence[str], axis: str) -> Labels:
    """Ticks for names: all if few, else every k-th layer of sites like L3.ln1, else every k-th.

    The tokens of a sentence are read one by one, so more of them have ticks; two may be the same word.
    """
    full = tuple(in_html(show_label(label, axis, 120)) for label in labels)
    # Few names have room to be whole.
    short = [in_html(show_label(label, axis, 28 if len(labels) <= _TICKS else 14)) for label in labels]
    layers: dict[str, int] = {}
    for i, label in enumerate(labels):
        site = _SITE.fullmatch(label)
        layers.setdefault(site[1] if site else label, i)
    if is_token_column(axis):
        ticks = {i: short[i] for i in range(0, len(labels), max(1, -(-len(labels) // _TOKENS)))}
    elif len(labels) <= _TICKS + 2:
        ticks = {i: short[i] for i in range(len(labels))}
    elif len(layers) < len(labels):
        names = list(layers.items())
        step = _step(len(names))
        ticks = {i: in_html(show_label(name, axis, 14)) for name, i in names[::step]}
        # The last layer already has a tick, and the full name of its last site would run into the legend.
        last = short[-1] if labels[-1] in layers else "end"
        ticks = _with_last(ticks, len(labels) - 1, last, step * len(labels) / len(names))
    else:
        ticks = {i: short[i] for i in range(0, len(labels), _step(len(labels)))}
    return Labels(full, tuple(ticks), tuple(ticks.values()))


def site_kinds(labels: Sequence[str]) -> dict[str, list[int]]:
    """One series per kind of site (ln1: …, ln2: …), because kinds differ more than layers do.

    Empty unless every label but a last one or two is such a site.

    >>> site_kinds(["L0.ln1", "L0.ln2", "L1.ln1", "L1.ln2", "ln_final"])
    {'ln1': [0, 2], 'ln2': [1, 3], 'ln_final': [4]}
    """
    kinds: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        site = _SITE.fullmatch(label)
        kinds.setdefault(site[2] if site else label, []).append(i)
    long = [name for name, places in kinds.items() if len(places) > 1]
    return kinds if len(long) == 2 and len(kinds) <= 4 else {}


def is_ordered(quantity: Quantity, axis: str) -> bool:
    """Whether neighbours on the axis may be joined by a line: numbers, layers and sites, but not words."""
    labels = quantity.coords[axis]
    if all(not isinstance(label, str) for label in labels):
        return True
    sites = sum(1 for label in labels if isinstance(label, str) and re.match(r"(L\d+|ln_|embed|resid)", label))
    return sites > 0.8 * len(labels)


def _with_last(ticks: dict[int, str], last: int, text: str, step: float) -> dict[int, str]:
    """With the last site always named; a tick that would touch it is dropped."""
    return {i: name for i, name in ticks.items() if last - i > 0.6 * step} | {last: text}


def _step(n: int) -> int:
    return next(k for k in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 50, 100, 1000, n) if n / k <= _TICKS)


def _whole_step(span: float) -> int:
    """
    >>> _whole_step(1.1), _whole_step(15.0), _whole_step(900.0)
    (1, 5, 200)
    """
    size = 10 ** max(0, math.floor(math.log10(max(span, 1.0) / 4)))
    return next(k * size for k in (1, 2, 5, 10) if span / (k * size) <= 6)


def _power(exponent: int) -> str:
    return f"{10.0**exponent:,g}" if -3 <= exponent <= 3 else f"10<sup>{exponent}</sup>".replace("-", "−")
