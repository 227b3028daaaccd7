"""Tables of results, with documented columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    name: str
    meaning: str
    unit: str = ""

    @property
    def heading(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name


@dataclass(frozen=True)
class Table:
    """Tidy rows (one per site or head) under documented columns.

    >>> Table.of([Column("site", "where"), Column("r", "radius", "√d")], [{"site": "ln1", "r": 1.0}]).rows
    (('ln1', 1.0),)
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[Column], records: Sequence[Mapping[str, Cell]]) -> "Table":
        names = [column.name for column in columns]
        for record in records:
            if set(record) != set(names):
                raise ValueError(f"a row has {sorted(record)}, the columns are {sorted(names)}")
        return cls(tuple(columns), tuple(tuple(record[name] for name in names) for record in records))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> list[Cell]:
        at = self.names.index(name)
        return [row[at] for row in self.rows]

    def records(self) -> list[dict[str, Cell]]:
        names = self.names
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def where(self, name: str, *values: Cell) -> "Table":
        """The rows that have one of these values in a column."""
        at = self.names.index(name)
        return Table(self.columns, tuple(row for row in self.rows if row[at] in values))

    def to_frame(self) -> "pandas.DataFrame":
        import pandas

        frame = pandas.DataFrame(list(self.rows), columns=self.names)
        frame.attrs["columns"] = {c.name: f"{c.meaning} [{c.unit}]" if c.unit else c.meaning for c in self.columns}
        return frame
