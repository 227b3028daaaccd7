"""What does a probe conclude from? The states that instruments left in every arm, and intervals over documents."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.instrument import ARMS, MODEL, RANDOM, SHUFFLED, AnyInstrument, Instrument, S
from armillary.probes.machinery.intervals import Floats, Interval, Statistic, interval, intervals, mean

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that the passes left behind: `evidence[instrument][arm]` is a state."""

    anatomy: "Anatomy"
    corpus: "Corpus | None" = None
    twin: "Anatomy | None" = None
    """The same architecture at random initialisation."""
    states: Mapping[AnyInstrument, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    memo: dict[Any, Any] = field(default_factory=dict)
    """What `once` keeps."""

    def __getitem__(self, instrument: Instrument[S]) -> Mapping[str, S]:
        """arm → state."""
        return self.states[instrument]

    def model(self, arm: str) -> "Anatomy":
        """The model that an arm ran: the random twin or the model itself."""
        anatomy = self.twin if arm == RANDOM else self.anatomy
        assert anatomy is not None
        return anatomy

    @property
    def sites(self) -> list[str]:
        return list(self.anatomy.norms)

    @property
    def tokens(self) -> int:
        return self.corpus.tokens if self.corpus is not None else 0

    @property
    def arms(self) -> list[str]:
        """The arms that any instrument watched."""
        return [arm for arm in ARMS if any(arm in states for states in self.states.values())]

    def controls(self, instrument: AnyInstrument) -> list[str]:
        """The arms that this instrument watched besides the model on its text."""
        return [arm for arm in ARMS if arm != MODEL and arm in self.states.get(instrument, {})]

    def interval(self, stats: Floats, statistic: Statistic = mean, every: bool = False) -> Interval:
        """Value and 95 % interval of a statistic of sums [document group, …], by bootstrap over documents."""
        return interval(stats, statistic, self.seed, every=every)

    def intervals(self, stats: Floats, statistic: Statistic = mean, every: bool = False) -> Floats:
        """[…, (value, low, high)] of a statistic that is an array."""
        return intervals(stats, statistic, self.seed, every=every)


__all__ = ["ARMS", "MODEL", "RANDOM", "SHUFFLED", "Evidence", "Flags", "Floats", "Ints", "mean"]
