"""Tables and pictures that belong to no claim.

A `Sheet` has no verdict. Its tables are tidy: where words are listed, every word has its own row, and views gather the
rows that differ only in rank into one line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.results.quantity import Quantity
from armillary.results.sheets.schematic import Schematic
from armillary.results.sheets.trajectory import Trajectory
from armillary.results.table import Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects


@dataclass(frozen=True)
class Sheet:
    """Tables and quantities about one question; the first table is the main one."""

    name: str
    """The stem of its files."""
    title: str
    """The figure's title: what was found, in a sentence with its number."""
    caption: str
    """Model and settings, as the figure's subtitle."""
    tables: Mapping[str, Table]
    quantities: tuple[Quantity, ...]
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """The model and the settings behind the numbers: offset, ranking and others."""
    screen: Mapping[str, Table] = field(default_factory=dict)
    """Shown in a terminal instead of the tables, where those would fill more than a screen."""
    drawing: Trajectory | Schematic | None = None
    """Drawn instead of the quantities, where lines and maps do not suffice."""

    @property
    def table(self) -> Table:
        return next(iter(self.tables.values()))

    def to_frame(self, table: str = "") -> "pandas.DataFrame":
        """The main table, or the one of that name."""
        if table and table not in self.tables:
            from armillary.errors import nearest

            raise KeyError(f"no table {table!r} here; {nearest(table, self.tables)}")
        return (self.tables[table] if table else self.table).to_frame()

    def plot(self) -> "plotly.graph_objects.Figure":
        from armillary.views.sheets.sheet import sheet_figure

        return sheet_figure(self)

    def save(self, path: str | Path) -> Path:
        """Write the main table (.csv), all tables (.tex), the page (.html), the picture (.png .svg) or all (.json)."""
        from armillary.views.save import save_sheet

        return save_sheet(self, Path(path))

    def __str__(self) -> str:
        from armillary.views.sheets.sheet import sheet_text

        return sheet_text(self)

    def _repr_html_(self) -> str:
        from armillary.views.sheets.sheet import sheet_html

        return sheet_html(self)


@dataclass(frozen=True)
class Sheets:
    """Several sheets about one model, saved in one folder."""

    title: str
    sheets: tuple[Sheet, ...]
    about: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Sheet:
        for sheet in self.sheets:
            if name in (sheet.name, sheet.name.split("-")[0]):
                return sheet
        from armillary.errors import nearest

        raise KeyError(f"no sheet {name!r} here; {nearest(name, [sheet.name for sheet in self.sheets])}")

    def __iter__(self) -> Iterator[Sheet]:
        return iter(self.sheets)

    def __len__(self) -> int:
        return len(self.sheets)

    def save(self, folder: str | Path) -> Path:
        """Write README.md, tables/ (.csv and .tex), figures/ and one .json per sheet into a folder, README.md last."""
        from armillary.views.save import save_sheets

        return save_sheets(self, Path(folder))

    def __str__(self) -> str:
        from armillary.views.sheets.sheet import sheets_text

        return sheets_text(self)
