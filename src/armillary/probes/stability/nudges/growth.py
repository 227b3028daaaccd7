"""How a small rotation, and the stream's length, grow through the blocks: with norms live and with norms frozen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery import (
    RANDOM,
    Evidence,
    Floats,
    Interval,
    cells,
    interval_cells,
    line,
    mean,
    over_twins,
    table,
)
from armillary.results import Quantity, Table

LIVE, OWN = "norms live", "frozen, each token's own scale"
FROZEN, APART = "frozen to one scale", "frozen, first tokens apart"


@dataclass(frozen=True, eq=False)
class RotationGrowth:
    """Sums of logarithms [group, state, (count, sum)] per condition and per quantity."""

    states: tuple[str, ...]
    angle: float
    sums: Mapping[tuple[str, str], Floats]
    """'angle', 'later' (rotated after the first block: one state fewer), 'length', 'doubled'."""
    twins: Sequence[Mapping[tuple[str, str], Floats]]
    """The same for each untrained twin, with norms live and frozen to one scale."""
    slides: tuple[int, ...]
    slid: Mapping[str, Floats]
    """condition → [group, slide, (count, sum)] of the last state at the end of a slid window."""
    documents: int
    tokens: int
    window: int
    """Tokens in a window, and in a window that slides."""
    slid_window: int

    @property
    def blocks(self) -> int:
        return len(self.states) - 1

    def diverged(self, name: str) -> Floats:
        """[state]: share of tokens without a finite angle."""
        return np.asarray(1 - self.sums[name, "angle"][..., 0].sum(0) / self.tokens)

    def overflows(self, name: str) -> bool:
        """Have most tokens diverged at the last state?"""
        return bool(self.diverged(name)[-1] > 0.5)

    def growth(self, name: str, quantity: str) -> Floats:
        """[state]: NaN before the rotation, where it was not measured, and where most tokens have diverged."""
        values = np.full(len(self.states), np.nan)
        stats = self.sums.get((name, quantity))
        if stats is not None:
            count, total = stats.sum(0).T
            measured = count > self.tokens / 2
            values[-len(count) :][measured] = np.exp(total[measured] / count[measured])
        return values

    def log_angles(self, evidence: Evidence, name: str) -> Floats:
        """[state, (value, low, high)]: log growth of the rotation; NaN where most tokens have diverged, because the
        remaining ones do not represent the stream."""
        return np.where(self.diverged(name)[:, None] > 0.5, np.nan, evidence.intervals(self.sums[name, "angle"]))

    def untrained(self, evidence: Evidence, name: str) -> Floats:
        """[state, (value, low, high)]: log growth of the rotation over untrained twins; NaN without twins."""
        if not self.twins:
            return np.full((len(self.states), 3), np.nan)
        return over_twins(np.stack([evidence.intervals(sums[name, "angle"]) for sums in self.twins]))

    def log_ratios(self, evidence: Evidence, name: str) -> Floats:
        """[(angle, length), (value, low, high)]: log of growth under a condition over growth live, over all blocks."""
        stats = [np.stack([self.sums[c, q][:, -1] for c in (LIVE, name)], 1) for q in ("angle", "length")]
        return np.concatenate([evidence.intervals(part, lambda s: np.diff(mean(s), axis=-1)) for part in stats])

    def table(self, angles: dict[str, Floats]) -> Table:
        live, own, frozen, apart = (np.exp(angles[name]) for name in (LIVE, OWN, FROZEN, APART))
        later_live, later_frozen = (self.growth(name, "later") for name in (LIVE, FROZEN))
        length_live, length_frozen, length_apart = (self.growth(name, "length") for name in (LIVE, FROZEN, APART))
        return table(
            cells("state", "state of the stream", self.states),
            interval_cells("live", "growth of the rotation with norms live, geometric mean over tokens", live),
            cells("own", "the same with every norm frozen to each token's own scale (empty: diverged)", own[:, 0]),
            interval_cells("frozen", "the same with every norm frozen to one scale (empty: diverged)", frozen),
            cells("apart", "as `frozen`, but first tokens have their own scale (empty: diverged)", apart[:, 0]),
            cells("later_live", "as `live`, rotated after the first block (empty: before it)", later_live),
            cells(
                "later_frozen",
                "as `frozen`, rotated after the first block (empty: before it, or diverged)",
                later_frozen,
            ),
            cells("length_live", "growth of ‖x‖ since before the first block, norms live, geometric mean", length_live),
            cells("length_frozen", "the same with every norm frozen to one scale (empty: diverged)", length_frozen),
            cells("length_apart", "the same, but first tokens have their own scale (empty: diverged)", length_apart),
            cells(
                "diverged", "share of tokens that overflow with every norm frozen to one scale", self.diverged(FROZEN)
            ),
        )

    def window_table(self, slid: dict[str, Floats]) -> Table:
        return table(
            cells("slide", "tokens that slid out of the window", self.slides, "tokens"),
            interval_cells(
                "live", "angle at the window's end over the rotation at its start, live", np.exp(slid[LIVE])
            ),
            cells(
                "frozen", "the same with every norm frozen to one scale (empty: diverged)", np.exp(slid[FROZEN][:, 0])
            ),
        )

    def lines(self, angles: dict[str, Floats], untrained: Floats) -> tuple[Quantity, ...]:
        states = list(self.states)
        others = {name: np.exp(angles[name][:, 0]) for name in (FROZEN, APART, OWN)}
        others |= {f"{RANDOM}, {LIVE}": np.exp(untrained[:, 0])} if self.twins else {}
        lengths = {name: self.growth(name, "length") for name in (LIVE, FROZEN, APART)}
        return (
            line(
                "growth of a small rotation",
                "angle between the rotated and the unrotated stream, over the rotation before the first block",
                "times",
                "state",
                states,
                np.exp(angles[LIVE]),
                others,
                {"no growth: 1": np.ones(len(states))},
                ("value",),
                LIVE,
            ),
            line(
                "growth of ‖x‖",
                "over its value before the first block, geometric mean over tokens",
                "times",
                "state",
                states,
                lengths.pop(LIVE),
                lengths,
                logs=("value",),
                label=LIVE,
            ),
        )


def per_block(growth: Floats) -> Interval:
    """The exponent per block from log growth [state, (value, low, high)], up to the last state that has one."""
    last = int(np.flatnonzero(np.isfinite(growth[:, 0]))[-1])
    value, low, high = (growth[last] / max(1, last)).tolist()
    return value, low, high
