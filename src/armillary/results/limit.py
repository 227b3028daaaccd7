"""Which number decides, and which one does theory predict?"""

from dataclasses import dataclass
from typing import Literal, get_args

from armillary.results.statistic import Statistic

Side = Literal["above", "below", "at"]
Decides = Literal["supported", "refuted"]
SIDES: tuple[Side, ...] = get_args(Side)
DECIDES: tuple[Decides, ...] = get_args(Decides)


@dataclass(frozen=True)
class Limit:
    """A number that a rule compares with a measured one.

    >>> Limit(0.5, "above", "mostly cosine").holds(0.9), Limit(2, "at", "two zeros").holds(1)
    (True, False)
    """

    value: float
    side: Side
    """Where a measured number speaks for `decides`."""
    meaning: str
    decides: Decides = "supported"
    part: str = ""
    """The part of the claim that it decides; '' where the claim has no parts."""
    measured: Statistic | None = None
    """What is compared with it, if not the claim's own statistic."""

    def holds(self, value: float) -> bool:
        """Does a measured number lie on that side? The limit itself counts: rules differ in that by no more than it."""
        if self.side == "at":
            return value == self.value
        return value >= self.value if self.side == "above" else value <= self.value


@dataclass(frozen=True)
class Prediction:
    """What theory, or chance, says the statistic should be."""

    value: float
    meaning: str
