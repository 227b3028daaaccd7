"""What changed, in plain words: the loss, the largest changes, the similarity of the streams."""

import math

from armillary.results.compare import Comparison, LossChange, Pair, Shift, Tally
from armillary.results.numbers import interval_of, number
from armillary.views.text.summary import verdict_text

NO_LOSS = "The loss cannot be compared: a survey stored none (an encoder, no text, or an older version)."
_QUIET = ("the same", "not distinguished")
SPREADS = "A spread is the standard deviation between documents, estimated from the intervals."


def loss_text(change: LossChange | None) -> str:
    """'The loss fell from 3.12 to 3.05 nats per token: by 0.07 [0.05, 0.09], perplexity 22.6 → 21.1 …'."""
    if change is None:
        return NO_LOSS
    gap = change.difference
    both = f"from {number(change.a.value)} to {number(change.b.value)} {change.unit}"
    if change.paired and gap.value == 0 and (gap.low == gap.high == 0 or not gap.is_interval):
        words = f"The loss is the same in every document: {number(change.a.value)} {change.unit}"
    elif gap.is_interval and gap.low <= 0 <= gap.high:
        words = f"The loss is not distinguished: {both}, B minus A {interval_of(gap)}"
    else:
        words = f"The loss {'rose' if gap.value > 0 else 'fell'} {both}: B minus A {interval_of(gap)}"
    if change.perplexities is not None:
        words += f"; perplexity {number(change.perplexities[0])} → {number(change.perplexities[1])}"
    how = "paired by document" if change.paired else "the surveys read different parts of the text"
    return f"{words} ({how})."


def shift_text(shift: Shift) -> str:
    """'attention.cosine: R², median head fell from 0.945 to 0.842 (−2.1 spreads); still supported.'"""
    pair = shift.pair
    size = f"{'+' if shift.effect > 0 else '−'}{abs(shift.effect):.1f} spreads"
    if shift.column is None:
        statistic = pair.b.statistic
        unit = f" {statistic.unit}" if statistic.unit and statistic.unit not in statistic.name else ""
        unit = unit.strip() if unit == " °" else unit
        moved = "rose" if shift.effect > 0 else "fell"
        a, b = number(pair.a.statistic.value), number(pair.b.statistic.value)
        words = f"{statistic.name} {moved} from {a} to {b}{unit} ({size})"
    else:
        tally = shift.column
        fell = tally.differ - tally.rose
        ways = [f"rose in {tally.rose}"] * bool(tally.rose) + [f"fell in {fell}"] * bool(fell)
        words = f"{_meaning(pair, tally)} {' and '.join(ways)} of {tally.with_interval} rows"
        words += f" ({size} in the median row)"
    return f"{pair.id}: {words}; {_verdicts(pair)}."


def _meaning(pair: Pair, tally: Tally) -> str:
    """What a column says, with its name, by which it is found in the saved table."""
    place = f" of {tally.table}" if tally.table else ""
    table = pair.b.more_tables.get(tally.table) if tally.table else pair.b.table
    meanings = {column.name: column.meaning for column in table.columns} if table is not None else {}
    meaning = meanings.get(tally.column, "")
    return (
        f"{meaning} (column {tally.column}{place})" if meaning and meaning != tally.column else f"{tally.column}{place}"
    )


def _verdicts(pair: Pair) -> str:
    if pair.is_verdict_changed:
        return f"the verdict changed from {verdict_text(pair.a)} to {verdict_text(pair.b)}"
    return f"still {pair.b.verdict}"


def is_quiet(pair: Pair) -> bool:
    """Whether nothing happened to a claim: the same verdict, no number that differs, no more rows than by chance."""
    rows = any(tally.is_beyond_chance for tally in pair.tallies)
    unmeasured = all(math.isnan(side.statistic.value) for side in (pair.a, pair.b))
    return not pair.is_verdict_changed and (pair.outcome in _QUIET or unmeasured) and not rows


def overview(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Heading → lines: the loss, the largest changes, the similarity of the streams."""
    shifts = comparison.shifts
    numbered = [f"{place}. {shift_text(shift)}" for place, shift in enumerate(shifts, 1)]
    largest = f"The {len(numbered)} largest changes" if len(numbered) > 1 else "The largest change"
    parts = [("Loss", [loss_text(comparison.loss)])]
    if numbered:
        parts.append((largest, [*numbered, SPREADS]))
    else:
        parts.append(("Changes", ["No number differs by more than its interval."]))
    if comparison.similarity is not None:
        parts.append(("Similarity of the streams", [comparison.similarity.sentence()]))
    return parts
