"""The files of sheets in a folder, and the README that lists them."""

from collections.abc import Mapping, Sequence
from typing import Any

from armillary.results.numbers import count
from armillary.results.sheets.sheet import Sheet, Sheets
from armillary.results.store import file_name, table_csv
from armillary.results.table import Table
from armillary.views.sheets.drawing import drawing_svg
from armillary.views.sheets.latex import table_latex
from armillary.views.sheets.sheet import sheet_json, sheet_page
from armillary.views.text.quoting import show_text


def sheet_files(sheet: Sheet) -> dict[str, str]:
    """Path → content: each table as .csv and .tex (one per layer, if there are several), the page (and the picture of a
    drawing) and the JSON."""
    files: dict[str, str] = {}
    for name, table in sheet.tables.items():
        stem = sheet.name if len(sheet.tables) == 1 else f"{sheet.name}.{name}"
        files[f"tables/{file_name(stem)}"] = table_csv(table)
        for part, rows in _by_layer(table).items():
            path = f"tables/{file_name(stem + part, '.tex')}"
            files[path] = table_latex(rows, f"{sheet.name}: {name}{part}. {sheet.caption}")
    files[f"figures/{file_name(sheet.name, '.html')}"] = sheet_page(sheet)
    if sheet.drawing is not None:
        files[f"figures/{file_name(sheet.name, '.svg')}"] = drawing_svg(sheet)[0]
    files[file_name(sheet.name, ".json")] = sheet_json(sheet)
    return files


def _by_layer(table: Table) -> dict[str, Table]:
    """Lists of words layer by layer, because one LaTeX table of all would fill a book."""
    layers = dict.fromkeys(table.column("layer")) if {"layer", "rank"} <= set(table.names) else {}
    return {f".L{layer}": table.where("layer", layer) for layer in layers} if len(layers) > 1 else {"": table}


def readme(sheets: Sheets, files: Mapping[str, Sequence[str]]) -> str:
    """The folder's index, in Markdown."""
    lines = [f"# {_md(sheets.title)}", "", *_facts(sheets.about), ""]
    for note in sheets.notes:
        lines += [_md(note), ""]
    lines += ["| sheet | result | files |", "|---|---|---|"]
    for sheet in sheets:
        listed = [f"[{_md(name.rsplit('/', 1)[-1])}]({name})" for name in _few(files[sheet.name])]
        more = len(files[sheet.name]) - len(listed)
        listed += [f"and {count(more)} more .tex, one per layer"] if more else []
        lines.append(f"| {_md(sheet.name)} | {_md(sheet.title)} | {' · '.join(listed)} |")
    for sheet in sheets:
        lines += ["", f"## {_md(sheet.name)}", "", _md(sheet.title) + ".", ""]
        lines += [f"- {_md(note)}" for note in sheet.notes]
        for name, table in sheet.tables.items():
            lines += ["", f"`{name}`, {count(len(table.rows))} rows:", ""]
            lines += [f"- `{c.name}`{f' [{_md(c.unit)}]' if c.unit else ''}: {_md(c.meaning)}" for c in table.columns]
    return "\n".join(lines) + "\n"


def _few(names: Sequence[str]) -> list[str]:
    """All files except the tables of single layers."""
    return [name for name in names if not (name.endswith(".tex") and ".L" in name)]


def _facts(about: Mapping[str, Any]) -> list[str]:
    return [
        f"- **{_md(group)}**: " + " · ".join(f"{_md(str(key))} {_md(_value(value))}" for key, value in facts.items())
        for group, facts in about.items()
        if isinstance(facts, Mapping)
    ]


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _md(text: str) -> str:
    """Text in which nothing is interpreted as Markdown or HTML.

    >>> _md("a|b <i>_x_")
    'a\\\\|b \\\\<i\\\\>\\\\_x\\\\_'
    """
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>|#" else char for char in show_text(text))
