"""A sheet as text, as static HTML, as a page and as JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from armillary.results.numbers import count
from armillary.results.sheets.sheet import Sheet, Sheets
from armillary.results.sheets.trajectory import Trajectory
from armillary.results.store import json_text
from armillary.results.table import Cell, Table
from armillary.views.report.notebook import framed_html, table_html
from armillary.views.sheets.lists import Listed, gathered
from armillary.views.text.quoting import html_text, show_cell, show_text, show_token
from armillary.views.text.survey import (
    as_text,
    column_texts,
    hanging,
    new_console,
    paragraphs,
    print_lines,
    printed,
    table_lines,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LINES, _PAGE_LINES, _FEW = 48, 400, 4
_WORD, _PAGE_WORD = 16, 64
# Short headings for narrow columns in a terminal.
_SHORT = {"index": "i", "sigma": "σ", "sign": "±", "self_rank": "self", "relative": "/‖x‖"}


def sheet_text(sheet: Sheet, width: int | None = None) -> str:
    return as_text(lambda console: print_sheet(sheet, console), width)


def print_sheet(sheet: Sheet, console: Console, folder: Path | None = None) -> None:
    """Title, the tables as far as they fit on a screen, and the notes."""
    width = min(console.width, 140)
    lines = paragraphs([show_text(sheet.title)], width, "bold") + paragraphs([show_text(sheet.caption)], width)
    for name, table in (sheet.screen or sheet.tables).items():
        lines += [Text(), *_table(name, table, width)]
    foot = [*sheet.notes, *([f"Files: {folder}"] if folder else [])]
    lines += [Text(), *paragraphs(map(show_text, foot), width)] if foot else []
    print_lines(lines, console)


def sheets_text(sheets: Sheets, width: int | None = None, folder: Path | None = None) -> str:
    """The title of each sheet."""
    console = new_console(width)
    width = min(console.width, 120)
    lines = paragraphs([show_text(sheets.title)], width, "bold")
    indent = max(len(sheet.name) for sheet in sheets) + 4
    for sheet in sheets:
        lines += hanging(sheet.name, sheet.title, width, indent)
    foot = [*sheets.notes, *([f"Files: {folder}"] if folder else [])]
    lines += [Text(), *paragraphs(map(show_text, foot), width, "")]
    print_lines(lines, console)
    return printed(console)


def _table(name: str, table: Table, width: int) -> list[Text]:
    listed = gathered(table)
    if listed is None:
        return [Text(show_text(name), "bold"), *table_lines(_unlayered(table), width, _LINES)]
    listed = listed.without("layer", "matrix", "cumulative")
    same = {key: value for key, value in listed.constant.items() if key != "sign"}
    listed = listed.without(*same)
    constants = [f"{key} {show_cell(value, key)}" for key, value in same.items() if value != ""]
    return [Text(" · ".join([show_text(name), *map(show_text, constants)]), "bold"), *_list_lines(listed, width)]


def _unlayered(table: Table) -> Table:
    """Without the column `layer`, where the head's name contains it."""
    if not {"layer", "head"} <= set(table.names):
        return table
    at = table.names.index("layer")
    return Table(table.columns[:at] + table.columns[at + 1 :], tuple(row[:at] + row[at + 1 :] for row in table.rows))


def _list_lines(listed: Listed, width: int) -> list[Text]:
    """Aligned columns; the lists share the rest of the width, in whole words."""
    cells, words = listed.cells[:_LINES], listed.words[:_LINES]
    columns = []
    for index, column in enumerate(listed.columns):
        body = [row[index] for row in cells]
        columns.append(
            _quiet(column_texts(_SHORT.get(column.name, column.name), body, column.name), body, cells, index)
        )
    used = 4 + sum(cell_len(column[0]) + 2 for column in columns)
    room = max(12, (width - used - 2 * (len(listed.lists) - 1)) // len(listed.lists))
    head = [set_cell_size(show_text(name), room) for name in listed.lists]
    lines = [Text("    " + "  ".join([column[0] for column in columns] + head), "dim")]
    for i, row in enumerate(words):
        lists = [set_cell_size(_fitting(entry, room), room) for entry in row]
        lines.append(Text("    " + "  ".join([column[i + 1] for column in columns] + lists)))
    if len(listed.cells) > len(cells):
        lines.append(Text(f"    … {count(len(listed.cells) - len(cells))} more lines in the saved table", "dim"))
    return lines


def _quiet(texts: list[str], body: Sequence[Cell], rows: Sequence[tuple[Cell, ...]], index: int) -> list[str]:
    """A column with blanks where a cell, and all before it in the row, repeat the line above."""
    shown = texts[:2]
    for i in range(1, len(body)):
        same = rows[i][: index + 1] == rows[i - 1][: index + 1]
        shown.append(" " * cell_len(texts[i + 1]) if same else texts[i + 1])
    return shown


def _fitting(words: Sequence[str], room: int) -> str:
    """As many whole words as there is room for, and at least the start of one."""
    line = ""
    for word in words:
        more = f"{line}  {show_token(word, _WORD)}" if line else show_token(word, min(_WORD, room))
        if cell_len(more) > room:
            break
        line = more
    return line


def sheet_figure(sheet: Sheet, narrow: bool = False) -> "go.Figure":
    """The sheet's quantities, one panel each, under its title; for a trajectory its globe."""
    from textwrap import wrap

    from armillary.views.figures.figure import drawn
    from armillary.views.text.quoting import in_html
    from armillary.views.travel.interactive import figure

    if isinstance(sheet.drawing, Trajectory):
        return figure(sheet.drawing)
    return drawn(
        sheet.quantities, sheet.title, "<br>".join(map(in_html, wrap(show_text(sheet.caption), 110))), narrow=narrow
    )


def sheet_page(sheet: Sheet) -> str:
    """One self-contained page: figure, notes, tables."""
    from armillary.views.page import drawn_page, quantities_csv
    from armillary.views.sheets.drawing import drawing_page

    if sheet.drawing is not None:
        return drawing_page(sheet, below_html(replace(sheet, notes=())))
    head, body = _above(sheet), below_html(sheet)
    forms = [sheet_figure(sheet, narrow) for narrow in (False, True)]
    return drawn_page(sheet.title, forms, sheet.name, quantities_csv(sheet.quantities), head, body)


def sheet_html(sheet: Sheet) -> str:
    """The sheet as static HTML for a notebook."""
    from armillary.views.sheets.drawing import drawing_svg

    if sheet.drawing is None:
        from armillary.views.figures.print.static_svg import figure_svg

        label = html_text(sheet.title)
        drawn = f"<div class='wide'>{figure_svg(sheet_figure(sheet), label)}</div>" if sheet.quantities else ""
        return framed_html(_above(sheet) + drawn + below_html(sheet))
    return framed_html(drawing_svg(sheet)[0] + below_html(replace(sheet, notes=())))


def _above(sheet: Sheet) -> str:
    return f"<h1>{html_text(sheet.title)}</h1><p class='soft'>{html_text(sheet.caption)}</p>"


def below_html(sheet: Sheet) -> str:
    """The sheet's notes and tables."""
    parts = [f"<p class='soft'>{'<br>'.join(map(html_text, sheet.notes))}</p>" if sheet.notes else ""]
    for at, (name, table) in enumerate(sheet.tables.items()):
        listed = gathered(table)
        shown = table_html(table) if listed is None else _lists_html(listed)
        size = len(table.rows) if listed is None else len(listed.cells)
        # Lists of words are open, the first of any length; a long table of numbers is folded.
        first = at == 0 and (listed is not None or size <= _LINES)
        opened = " open" if first or (listed is not None and size <= _FEW) else ""
        lines = "line" if size == 1 else "lines"
        parts.append(f"<details{opened}><summary>{html_text(name)}, {count(size)} {lines}</summary>{shown}</details>")
    return "".join(parts)


def _lists_html(listed: Listed) -> str:
    """A table with lists in its cells; spaces in words are visible."""
    words = [
        ["&emsp;".join(escape(show_token(word, _PAGE_WORD)) for word in entry) for entry in row]
        for row in listed.words[:_PAGE_LINES]
    ]
    return table_html(Table(listed.columns, listed.cells), listed.lists, words, _PAGE_LINES, "lines")


def sheet_json(sheet: Sheet) -> str:
    """The whole sheet as deterministic JSON, one line per row of a table; NaN and infinities become null."""
    record: dict[str, Any] = {key: getattr(sheet, key) for key in ("name", "title", "caption", "notes", "about")}
    record["quantities"] = [vars(quantity) for quantity in sheet.quantities]
    tables = ",\n  ".join(f"{json.dumps(name)}: {_table_json(table)}" for name, table in sheet.tables.items())
    return json_text(record).removesuffix("\n}\n") + f',\n "tables": {{\n  {tables}\n }}\n}}\n'


def _table_json(table: Table) -> str:
    # Lists of words have hundreds of thousands of rows, for which `json_text` is too slow.
    columns = json.dumps([vars(column) for column in table.columns], ensure_ascii=False)
    rows = [json.dumps([_finite(cell) for cell in row], ensure_ascii=False) for row in table.rows]
    text = f'{{"columns": {columns}, "rows": [\n   ' + ",\n   ".join(rows) + "\n  ]}"
    return text.encode("utf-8", "backslashreplace").decode()


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
