"""What changed most? The loss first, then the largest changes by effect size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from armillary.results.compare.claim_pair import Change, Number, Pair, Tally
from armillary.results.survey import Survey
from armillary.results.survey_facts import TextLoss

# The half-width of a 95 % interval, in standard errors.
NORMAL = 1.96


@dataclass(frozen=True)
class LossChange:
    """The loss on the text in A and in B, and B minus A."""

    unit: str
    """'nats per token', or 'bits per byte' where the tokenizers differ."""
    a: Number
    b: Number
    difference: Number
    paired: bool
    """Whether both read the same documents, so that the difference was taken document by document."""

    @property
    def perplexities(self) -> tuple[float, float] | None:
        """Per token, where the tokenizers agree."""
        return None if self.unit != "nats per token" else (math.exp(self.a.value), math.exp(self.b.value))


@dataclass(frozen=True)
class Shift:
    """One claim's largest change that the intervals bear out."""

    pair: Pair
    effect: float
    """The difference over the spread between documents, signed like B minus A."""
    column: Tally | None = None
    """The column of rows that changed, where the claim's own number did not."""


def ratio(above: Sequence[float], below: Sequence[float]) -> Number:
    """Σ above / Σ below with Student's 95 % interval over documents, by linearisation.

    >>> [round(x, 3) for x in ratio([2.0, 4.0, 6.0], [2.0, 4.0, 6.0])]
    [1.0, 1.0, 1.0]
    """
    # Imported here: half a second that commands without a comparison need not spend.
    from scipy.stats import t as student

    x, w = np.asarray(above, float), np.asarray(below, float)
    n, total = len(x), float(w.sum())
    if not n or total <= 0:
        return Number(math.nan)
    value = float(x.sum()) / total
    if n < 2:
        return Number(value)
    spread = math.sqrt(n / (n - 1) * float(np.sum((x - value * w) ** 2))) / total
    reach = float(student.ppf(0.975, n - 1)) * spread
    return Number(value, value - reach, value + reach)


def loss_change(a: Survey, b: Survey) -> LossChange | None:
    """None where one of the surveys has no loss, or where the two cannot be expressed in one unit."""
    before, after = a.loss, b.loss
    if before is None or after is None:
        return None
    same = before.text == after.text and before.bytes == after.bytes
    if before.tokens == after.tokens and same:
        return _paired("nats per token", before, after, before.tokens, 1.0)
    if not all(map(sum, (before.bytes, after.bytes))):
        return None
    bits = 1 / math.log(2)
    if same and len(before.nats) == len(after.nats):
        return _paired("bits per byte", before, after, before.bytes, bits)
    rate_a, rate_b = (ratio([x * bits for x in side.nats], side.bytes) for side in (before, after))
    return LossChange("bits per byte", rate_a, rate_b, Change(rate_a, rate_b).difference, False)


def _paired(unit: str, a: TextLoss, b: TextLoss, size: Sequence[float], scale: float) -> LossChange:
    rate_a, rate_b = (ratio([x * scale for x in side.nats], size) for side in (a, b))
    gap = ratio([(y - x) * scale for x, y in zip(a.nats, b.nats, strict=True)], size)
    return LossChange(unit, rate_a, rate_b, gap, True)


def largest(pairs: Sequence[Pair], documents: int, most: int = 10) -> tuple[Shift, ...]:
    """The largest changes, one per claim: of its number, or else of a column in which more rows differ than chance
    allows. Numbers without an interval, and differences at rounding level, have no place here."""
    shifts = [shift for pair in pairs if (shift := _shift(pair, documents)) is not None]
    return tuple(sorted(shifts, key=lambda shift: -abs(shift.effect))[:most])


def _shift(pair: Pair, documents: int) -> Shift | None:
    if pair.outcome == "differs" and pair.change is not None:
        size = effect(pair.change, documents)
        return None if math.isnan(size) else Shift(pair, size)
    for tally in pair.tallies:
        if tally.is_beyond_chance:
            sizes = [x for x in _effects(pair, tally, documents) if math.isfinite(x)]
            return Shift(pair, median(sizes), tally) if sizes else None
    return None


def _effects(pair: Pair, tally: Tally, documents: int) -> list[float]:
    rows = pair.table.where("table", tally.table).where("column", tally.column)
    ends = [rows.column(name) for name in ("a", "a_low", "a_high", "b", "b_low", "b_high")]
    changes = [Change(Number(*row[:3]), Number(*row[3:])) for row in zip(*ends, strict=True)]
    return [effect(change, documents) for change in changes if change.difference.is_interval]


def effect(change: Change, documents: int) -> float:
    """B minus A over the spread between documents, as the intervals give it: Cohen's d with documents as the cases.

    It does not grow with the budget, as a test statistic would. NaN without intervals.

    >>> effect(Change(Number(1, 0.902, 1.098), Number(2, 1.902, 2.098)), 25)
    4.0
    """
    errors = [(side.high - side.low) / (2 * NORMAL) for side in (change.a, change.b)]
    spread = math.sqrt((errors[0] ** 2 + errors[1] ** 2) / 2) * math.sqrt(max(1, documents))
    return round(change.difference.value / spread, 6) if math.isfinite(spread) and spread > 0 else math.nan
