"""What does a probe conclude from? The states that instruments left in every arm, and intervals over documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.instrument import ARMS, MODEL, RANDOM, SHUFFLED, TWINS, AnyInstrument, Instrument, S
from armillary.probes.machinery.intervals import (
    Floats,
    Interval,
    Statistic,
    interval,
    intervals,
    mean,
    over_twins,
)
from armillary.probes.machinery.memo import Memo

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
    untrained: "Sequence[Anatomy]" = ()
    """The same architecture at random initialisation, several times."""
    states: Mapping[AnyInstrument, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    memo: Memo = field(default_factory=Memo)
    """What `once` keeps."""

    def __getitem__(self, instrument: Instrument[S]) -> Mapping[str, S]:
        """arm → state."""
        return self.states[instrument]

    def model(self, arm: str) -> "Anatomy":
        """The model that an arm ran: an untrained twin or the model itself."""
        return self.untrained[TWINS.index(arm)] if arm in TWINS else self.anatomy

    @property
    def twins(self) -> list[str]:
        """The arms of the untrained twins."""
        return list(TWINS[: len(self.untrained)])

    def over_twins(self, statistic: "Callable[[str], Interval]") -> Interval:
        """A statistic of an arm, for an untrained model: mean over the twins, and the interval in which another
        initialisation is expected. NaN without twins."""
        value, low, high = over_twins([statistic(arm) for arm in self.twins]).tolist()
        return value, low, high

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
        """The kinds of arms that this instrument watched besides the model on its text: RANDOM stands for all twins."""
        return [arm for arm in (RANDOM, SHUFFLED) if arm in self.states.get(instrument, {})]

    def interval(self, stats: Floats, statistic: Statistic = mean, every: bool = False) -> Interval:
        """Value and 95 % interval of a statistic of sums [document group, …], by bootstrap over documents."""
        return interval(stats, statistic, self.seed, every=every)

    def intervals(self, stats: Floats, statistic: Statistic = mean, every: bool = False) -> Floats:
        """[…, (value, low, high)] of a statistic that is an array."""
        return intervals(stats, statistic, self.seed, every=every)


__all__ = ["ARMS", "MODEL", "RANDOM", "SHUFFLED", "TWINS", "Evidence", "Flags", "Floats", "Ints", "mean"]
