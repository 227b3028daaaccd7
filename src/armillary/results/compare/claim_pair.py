"""When two numbers differ, and one claim in two surveys."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from armillary.results.claim import Claim, Finding
from armillary.results.table import Table

if TYPE_CHECKING:
    import pandas

Outcome = Literal["differs", "not distinguished", "unequal", "the same", "missing"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# However two surveys depend on each other, each interval misses its number in 5 of 100 cases.
AT_MOST = 0.10
RULE = (
    "Two numbers differ when their 95 % intervals do not overlap, that is, when 0 lies outside [low of B − high of A, "
    "high of B − low of A]. The rule is conservative: for independent surveys it calls 0.6 % of equal numbers "
    "different where the intervals have equal widths, up to 5 % where one is much narrower, and at most 10 % however "
    "the surveys depend on each other (for example on the same text), if the intervals have their nominal 95 %. "
    "Intervals alone allow no correction for many rows, so the number of rows that differ is shown with the number "
    "expected by chance. Numbers are the same if they agree to six digits; without an interval (read from weights, or "
    "counted) they are otherwise called unequal, without a statement of confidence. Differences at rounding level "
    "count as none: below the resolution of the coarser of the two number formats, or both numbers below 7.6e-6, "
    "which rounding in float32 explains."
)
DIGITS = 1e-6
# 64 steps of float32, the limit of rules that ask for rounding alone.
NOTHING = 64 * 2**-23
# The distance from 1 to the next number of a format.
RESOLUTION = {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}


def rounding(*dtypes: str) -> float:
    """The relative difference below which numbers of models in these formats say nothing.

    >>> rounding("float32", "float32"), rounding("float32", "bfloat16")
    (1e-06, 0.0078125)
    """
    return max(DIGITS, *(RESOLUTION.get(dtype, DIGITS) for dtype in dtypes))


class Number(NamedTuple):
    """A value with its interval, NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def is_interval(self) -> bool:
        return all(map(math.isfinite, self))


@dataclass(frozen=True)
class Change:
    """One number in survey A and in survey B."""

    a: Number
    b: Number
    rounding: float = DIGITS
    """Relative differences below it are rounding; so are numbers below its square, or below `NOTHING`."""

    @property
    def difference(self) -> Number:
        """B minus A, with the interval that the rule uses."""
        value = self.b.value - self.a.value
        if self.is_exact or not (self.a.is_interval and self.b.is_interval):
            return Number(value)
        return Number(value, self.b.low - self.a.high, self.b.high - self.a.low)

    @property
    def is_exact(self) -> bool:
        """Whether both intervals are points: nothing was sampled, or nothing varied."""
        return all(side.low == side.value == side.high for side in (self.a, self.b))

    @property
    def is_rounding(self) -> bool:
        """Do the numbers count as the same without agreeing to six digits?"""
        return self.outcome == "the same" and not math.isclose(self.a.value, self.b.value, rel_tol=DIGITS)

    @property
    def chance(self) -> float:
        """How often the rule calls equal numbers different in independent surveys; 0 without intervals.

        >>> [round(Change(a, Number(5, 4, 6)).chance, 4) for a in (Number(1, 0, 2), Number(1, 1, 1))]
        [0.0056, 0.05]
        """
        wide = [side.high - side.low for side in (self.a, self.b)]
        if not self.difference.is_interval or not any(wide):
            return 0.0
        return math.erfc(1.96 * sum(wide) / math.hypot(*wide) / math.sqrt(2))

    @property
    def outcome(self) -> Outcome:
        """
        >>> Change(Number(1, 0.9, 1.1), Number(2, 1.2, 2.8)).outcome, Change(Number(1), Number(1.2)).outcome
        ('differs', 'unequal')
        """
        if math.isnan(self.a.value) or math.isnan(self.b.value):
            return "missing"
        least = max(NOTHING, self.rounding**2)
        tiny = abs(self.a.value) <= least and abs(self.b.value) <= least
        if tiny or math.isclose(self.a.value, self.b.value, rel_tol=self.rounding):
            return "the same"
        difference = self.difference
        if not difference.is_interval:
            return "unequal"
        return "not distinguished" if difference.low <= 0 <= difference.high else "differs"


@dataclass(frozen=True)
class Tally:
    """One column of a table, over the rows that both surveys have."""

    table: str
    """The name of a further table, or empty for the claim's own."""
    column: str
    unit: str
    rows: int
    with_interval: int
    differ: int
    rose: int
    """Of those that differ, how many are larger in B."""
    unequal: int
    median: float
    """Of B minus A, over rows."""
    by_chance: float
    """How many rows would be called different if none were, in independent surveys."""

    @property
    def by_chance_at_most(self) -> float:
        """The same, however the surveys depend on each other."""
        return AT_MOST * self.with_interval

    @property
    def is_beyond_chance(self) -> bool:
        """Whether so many rows would differ in fewer than 1 of 100 cases, at the largest rate that chance allows."""
        from scipy.stats import binom

        return self.differ > 0 and float(binom.sf(self.differ - 1, self.with_interval, AT_MOST)) < 0.01


@dataclass(frozen=True)
class Pair:
    """One claim in both surveys."""

    a: Finding
    b: Finding
    change: Change | None
    """None where the statistics cannot be compared; `notes` say why."""
    tallies: tuple[Tally, ...]
    table: Table
    """One row per number: its place, its value and interval in A and in B, the difference, the outcome."""
    changed: Table
    """Words and yes/no values that changed."""
    notes: tuple[str, ...] = ()

    @property
    def claim(self) -> Claim:
        return self.b.claim

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def outcome(self) -> Outcome:
        return "missing" if self.change is None else self.change.outcome

    @property
    def is_verdict_changed(self) -> bool:
        return self.a.verdict != self.b.verdict

    def to_frame(self) -> "pandas.DataFrame":
        return self.table.to_frame()
