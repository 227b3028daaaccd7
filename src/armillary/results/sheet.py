"""What is handed back where nothing was claimed: tables and pictures under one title, with how they were made.

A `Sheet` has no verdict. Its tables are tidy: where words are listed, every word has a row of its own, and views gather
the rows that differ by their rank alone into one line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.results.quantity import Quantity
from armillary.results.schematic import Schematic
from armillary.results.table import Table
from armillary.results.trajectory import Trajectory

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects


@dataclass(frozen=True)
class Sheet:
    """Tables and quantities of one question; the first table is the main one."""

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
    """The model, and the choices behind the numbers: the settings, the offset, the ranking."""
    screen: Mapping[str, Table] = field(default_factory=dict)
    """What a terminal shows instead of the tables, where those would fill more than a screen."""
    drawing: Trajectory | Schematic | None = None
    """What is drawn instead of the quantities, where lines and maps would not do."""

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
        """Write the main table (.csv), all tables (.tex), the page (.html), the picture (.png .svg) or all of it (.json)."""
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
    """Several sheets about one model, that belong in one folder."""

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
        """Write README.md, tables/ (.csv and .tex), figures/ and one .json a sheet into a folder; README.md comes last."""
        from armillary.views.save import save_sheets

        return save_sheets(self, Path(folder))

    def __str__(self) -> str:
        from armillary.views.sheets.sheet import sheets_text

        return sheets_text(self)
