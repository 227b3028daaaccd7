"""Where do a finding's numbers lie on its row? A scale of its own for every claim, and the comparison that decided."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from armillary.results.claim import Finding
from armillary.results.limit import Limit
from armillary.results.numbers import interval_of, number, say
from armillary.results.statistic import Control, Statistic

_ROOM = 0.08


@dataclass(frozen=True)
class StripScale:
    """Positions of a finding's numbers on its own row, 0 at the left end and 1 at the right.

    Claims have different units, so rows cannot share an axis: each runs from its smallest number to its largest
    (statistic, interval, controls, limits, prediction) and a margin more, on a log scale if those span over two
    decades.
    """

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, finding: Finding) -> "StripScale | None":
        numbers = [value for value in _numbers(finding) if math.isfinite(value)]
        if not numbers or not math.isfinite(finding.statistic.value):
            return None
        low, high = min(numbers), max(numbers)
        log = low > 0 and high / low > 100
        ends = (math.log10(low), math.log10(high)) if log else (low, high)
        margin = _ROOM * (ends[1] - ends[0]) or 0.5 * (abs(ends[0]) or 1.0)
        return cls(ends[0] - margin, ends[1] + margin, log)

    def at(self, value: float) -> float | None:
        """The value's position, None for NaN."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        return ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)

    def ticks(self, most: int = 4) -> dict[float, str]:
        """Round numbers on the scale, at most so many.

        >>> StripScale(-0.1, 1.1, False).ticks(), StripScale(-14.2, 0.4, True).ticks()
        ({0.0: '0', 0.5: '0.5', 1.0: '1'}, {1e-12: '1e-12', 1e-08: '1e-8', 0.0001: '0.0001', 1.0: '1'})
        """
        step = next(step for step in _steps(self.log) if (self.high - self.low) / step <= most)
        first = math.ceil(self.low / step)
        places = [step * i for i in range(first, first + most + 1) if step * i <= self.high]
        values = [10.0**place if self.log else round(place, 12) for place in places]
        return {value: say(value, ".3g") for value in values}


def _steps(log: bool) -> Iterator[float]:
    """1, 2, 5, 10 … times a small power of ten; whole decades on a log scale."""
    exponent = 0 if log else -12
    while True:
        yield from (m * 10.0**exponent for m in ((1, 2, 4) if log else (1, 2, 5)))
        exponent += 1


def _numbers(finding: Finding) -> Iterator[float]:
    sources: tuple[Statistic | Control, ...] = (finding.statistic, *finding.controls)
    yield from (value for source in sources for value in (source.value, source.low, source.high))
    yield from (limit.value for limit in on_strip(finding))
    if finding.prediction is not None:
        yield finding.prediction.value


def on_strip(finding: Finding) -> list[Limit]:
    """The limits that the claim's own statistic is compared with, each number once."""
    limits = {limit.value: limit for limit in reversed(finding.limits) if limit.measured is None}
    return list(reversed(limits.values()))


def comparison(finding: Finding) -> str:
    """'0.945 > 0.5 (limit: mostly cosine)': what decided; '' where no limit is known."""
    return compared(finding, finding.limits[0]) if finding.limits else ""


def compared(finding: Finding, limit: Limit, brief: bool = False) -> str:
    """One comparison; a number that is not the claim's own statistic is named. In brief: the numbers alone."""
    measured = finding.statistic if limit.measured is None else limit.measured
    name = "" if limit.measured is None or brief else f"{measured.name}: "
    against = say(limit.value) if brief else f"{say(limit.value)} (limit: {limit.meaning})"
    if finding.verdict == "undecided" and measured.low <= limit.value <= measured.high:
        return f"{name}{interval_of(measured)} spans {against}"
    if limit.side == "at":
        sign = "=" if measured.value == limit.value else "≠"
    else:
        sign = ">" if measured.value > limit.value else "<" if measured.value < limit.value else "="
    return f"{name}{number(measured.value)} {sign} {against}"
