"""What is kept of a small turn's way through the blocks, and of the stream's length?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery.evidence import Floats

LIVE, OWN = "norms live", "frozen, each token's own scale"
FROZEN, APART = "frozen to one scale", "frozen, first tokens apart"


@dataclass(frozen=True, eq=False)
class Nudged:
    """Sums of logarithms [group, state, (count, sum)] by condition and by what was measured."""

    states: tuple[str, ...]
    angle: float
    sums: Mapping[tuple[str, str], Floats]
    """'angle', 'later' (turned after the first block: one state fewer), 'length', 'doubled'."""
    slides: tuple[int, ...]
    slid: Mapping[str, Floats]
    """condition → [group, slide, (count, sum)] of the last state at a slid window's end."""
    documents: int
    tokens: int

    @property
    def blocks(self) -> int:
        return len(self.states) - 1

    def diverged(self, name: str) -> Floats:
        """[state]: share of tokens without a finite angle."""
        return np.asarray(1 - self.sums[name, "angle"][..., 0].sum(0) / self.tokens)

    def overflows(self, name: str) -> bool:
        """Have most tokens diverged by the last state?"""
        return bool(self.diverged(name)[-1] > 0.5)

    def grown(self, name: str, what: str) -> Floats:
        """Growth [state]; nothing before the turn, where it was not measured, and where most tokens have diverged."""
        made = np.full(len(self.states), np.nan)
        stats = self.sums.get((name, what))
        if stats is not None:
            count, total = stats.sum(0).T
            there = count > self.tokens / 2
            made[-len(count) :][there] = np.exp(total[there] / count[there])
        return made
