"""Angles between the states of the same tokens in windows that slid, and how they grow with the slide."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from armillary.probes.machinery import RANDOM, Evidence, Floats, T, cells, interval_cells, mean, table
from armillary.results import Table

BANDS = ((1, 4), (4, 16), (16, 32), (32, 64), (64, 10**9))
"""Distances from the start of the slid window: from, and below."""
RESTARTED, KEPT = "positions restarted", "positions kept"


@dataclass(frozen=True, eq=False)
class WindowAngles:
    """Angles in radians between a token's states before and after the window slides."""

    states: tuple[str, ...]
    slides: tuple[int, ...]
    sums: Mapping[str, Mapping[int, Floats]]
    """condition → slide → [group, state, (count, sum)]."""
    bands: Mapping[int, Floats]
    """slide → [group, band, (count, sum)] of the last state."""
    window: int
    far: int
    """The first position that is compared."""
    documents: int
    tokens: int
    epsilon: float

    def stacked(self) -> Floats:
        """[group, slide, state, (count, sum)] with positions restarted."""
        return np.stack([self.sums[RESTARTED][by] for by in self.slides], 1)

    def random(self) -> Floats:
        """[state]: mean angle in degrees at random initialisation, half of the window slid out; NaN if not measured."""
        sums = self.sums[RANDOM].get(self.slides[-1])
        return np.full(len(self.states), np.nan) if sums is None else np.rad2deg(mean(sums.sum(0)))


def exponents(evidence: Evidence, result: WindowAngles) -> Floats:
    """[(all, first, last slides), state, (value, low, high)] of the exponent in the slide."""
    parts = (slice(None), slice(0, 3), slice(-3, None))
    stats = result.stacked()
    return np.stack([evidence.intervals(stats, partial(exponent, result=result, part=part)) for part in parts])


def exponent(stats: Floats, result: WindowAngles, part: slice) -> Floats:
    """Slope of the log mean angle [draw, slide, state] on the log slide; NaN where an angle is only rounding."""
    angle = mean(stats)[:, part]
    x = np.log(np.array(result.slides[part], dtype=float))
    x = x - x.mean()
    least = min(T.roundings * result.epsilon, np.deg2rad(T.drift_degrees / 10))
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(angle > least, np.log(angle), np.nan)
    return np.asarray(np.einsum("s,dsk->dk", x, y) / (x @ x))


def slide_table(result: WindowAngles, angles: Floats, kept: dict[int, Floats]) -> Table:
    bands = np.rad2deg([mean(result.bands[by].sum(0)) for by in result.slides])
    ranges = [f"{low} to {high - 1}" for low, high in BANDS[:-1]] + [f"{BANDS[-1][0]} or more"]
    return table(
        cells("slide", "tokens that slid out of the window", result.slides, "tokens"),
        interval_cells("angle", "mean angle moved by the last state, over the same tokens", angles[:, -1], "degrees"),
        cells(
            "kept",
            "the same with positions kept (empty: not measured)",
            [kept[by][-1, 0] if by in kept else None for by in result.slides],
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
