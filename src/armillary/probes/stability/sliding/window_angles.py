"""Angles between the states of the same tokens in windows that slid, and how they grow with the slide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from armillary.probes.machinery import NAN3, Evidence, Floats, Interval, T, cells, interval_cells, mean, table
from armillary.results import Table

BANDS = ((1, 4), (4, 16), (16, 32), (32, 64), (64, 10**9))
"""Distances from the start of the slid window: from, and below."""
RESTARTED, KEPT = "positions restarted", "positions kept"
ONE, HALF = "one token", "half of the window"


@dataclass(frozen=True, eq=False)
class WindowAngles:
    """Angles in radians between a token's states before and after the window slides."""

    states: tuple[str, ...]
    slides: tuple[int, ...]
    sums: Mapping[str, Mapping[int, Floats]]
    """condition → slide → [group, state, (count, sum)], in the longest windows."""
    twins: Sequence[Floats]
    """For each untrained twin [group, state, (count, sum)], half of the longest window slid out."""
    bands: Mapping[int, Floats]
    """slide → [group, band, (count, sum)] of the last state."""
    none: Floats
    """[group, (count, sum)] of the last state in the shortest windows, slid by 0."""
    curve: Mapping[int, Floats]
    """Length of the windows → [group, (one token, half of the window), (count, sum)] of the last state."""
    window: int
    context: int
    own: int
    """How many tokens of a window belong to its own document; the text before it fills the rest."""
    far: int
    """The first position that is compared."""
    documents: int
    tokens: int
    epsilon: float

    @property
    def least(self) -> float:
        """Radians below which an angle is only rounding."""
        return float(min(T.roundings * self.epsilon, np.deg2rad(T.drift_degrees / 10)))

    def stacked(self) -> Floats:
        """[group, slide, state, (count, sum)] with positions restarted."""
        return np.stack([self.sums[RESTARTED][by] for by in self.slides], 1)

    def untrained(self, evidence: Evidence) -> Floats:
        """[state, (value, low, high)] in degrees over twins, half of the window slid out; NaN without twins."""
        from armillary.probes.machinery import over_twins

        if not self.twins:
            return np.full((len(self.states), 3), np.nan)
        return over_twins(np.rad2deg(np.stack([evidence.intervals(sums) for sums in self.twins])))

    def diverges(self, condition: str) -> bool:
        """Have most tokens overflowed at the last state, under this condition?"""
        return bool(self.sums[condition][self.slides[-1]][:, -1, 0].sum() < self.tokens / 2)

    def ratio(self, evidence: Evidence, condition: str) -> Interval:
        """The last state's mean angle under a condition over that with norms live, half of the window slid out; NaN
        where the stream diverges, or where live norms leave no angle to divide by."""
        last = self.slides[-1]
        stats = np.stack([self.sums[name][last][:, -1] for name in (RESTARTED, condition)], 1)
        if self.diverges(condition) or not mean(stats.sum(0))[0] > self.least:
            return NAN3
        return evidence.interval(stats, lambda s: mean(s)[..., 1] / mean(s)[..., 0])


def exponents(evidence: Evidence, result: WindowAngles) -> Floats:
    """[(all, first two, last two slides), state, (value, low, high)] of the exponent in the slide."""
    parts = (slice(None), slice(0, 2), slice(-2, None))
    stats = result.stacked()
    return np.stack([evidence.intervals(stats, partial(exponent, result=result, part=part)) for part in parts])


def exponent(stats: Floats, result: WindowAngles, part: slice) -> Floats:
    """Slope of the log mean angle [draw, slide, state] on the log slide; NaN where an angle is only rounding."""
    angle = mean(stats)[:, part]
    x = np.log(np.array(result.slides[part], dtype=float))
    x = x - x.mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(angle > result.least, np.log(angle), np.nan)
    # Windows too short for two different slides have no slope.
    return np.asarray(np.einsum("s,dsk->dk", x, y) / (x @ x if x @ x > 0 else np.nan))


def slide_table(result: WindowAngles, angles: Floats, in_place: dict[int, Floats]) -> Table:
    bands = np.rad2deg([mean(result.bands[by].sum(0)) for by in result.slides])
    ranges = [f"{low} to {high - 1}" for low, high in BANDS[:-1]] + [f"{BANDS[-1][0]} or more"]
    return table(
        cells("slide", "tokens that slid out of the window", result.slides, "tokens"),
        interval_cells("angle", "mean angle moved by the last state, over the same tokens", angles[:, -1], "degrees"),
        cells(
            "kept",
            "the same with positions kept (empty: not measured)",
            [in_place[by][-1, 0] if by in in_place else None for by in result.slides],
            "degrees",
        ),
        *(
            cells(
                f"from_{low}",
                f"mean angle of all tokens {where} tokens from the start of the slid window (empty: none)",
                bands[:, i],
                "degrees",
            )
            for i, ((low, _), where) in enumerate(zip(BANDS, ranges, strict=True))
        ),
    )


def curve_table(result: WindowAngles, curve: Floats) -> Table:
    """From [window, (one, half), (value, low, high)] in degrees."""
    return table(
        cells("window", "length of the windows", list(result.curve), "tokens"),
        interval_cells("one", "mean angle moved by the last state, one token slid out", curve[:, 0], "degrees"),
        interval_cells("half", "the same, half of the window slid out", curve[:, 1], "degrees"),
    )
