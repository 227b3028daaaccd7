"""Findings and claims as text for a terminal."""

import io
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from armillary.results.claim import Claim, Finding
from armillary.results.numbers import align, count
from armillary.results.table import Cell, Table
from armillary.views.figures.marks import COLOURS, MARKS
from armillary.views.text.quoting import are_numbers, show_cell, show_text
from armillary.views.text.summary import (
    changed_rules,
    chapter_title,
    fields,
    kind_text,
    sources,
)

_TABLE_ROWS = 24


def finding_text(finding: Finding, width: int | None = None) -> str:
    """Everything about one finding except its long table."""
    return as_text(lambda console: print_finding(finding, console), width)


def print_finding(finding: Finding, console: Console) -> None:
    print_lines(finding_lines(finding, min(console.width, 120)), console)


def finding_lines(finding: Finding, width: int) -> list[Text]:
    """Everything about one finding except its long table, as lines."""
    lines = [identity(finding, Text())]
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
    return lines


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
        ("question", [claim.question] if claim.question else []),
        ("definition", claim.definition.split("\n")),
        ("control", claim.control.split("\n")),
        ("rule", claim.rule.split("\n")),
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


def identity(finding: Finding, line: Text, id_width: int = 0) -> Text:
    """Mark, id and verdict, added to a line."""
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
    # The first column and any other stand beside each other.
    room = max(16, (width - 6) // 2)
    columns = [
        column_texts(show_text(column.heading, room), [row[i] for row in rows], column.name, room)
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


def column_texts(head: str, cells: Sequence[Cell], name: str, limit: int = 32) -> list[str]:
    body = [show_cell(cell, name, limit) for cell in cells]
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
