"""Surveys, findings and claims as text for a terminal."""

import io
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from armillary.results.claim import Claim, Finding
from armillary.results.numbers import align, count, interval_parts, number
from armillary.results.survey import Survey
from armillary.results.table import Cell, Table
from armillary.views.figures.marks import COLOURS, MARKS
from armillary.views.text.quoting import are_numbers, show_cell, show_text
from armillary.views.text.summary import (
    changed_rules,
    chapter_title,
    fields,
    kind_counts,
    kind_text,
    law_line,
    model_line,
    model_notes,
    note_lines,
    plan_line,
    reason,
    sources,
    text_line,
)

_TABLE_ROWS = 24
_NOTES = 2


def ledger_text(
    survey: Survey, width: int | None = None, colour: bool = False, folder: str | Path | None = None
) -> str:
    """One row per claim, grouped by chapter; 8 claims take at most 40 lines. `folder` is where the files are."""
    return as_text(lambda console: print_ledger(survey, console, folder), width, colour)


def print_ledger(survey: Survey, console: Console, folder: str | Path | None = None) -> None:
    """The same, printed to a console, which knows its width and whether it has colour."""
    ledger = GrowingLedger(console, max((len(finding.id) for finding in survey), default=0))
    ledger.grow(survey)
    ledger.end(survey, folder)


class GrowingLedger:
    """The ledger, printed row by row as claims are decided."""

    def __init__(self, console: Console, id_width: int) -> None:
        self._console, self._id_width = console, id_width
        self._width = min(console.width, 120)
        # 40 lines for 8 claims, header and footer included.
        self._row_lines = (30 if self._width >= 100 else 27) / 8
        self._shown, self._used = 0, 0
        self._chapter = ""

    def grow(self, survey: Survey) -> None:
        """Print the rows that are new in this survey."""
        lines: list[Text] = []
        if not self._used:
            lines += [Text(f"Armillary · {model_line(survey)}", "bold"), Text(text_line(survey), "dim")]
            # What a reader must know about the model does not count towards the rows' lines.
            print_lines(lines + paragraphs(model_notes(survey), self._width, "yellow"), self._console)
            self._used, lines = len(lines), []
        for finding in survey.findings[self._shown :]:
            self._shown += 1
            if finding.claim.chapter != self._chapter:
                self._chapter = finding.claim.chapter
                lines += [Text(), Text(chapter_title(self._chapter), "bold")]
            # A row may use the lines that earlier rows left.
            room = math.ceil(self._row_lines * self._shown) + 4 - self._used - len(lines)
            line, below = _row(finding, self._width, self._id_width)
            lines += [line, *wrapped(below, self._width, 3, max(1, room - 1))]
        self._used += len(lines)
        # The plan is printed before the first claim only, and does not count towards the rows' lines.
        lines += [Text(f"Plan: {plan_line(survey)}", "dim")] if plan_line(survey) and not survey.findings else []
        print_lines(lines, self._console)

    def end(self, survey: Survey, folder: str | Path | None = None) -> None:
        print_lines(_foot(survey, self._width, folder), self._console)


def finding_text(finding: Finding, width: int | None = None) -> str:
    """Everything about one finding except its long table."""
    return as_text(lambda console: print_finding(finding, console), width)


def print_finding(finding: Finding, console: Console) -> None:
    width = min(console.width, 120)
    lines = [_identity(finding, Text())]
    lines += wrapped(Text(show_text(finding.headline), "bold"), width, 2)
    if finding.caption:
        lines += wrapped(Text(show_text(finding.caption), "dim"), width, 2)
    lines += [Text(), *_fields(fields(finding), width)]
    for name, table in finding.more_tables.items():
        lines += [Text(), Text(f"  {show_text(name)}", "bold"), *table_lines(table, width)]
    if finding.table.rows:
        names = ", ".join(show_text(column.name) for column in finding.table.columns)
        size = f"{count(len(finding.table.rows))} rows: {names}"
        lines += [Text(), *_fields([("table", [size])], width)]
    print_lines(lines, console)


def claim_text(
    claim: Claim, width: int | None = None, package: str = "armillary", calibrated: Sequence[str] = ()
) -> str:
    """One claim before anything is measured: definition, control, rule, the package it comes from, and how often its
    verdict was right."""
    console = new_console(width)
    explained: list[tuple[str, Sequence[str]]] = [
        ("chapter", [chapter_title(claim.chapter)]),
        ("kind", [kind_text(claim)]),
        ("source", sources(claim)),
        ("package", [package]),
        ("definition", [claim.definition]),
        ("control", [claim.control]),
        ("rule", [claim.rule]),
        ("changed", changed_rules(claim)),
        ("calibrated", calibrated),
    ]
    return explained_text(claim, explained, console)


def explained_text(claim: Claim, explained: Sequence[tuple[str, Sequence[str]]], console: Console) -> str:
    """A claim's id and statement, and what is said of it, as names and lines."""
    head = [Text(claim.id, "bold"), *wrapped(Text(show_text(claim.statement)), console.width, 2), Text()]
    print_lines([*head, *_fields(explained, console.width)], console)
    return printed(console)


def claims_list_text(
    claims: Iterable[Claim], width: int | None = None, packages: Mapping[str, str] | None = None
) -> str:
    """The id and statement of every claim, by chapter; claims of other packages are marked with the package's name."""
    origins = packages or {}
    console = new_console(width)
    claims = tuple(claims)
    indent = max((len(claim.id) for claim in claims), default=0) + 4
    lines: list[Text] = []
    for chapter in dict.fromkeys(claim.chapter for claim in claims):
        title = Text(chapter_title(chapter), "bold")
        lines += [Text(), title] if lines else [title]
        for claim in claims:
            if claim.chapter == chapter:
                package = origins.get(claim.id, "armillary")
                mark = "" if package == "armillary" else f" (from the package {package})"
                lines += hanging(claim.id, claim.statement + mark, console.width, indent)
    print_lines(lines, console)
    return printed(console)


def edits_text(edits: Iterable[tuple[str, str, str]], width: int | None = None) -> str:
    """The name of every edit, what it does, and a line of Python that creates it."""
    console = new_console(width)
    lines: list[Text] = []
    for name, does, example in edits:
        lines += [Text()] if lines else []
        lines += [
            Text(show_text(name), "bold"),
            *wrapped(Text(show_text(does)), console.width, 2),
            Text(f"  {example}", "dim"),
        ]
    print_lines(lines, console)
    return printed(console)


def _foot(survey: Survey, width: int, folder: str | Path | None) -> list[Text]:
    foot = [f"Verdicts: {'   '.join(kind_counts(survey))}"] if len(survey) else []
    foot += [f"Laws: {law_line(survey)}"] if law_line(survey) else []
    notes = note_lines(survey)
    foot += [f"Note, {note}" for note in notes[:_NOTES]]
    if len(notes) > _NOTES:
        foot[-1] += f" (and {len(notes) - _NOTES} more notes, with their claims)"
    foot += [f"Files: {show_text(str(folder))}"] if folder else []
    return ([Text()] if foot else []) + paragraphs(foot, width)


def _row(finding: Finding, width: int, id_width: int) -> tuple[Text, Text]:
    """A claim's line, and the paragraph below it: what the number is, its control, the reading."""
    statistic = finding.statistic
    value, bracket = interval_parts(statistic.value, statistic.low, statistic.high)
    line = _identity(finding, Text(" "), id_width).append(f" {finding.claim.kind:<10}", "dim")
    line.append(f"  {value:<8} {bracket:<17}", "bold")
    name = show_text(f"{statistic.name}, {statistic.unit}" if statistic.unit else statistic.name)
    lead = [f"against {show_text(c.name)}: {number(c.value)}" for c in finding.controls[:1]]
    if line.cell_len + 2 + cell_len(name) <= width:
        line.append(f"  {name}")
    else:
        lead = [name, *lead]
    lead = [reason(finding), *lead] if reason(finding) else lead
    below = Text("; ".join(lead) + " · " if lead else "", "dim").append(show_text(finding.reading), "not dim")
    return line, below


def _identity(finding: Finding, line: Text, id_width: int = 0) -> Text:
    colour = COLOURS[finding.verdict]
    line.append(MARKS[finding.verdict], colour)
    line.append(f" {show_text(finding.id).ljust(id_width)}  ", "bold")
    line.append(finding.verdict.ljust(9 if id_width else 0), colour)
    return line


def hanging(label: str, text: str, width: int, indent: int, style: str = "") -> list[Text]:
    """A label, and a text beside it that hangs from its first line."""
    first, *more = wrapped(Text(show_text(text)), width, indent)
    return [Text.assemble((f"  {label}".ljust(indent), style), first[indent:]), *more]


def paragraphs(texts: Iterable[str], width: int, style: str = "dim") -> list[Text]:
    """Texts that were made visible before, one below the other."""
    return [line for text in texts for line in wrapped(Text(text, style), width, 0)]


def _fields(fields: Sequence[tuple[str, Sequence[str]]], width: int) -> list[Text]:
    lines = []
    for name, entries in fields:
        for index, entry in enumerate(entries):
            lines += hanging("" if index else name, entry, width, 14, "dim")
    return lines


def table_lines(table: Table, width: int, most: int = _TABLE_ROWS) -> list[Text]:
    """Aligned columns; columns that do not fit the width follow in further blocks, each with the first column."""
    rows = table.rows[:most]
    columns = [
        column_texts(show_text(column.heading, 28), [row[i] for row in rows], column.name)
        for i, column in enumerate(table.columns)
    ]
    lines, start = [], 1
    while start == 1 or start < len(columns):
        stop, used = start, 4 + cell_len(columns[0][0]) if columns else 4
        while stop < len(columns) and (stop == start or used + 2 + cell_len(columns[stop][0]) <= width):
            used += 2 + cell_len(columns[stop][0])
            stop += 1
        shown = columns[:1] + columns[start:stop]
        if start > 1:
            lines.append(Text())
        for i in range(len(rows) + 1):
            line = "    " + "  ".join(column[i] for column in shown)
            lines.append(Text(line.rstrip(), "dim" if i == 0 else ""))
        start = max(stop, 2)
    if len(table.rows) > len(rows):
        lines.append(Text(f"    … {count(len(table.rows) - len(rows))} more rows in the saved table", "dim"))
    return lines


def column_texts(head: str, cells: Sequence[Cell], name: str) -> list[str]:
    body = [show_cell(cell, name, 32) for cell in cells]
    numeric = are_numbers(cells)
    column = [head, *(align(body) if numeric else body)]
    size = max(map(cell_len, column))
    gaps = [" " * (size - cell_len(text)) for text in column]
    return [gap + text if numeric else text + gap for text, gap in zip(column, gaps, strict=True)]


def wrapped(text: Text, width: int, indent: int, most: int | None = None) -> list[Text]:
    """At most `most` indented lines of at most `width` cells; text that was cut ends in …"""
    room = max(20, width - indent)
    lines = list(text.wrap(_MEASURE, room))
    if most is not None and len(lines) > most:
        lines = lines[:most]
        if lines[-1].cell_len >= room:
            lines[-1].right_crop(len(lines[-1].plain) - lines[-1].plain.rfind(" "))
        lines[-1].rstrip()
        lines[-1].append("…")
    return [Text(" " * indent) + line for line in lines] or [Text()]


_MEASURE = Console(file=io.StringIO(), width=120, color_system=None)


def new_console(width: int | None, colour: bool = False) -> Console:
    """A console that keeps what is printed, for `printed`."""
    return Console(
        file=io.StringIO(),
        width=width or min(120, max(60, shutil.get_terminal_size((100, 24)).columns)),
        color_system="truecolor" if colour else None,
        force_terminal=colour,
        force_jupyter=False,  # in a notebook rich would display instead of writing to its file
    )


def print_lines(lines: Sequence[Text], console: Console) -> None:
    for line in lines:
        line.rstrip()
        console.print(line, no_wrap=True, overflow="ignore", crop=False, highlight=False)


def printed(console: Console) -> str:
    out = console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue().rstrip("\n")


def as_text(show: Callable[[Console], None], width: int | None = None, colour: bool = False) -> str:
    """What a function prints to a console."""
    console = new_console(width, colour)
    show(console)
    return printed(console)
