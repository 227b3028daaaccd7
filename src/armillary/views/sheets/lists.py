"""Gather rows that list words, one per rank, into one line per list."""

from dataclasses import dataclass

from armillary.results.table import Cell, Column, Table

_PARTS = ("_word", "_id", "_score")


@dataclass(frozen=True)
class Listed:
    """Plain columns, and lists of words beside them."""

    columns: tuple[Column, ...]
    lists: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    words: tuple[tuple[tuple[str, ...], ...], ...]
    """For each row, each list's words, best first."""

    def without(self, *names: str) -> "Listed":
        columns = [i for i, column in enumerate(self.columns) if column.name not in names]
        cells = tuple(tuple(row[i] for i in columns) for row in self.cells)
        return Listed(tuple(self.columns[i] for i in columns), self.lists, cells, self.words)

    @property
    def constant(self) -> dict[str, Cell]:
        """Columns with the same value in every row."""
        if len(self.cells) < 2:
            return {}
        columns = zip(self.columns, zip(*self.cells, strict=True), strict=True)
        return {column.name: cells[0] for column, cells in columns if len(set(cells)) == 1}


def plain(table: Table) -> Listed:
    """A table without lists."""
    return Listed(table.columns, (), table.rows, ((),) * len(table.rows))


def gathered(table: Table) -> Listed | None:
    """Rows that differ only in rank, on one line; None for a table without ranks.

    >>> columns = [Column(name, "") for name in ("head", "rank", "key_word", "key_id", "key_score")]
    >>> rows = [("L0H0", 1, " a", 5, 2.0), ("L0H0", 2, " b", 6, 1.0), ("L0H1", 1, " c", 7, 3.0)]
    >>> listed = gathered(Table(tuple(columns), tuple(rows)))
    >>> listed.cells, listed.words
    ((('L0H0',), ('L0H1',)), (((' a', ' b'),), ((' c',),)))
    """
    names = table.names
    if "rank" not in names:
        return None
    lists = [name.removesuffix("_word") for name in names if name.endswith("_word")]
    parts = {f"{name}{part}" for name in lists for part in _PARTS} | {"rank"}
    plain_at = [i for i, name in enumerate(names) if name not in parts]
    words_at = [names.index(f"{name}_word") for name in lists]
    rank_at = names.index("rank")
    cells: list[tuple[Cell, ...]] = []
    words: list[list[list[str]]] = []
    for row in table.rows:
        if row[rank_at] == 1:
            cells.append(tuple(row[i] for i in plain_at))
            words.append([[] for _ in lists])
        for held, at in zip(words[-1], words_at, strict=True):
            held.append(str(row[at]))
    return Listed(
        tuple(table.columns[i] for i in plain_at),
        tuple(lists),
        tuple(cells),
        tuple(tuple(tuple(entry) for entry in row) for row in words),
    )
