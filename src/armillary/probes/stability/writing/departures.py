"""How far does a long generation move from where it began, in units of what real text does over the same length?"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.probes.machinery import Evidence, Flags, Floats, Interval, T, above, mean
from armillary.probes.stability.nudges.growth import LIVE
from armillary.probes.stability.writing.generating import ANEW
from armillary.probes.stability.writing.written_text import PAIRS, REPEATED, Measured, unit_of

Side = Literal["inside", "outside", "open"]
# A tenth of a degree is what storing a state in bfloat16 moves it by; a thousandth of a nat, a thousandth of a length.
# The least share is one token of a third.
LEAST = {"degrees": 0.1, "nats": 1e-3, "dimensions": 0.1}
# Windows at the start that are not compared: their first half is written with the prompt in view.
LEFT_OUT = 1


@dataclass(frozen=True, eq=False)
class Departures:
    """Trends of every quantity in every arm, over the trends of real text."""

    measured: Measured
    window: int
    """Tokens of a window, and how many windows were written."""
    windows: int

    @property
    def third(self) -> int:
        """How many windows a third of those compared has."""
        return max(1, (self.windows - LEFT_OUT) // 3)

    @property
    def spread(self) -> Floats:
        """[quantity]: standard deviation of the trend of real text over as many windows, at all starts on the ring. Its
        mean is 0: every stretch is somewhere the first and somewhere the last."""
        early, late = self._real_ends()
        return self._least((late - early).std(0))

    @property
    def level_spread(self) -> Floats:
        """[quantity]: standard deviation of a third's mean."""
        return self._least(self._real_ends()[0].std(0))

    def _real_ends(self) -> tuple[Floats, Floats]:
        """Of real text from every start: windows that follow each other are two half windows apart."""
        starts = len(self.measured.real)
        return self.ends(self.measured.real[(np.arange(starts)[:, None] + 2 * np.arange(self.windows)) % starts])

    def _least(self, spread: Floats) -> Floats:
        """Not less than what counts as a difference: real text may never repeat, and lengths may differ by rounding."""
        least = LEAST | {"share": 1 / (self.third * self.window)}
        return np.maximum(spread, [least[unit_of(name)] for name in self.measured.names])

    def ends(self, series: Floats) -> tuple[Floats, Floats]:
        """Means over the first and over the last third of the windows compared [series, quantity]."""
        compared = series[:, LEFT_OUT:]
        return compared[:, : self.third].mean(1), compared[:, -self.third :].mean(1)

    def trends(self, arm: str) -> Floats:
        """[prompt, quantity]: an arm's last third less the first third with norms live, over real text's spread. Where
        windows are read anew beside a cache that evicts, the first third is their own."""
        end, start = self.ends(self.measured.arms[arm])[1], arm if arm == ANEW else LIVE
        return (end - self.ends(self.measured.arms[start])[0][: len(end)]) / self.spread

    def levels(self, arm: str) -> Floats:
        """[prompt, quantity]: the last third less the mean of real text, over the spread of such means."""
        return (self.ends(self.measured.arms[arm])[1] - self.measured.real.mean(0)) / self.level_spread

    def intervals(self, evidence: Evidence, values: Floats) -> Floats:
        """[quantity, (value, low, high)]: mean over prompts, with its interval over prompts."""
        return evidence.intervals(_counted(values), every=True)

    def sides(self, evidence: Evidence, arm: str) -> list[Side]:
        """Where the trend of each quantity lies; an overflow of most prompts is outside."""
        values = self.trends(arm)
        lost = np.isnan(values).mean(0) > 0.5
        ends = self.intervals(evidence, values)
        return ["outside" if gone else side_of(tuple(row)) for gone, row in zip(lost, ends.tolist(), strict=True)]

    def collapsed(self, evidence: Evidence) -> list[Side]:
        """Does the text end in repetition, seen by its level: more repeated triples, or fewer distinct pairs?"""
        ends = self.intervals(evidence, self.levels(LIVE))
        sides: list[Side] = []
        for name, sign in ((REPEATED, 1.0), (PAIRS, -1.0)):
            _, *both = (sign * ends[self.measured.names.index(name)]).tolist()
            worse = above((0.0, min(both), max(both)), T.generation_band)
            sides.append("open" if worse is None else "outside" if worse else "inside")
        return sides

    def share(self, evidence: Evidence, arm: str, states: bool = True) -> Interval:
        """The share of quantities whose mean trend lies beyond the band, with its interval over prompts."""
        chosen = slice(None, self.measured.states) if states else slice(self.measured.states, None)
        counted = _counted(self.trends(arm)[:, chosen])

        def beyond(sums: Floats) -> Floats:
            gone = sums[..., 0] <= len(counted) / 2
            return np.asarray((gone | (np.abs(np.nan_to_num(mean(sums))) > T.generation_band)).mean(-1))

        return evidence.interval(counted, beyond, every=True)


def _counted(values: Floats) -> Floats:
    """[prompt, quantity, (count, sum, 1)] of the values that are defined; a prompt took part even if none is."""
    known: Flags = np.isfinite(values)
    return np.stack([known.astype(float), np.where(known, values, 0.0), np.ones_like(values)], -1)


def side_of(ends: tuple[float, ...]) -> Side:
    """Of an interval, against the band to both sides.

    >>> side_of((0.0, -1.0, 1.0)), side_of((3.0, 2.5, 4.0)), side_of((2.0, 1.0, 3.0))
    ('inside', 'outside', 'open')
    """
    _, low, high = ends
    if low > T.generation_band or high < -T.generation_band:
        return "outside"
    return "inside" if low > -T.generation_band and high < T.generation_band else "open"
