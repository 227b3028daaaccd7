"""Match the rows of two tables, and compare every number in them."""

import math
import re
from collections.abc import Mapping, Sequence
from statistics import median

from armillary.results.claim import Finding
from armillary.results.compare.claim_pair import DIGITS, Change, Number, Pair, Tally
from armillary.results.compare.depth import aligned_rows
from armillary.results.statistic import Control, Statistic
from armillary.results.table import Cell, Column, Table

Key = tuple[Cell, ...]
Row = dict[str, Cell]
Match = tuple[str, Row, Row]
"""What names a row, and the row in A and in B."""
_ENDS = ("_low", "_high", "_se")
_PLAIN = ("low", "high")
# How a row or a table names a layer (L3, L3.ln1, 'top keys L3') or a head (L3H2).
_PLACES = {"layers": re.compile(r"\bL\d+(H\d+)?\b"), "heads": re.compile(r"\bL\d+H\d+\b")}
_FEW = 50
# A standard error as half of a 95 % interval.
_NORMAL = 1.96
NUMBERS = (
    Column("table", "which table of the claim; its own if empty"),
    Column("where", "what names the row: site, head, layer"),
    Column("column", "which number of the row"),
    Column("a", "in survey A"),
    Column("a_low", "lower end of its interval"),
    Column("a_high", "upper end"),
    Column("b", "in survey B"),
    Column("b_low", "lower end of its interval"),
    Column("b_high", "upper end"),
    Column("difference", "B minus A"),
    Column("difference_low", "low of B minus high of A"),
    Column("difference_high", "high of B minus low of A"),
    Column("outcome", "what the intervals say"),
)
WORDS = (*NUMBERS[:3], Column("a", "in survey A"), Column("b", "in survey B"))


def paired(
    a: Finding,
    b: Finding,
    unlike: Mapping[str, str] | None = None,
    depths: tuple[int, int] = (0, 0),
    rounding: float = DIGITS,
) -> Pair:
    """One claim's two findings, matched; `unlike` says why layers or heads have no counterparts. Layers of models of
    unequal `depths` are matched by relative depth."""
    notes = _unlike(a, b)
    comparable = a.statistic.name == b.statistic.name and a.statistic.unit == b.statistic.unit
    change = Change(of(a.statistic), of(b.statistic), rounding) if comparable else None
    tallies: list[Tally] = []
    numbers: list[Key] = []
    words: list[Key] = []
    for name, mine in _tables(a).items():
        other = _tables(b).get(name)
        if other is None:
            notes.append(f"the table {name!r} is only in A")
            continue
        match = _matched(name, mine, other, unlike or {}, depths)
        if isinstance(match, str):
            notes.append(f"{f'the table {name!r}' if name else 'the table'} was not compared: {match}")
            continue
        rows, unmatched = match
        notes += [f"{name}: {note}" if name else note for note in unmatched]
        for column in _compared(mine, other, _naming(mine, other) or ()):
            tally, compared = _column(name, other.columns[other.names.index(column)], rows, rounding)
            numbers += compared
            tallies += [tally] if tally.rows else []
        words += _words(name, rows, mine, other)
    notes += [f"the table {name!r} is only in B" for name in _tables(b) if name not in _tables(a)]
    tallies.sort(key=lambda tally: tally.with_interval == 0)
    return Pair(a, b, change, tuple(tallies), Table(NUMBERS, tuple(numbers)), Table(WORDS, tuple(words)), tuple(notes))


def of(number: Statistic | Control) -> Number:
    return Number(number.value, number.low, number.high)


def claim_table(pairs: Sequence[Pair]) -> Table:
    """One row per claim: verdicts, numbers, difference, outcome, and how many rows differ."""
    columns = (
        Column("claim", "the claim's id"),
        Column("verdict_a", "in survey A"),
        Column("verdict_b", "in survey B"),
        Column("statistic", "the number that the rule weighs"),
        *NUMBERS[3:],
        Column("rows", "numbers in rows that have an interval in both"),
        Column("rows_differ", "of them"),
    )
    rows = []
    for pair in pairs:
        change = pair.change or Change(of(pair.a.statistic), of(pair.b.statistic))
        gap = change.difference if pair.change else Number(math.nan)
        tallied = (sum(t.with_interval for t in pair.tallies), sum(t.differ for t in pair.tallies))
        names = (pair.id, pair.a.verdict, pair.b.verdict, pair.b.statistic.name)
        rows.append((*names, *change.a, *change.b, *gap, pair.outcome, *tallied))
    return Table(columns, tuple(rows))


def row_table(pairs: Sequence[Pair]) -> Table:
    """Every compared number of every claim."""
    rows = tuple((pair.id, *row) for pair in pairs for row in pair.table.rows)
    return Table((Column("claim", "the claim's id"), *NUMBERS), rows)


def _unlike(a: Finding, b: Finding) -> list[str]:
    notes = []
    if a.statistic.name != b.statistic.name:
        notes.append(f"A measured {a.statistic.name!r}, B {b.statistic.name!r}: the numbers are not compared")
    elif a.statistic.unit != b.statistic.unit:
        notes.append(f"A is in {a.statistic.unit!r}, B in {b.statistic.unit!r}: the numbers are not compared")
    if a.claim.same_rule(b.claim.rule_digest) or b.claim.same_rule(a.claim.rule_digest):
        return notes
    if a.claim.rule != b.claim.rule and a.claim.rule and b.claim.rule:
        notes.append("the rules differ, so the verdicts were not decided by the same rule")
    if a.claim.definition != b.claim.definition and a.claim.definition and b.claim.definition:
        notes.append("the definitions differ, so the numbers may not measure the same thing")
    return notes


def _tables(finding: Finding) -> Mapping[str, Table]:
    return {name: t for name, t in {"": finding.table, **finding.more_tables}.items() if t.rows}


def _matched(
    table: str, a: Table, b: Table, unlike: Mapping[str, str], depths: tuple[int, int]
) -> tuple[list[Match], list[str]] | str:
    """Rows of the same name, and what has no counterpart; or why the tables cannot be matched."""
    keys = _naming(a, b)
    if keys is None:
        return f"no columns name its rows uniquely in both (A: {', '.join(a.names)}; B: {', '.join(b.names)})"
    rows_a, rows_b = ({_key(row, keys): row for row in t.records()} for t in (a, b))
    named = [table, *(str(part) for key in list(rows_a)[:_FEW] for part in key)]
    of_heads, of_layers = (any(_PLACES[kind].search(name) for name in named) for kind in ("heads", "layers"))
    if of_heads and unlike:
        return next(iter(unlike.values()))
    if of_layers and "layers" in unlike:
        if _PLACES["layers"].search(table) or not all(depths):
            return unlike["layers"]
        matches = aligned_rows(rows_a, rows_b, depths)
        return (matches, []) if matches else unlike["layers"]
    both = [(" · ".join(map(str, key)), row, rows_b[key]) for key, row in rows_a.items() if key in rows_b]
    if not both:
        return f"no {keys[0]} is in both"
    unmatched = []
    for side, mine, others in (("A", rows_a, rows_b), ("B", rows_b, rows_a)):
        only = [" · ".join(map(str, key)) for key in mine if key not in others]
        more = f" and {len(only) - 3} more" if len(only) > 3 else ""
        unmatched += [f"only {side} has the {keys[0]} {', '.join(only[:3])}{more}"] if only else []
    return both, unmatched


def _naming(a: Table, b: Table) -> list[str] | None:
    """The columns that name a row: the first, and as many further ones of words, integers or steps as needed."""
    if a.names[:1] != b.names[:1]:
        return None
    keys: list[str] = []
    for name in a.names:
        if keys and not _is_name(name, a, b):
            continue
        keys.append(name)
        if all(len({_key(row, keys) for row in t.records()}) == len(t.rows) for t in (a, b)):
            return keys
    return None


def _is_name(name: str, a: Table, b: Table) -> bool:
    """Whether a column can name rows: no fractions, unless they are the same few steps in both."""
    if name not in b.names:
        return False
    mine, others = a.column(name), b.column(name)
    if not any(isinstance(cell, float) for cell in (*mine, *others)):
        return True
    return set(mine) == set(others) and len(set(mine)) < len(mine)


def _key(row: Row, keys: Sequence[str]) -> Key:
    return tuple(row[name] for name in keys)


def _compared(a: Table, b: Table, keys: Sequence[str]) -> list[str]:
    """Numeric columns of both, those with an interval first; ends and standard errors belong to their number."""
    names = [n for n in a.names if n in b.names and n not in keys and _is_numeric(a, n)]
    values = [n for n in names if not any(n.endswith(end) and n.removesuffix(end) in names for end in _ENDS)]
    values = [n for n in values if n not in _PLAIN or not set(_PLAIN) <= set(names)]
    return sorted((n for n in values if _is_numeric(b, n)), key=lambda n: not _has_interval(n, names))


def _has_interval(name: str, names: Sequence[str]) -> bool:
    ends = {f"{name}_low", f"{name}_high"} <= set(names) or f"{name}_se" in names
    return ends or _owns_plain(name, names)


def _owns_plain(name: str, names: Sequence[str]) -> bool:
    """Whether columns called just `low` and `high` follow this one."""
    at = names.index(name) + 1 if name in names else 0
    return tuple(names[at : at + 2]) == _PLAIN


def _is_numeric(table: Table, name: str) -> bool:
    cells = [cell for cell in table.column(name) if cell is not None]
    return bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


def _number(row: Row, name: str) -> Number:
    def cell(column: str) -> float:
        value = row.get(column)
        return float(value) if isinstance(value, int | float) else math.nan

    value, error = cell(name), cell(f"{name}_se")
    if math.isfinite(error):
        return Number(value, value - _NORMAL * error, value + _NORMAL * error)
    before = "" if _owns_plain(name, list(row)) else f"{name}_"
    return Number(value, cell(f"{before}low"), cell(f"{before}high"))


def _column(table: str, column: Column, rows: Sequence[Match], rounding: float) -> tuple[Tally, list[Key]]:
    name = column.name
    changes = {where: Change(_number(mine, name), _number(other, name), rounding) for where, mine, other in rows}
    known = {where: change for where, change in changes.items() if change.outcome != "missing"}
    apart = [c for c in known.values() if c.outcome == "differs"]
    tally = Tally(
        table,
        name,
        column.unit,
        rows=len(known),
        with_interval=sum(change.difference.is_interval for change in known.values()),
        differ=len(apart),
        rose=sum(change.difference.value > 0 for change in apart),
        unequal=sum(change.outcome == "unequal" for change in known.values()),
        median=median([c.difference.value for c in known.values()] or [math.nan]),
        by_chance=sum(change.chance for change in known.values()),
    )
    return tally, [(table, where, name, *c.a, *c.b, *c.difference, c.outcome) for where, c in known.items()]


def _words(table: str, rows: Sequence[Match], a: Table, b: Table) -> list[Key]:
    """Words and yes/no values that changed."""
    shared = [name for name in a.names[1:] if name in b.names]
    words = [name for name in shared if not (_is_numeric(a, name) and _is_numeric(b, name))]
    return [(table, where, n, mine[n], other[n]) for n in words for where, mine, other in rows if mine[n] != other[n]]
