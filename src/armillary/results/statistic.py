"""A measured number, and the same where the effect should be absent."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """The number that a rule weighs, with its 95 % interval over documents."""

    name: str
    value: float
    low: float
    high: float
    unit: str = ""


@dataclass(frozen=True)
class Control:
    """The same statistic where the effect should be absent, or known."""

    name: str
    value: float
    low: float
    high: float
