"""How is a table written as CSV, so that it comes back as it was and no spreadsheet runs it?

A cell of text that begins like a formula is written after an apostrophe, which spreadsheets take for 'this is text'.
"""

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.results.table import Cell, Column, Table

# CSV has only text, so survey.json records the type of every column; where a column mixes types (an absent number, an
# empty word beside None), it records the first letter of each cell's type.
TYPES: dict[str, Callable[[str], Cell]] = {"int": int, "float": float, "str": str}
TYPES |= {"bool": lambda text: text == "True", "none": lambda text: None}
_BY_LETTER = {name[0]: name for name in TYPES}
# An apostrophe too: otherwise what was written after one could not be told from what began with one.
FORMULA = tuple("=+-@\t\r'")
_SPECIAL = re.compile(r'[,"\r\n]')


def table_csv(table: Table) -> str:
    """The table as CSV, with floats in full precision; None is an empty field, and formulas are made text.

    >>> table_csv(Table((Column("site", "where"), Column("r", "radius")), (("ln1", 0.1), ("=1+1", None))))
    "site,r\\nln1,0.1\\n'=1+1,\\n"
    """
    rows = [[as_text(name) for name in table.names]]
    for row in table.rows:
        cells = [plain(cell) for cell in row]
        rows.append([repr(cell) if isinstance(cell, float) else as_text(cell) for cell in cells])
    return "".join(_line(row) for row in rows)


def _line(row: Sequence[Any]) -> str:
    """A line of CSV. Python's own writer leaves a carriage return bare, at which readers end the line."""
    fields = ["" if cell is None else str(cell) for cell in row]
    quoted = ['"' + field.replace('"', '""') + '"' if _SPECIAL.search(field) else field for field in fields]
    return (",".join(quoted) if quoted != [""] else '""') + "\n"


def as_text(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula.

    >>> as_text("-x"), as_text("x"), as_text(-1)
    ("'-x", 'x', -1)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def column_records(table: Table) -> list[dict[str, Any]]:
    """What survey.json says of a table's columns."""
    records = []
    for index, column in enumerate(table.columns):
        cells = [plain(row[index]) for row in table.rows]
        types = ["none" if cell is None else type(cell).__name__ for cell in cells]
        if not set(types) <= set(TYPES):
            raise TypeError(f"column {column.name!r} holds {set(types)}; a table holds {', '.join(TYPES)}")
        record: dict[str, Any] = {**vars(column), "type": types[0] if types else "none"}
        if len(set(types)) > 1:
            record |= {"type": "mixed", "cells": "".join(name[0] for name in types)}
        records.append(record)
    return records


def table_from(columns: Sequence[Mapping[str, Any]], content: str, quoted: bool) -> Table:
    """A table from its CSV and its column records; `quoted` where formulas were made text."""
    header, *rows = list(csv.reader(io.StringIO(content, newline=""))) or [[]]
    if header != [str(as_text(c["name"]) if quoted else c["name"]) for c in columns]:
        raise ValueError("the columns of a table are not those that its first line names")
    types = [
        [c["type"]] * len(rows) if "cells" not in c else [_BY_LETTER[letter] for letter in c["cells"]] for c in columns
    ]
    if any(len(column) != len(rows) for column in types):
        raise ValueError(f"a column of a table has not one type for each of its {len(rows)} rows")

    def cell(kind: str, text: str) -> Cell:
        is_quoted = quoted and kind == "str" and text.startswith("'")
        return TYPES[kind](text[1:] if is_quoted else text)

    return Table(
        columns=tuple(Column(c["name"], c["meaning"], c["unit"]) for c in columns),
        rows=tuple(
            tuple(cell(kind[index], text) for text, kind in zip(row, types, strict=True))
            for index, row in enumerate(rows)
        ),
    )


def file_name(name: str, ending: str = ".csv") -> str:
    # Names can come from a survey.json of unknown origin: they must not contain a path.
    return re.sub(r"[^\w.-]+", "-", name).lstrip(".") + ending


def plain(value: Any) -> Any:
    """A NumPy or path value as a builtin type; any other type is an error of the caller."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str | Mapping | list | tuple | range):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be stored: {value!r}")
