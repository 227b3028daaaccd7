"""Which column of a table is the text? Rows of datasets, pandas objects and parquet files are documents."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from armillary.errors import TextError
from armillary.flow.sources.text_files import Lazy, readable, whole_characters

USUAL = ("text", "content", "document")
SEVERAL = 100
# What the column of an object that is one column is called.
ONLY = "text"


def pick_column(first: Mapping[str, Any], column: str, source: str) -> str:
    """The column asked for, one with a usual name, or the only one of text, by the first row."""
    texts = [name for name, value in first.items() if isinstance(value, str)]
    if column:
        if column in texts:
            return column
        problem = "contains no text" if column in first else "does not exist"
        raise TextError(f"column {column!r} of {source} {problem}; its columns are {_names(first)}.")
    usual = [name for name in USUAL if name in texts]
    if usual or len(texts) == 1:
        return (usual or texts)[0]
    if not texts and list(first) == [ONLY]:
        raise TextError(f"{source} holds no text but values of type {type(first[ONLY]).__name__}.")
    if not texts:
        raise TextError(f"{source} has no column of text; its columns are {_names(first)}.")
    raise TextError(f"{source} has several columns of text; name one of {_names(texts)} with --column (column=…).")


def _check_once(names: Iterable[str], source: str) -> None:
    """Of two columns of one name only the last would be read."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise TextError(f"{source} has two columns {name!r}, so it is not clear which is meant; rename one.")
        seen.add(name)


def _names(columns: Iterable[Any]) -> str:
    return ", ".join(map(repr, map(str, columns)))


def column_texts(
    rows: Callable[[], Iterable[Mapping[str, Any]]], column: str, source: str
) -> tuple[Lazy[str], str, tuple[str, ...]]:
    """The texts of the rows, read when they are asked for, the name of their column, and what is to be said of it."""
    # The first row's text may be missing. Rows are not kept: any of them may be as long as a book.
    known, blanks, read = dict[str, Any](), Counter[str](), 0
    for read, row in enumerate(islice(rows(), SEVERAL), 1):
        for name in row if read == 1 else known:
            value = row.get(name)
            known[name] = value if _missing(known.get(name)) and not _missing(value) else known.get(name)
            blanks[name] += _missing(value) or not str(value).strip()
    if not read:
        raise TextError(f"{source} has no rows; pass one that has.")
    name = pick_column(known, column, source)
    blank = blanks[name]
    notes = (f"{blank} of the first {read} rows have no text; rows without text are left out",) if blank else ()

    def texts() -> Iterator[str]:
        for number, row in enumerate(rows(), 1):
            value = row[name]
            if not isinstance(value, str) and not _missing(value):
                raise TextError(f"row {number} of {source} has no text under {name!r} but a {type(value).__name__}.")
            if isinstance(value, str) and value.strip():
                yield whole_characters(value, f"row {number} of {source}")

    return Lazy(texts), name, notes


def _missing(value: Any) -> bool:
    """Is it one of the marks of a text that is not there? pandas has three beside None."""
    return not isinstance(value, str) and str(value) in ("None", "nan", "<NA>", "NaT")


def parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of strings and nulls, some at a time."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise TextError(f"{path} needs the pyarrow package: pip install 'armillary[datasets]'.") from None
    with readable(path):
        try:
            with parquet.ParquetFile(path) as file:
                schema = file.schema_arrow
                _check_once(schema.names, str(path))
            # A word of a dictionary may be as long as a book and stand in every row: it is unpacked row by row.
            texts = [field.name for field in schema if str(field.type) in ("string", "large_string")]
            with parquet.ParquetFile(path, read_dictionary=texts) as file:
                for batch in file.iter_batches(SEVERAL):
                    for row in range(len(batch)):
                        yield batch.slice(row, 1).to_pylist()[0]
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise TextError(f"{path} is not a parquet file that can be read ({error}).") from error


def table_rows(table: Any) -> tuple[Callable[[], Iterable[Mapping[str, Any]]], str] | None:
    """Rows of a datasets or pandas object, and what to call it; None of any other object.

    A DatasetDict is read in its only split, or in the one called train.
    """
    package, name = type(table).__module__.partition(".")[0], type(table).__name__
    if (package, name) in (("pandas", "Series"), ("datasets", "Column"), ("datasets", "IterableColumn")):
        what = f"a {name} of {len(table)} rows" if hasattr(table, "__len__") else f"an {name}"
        return lambda: ({ONLY: value} for value in table), what
    if package == "pandas" and name == "DataFrame":
        names = [str(column) for column in table.columns]
        _check_once(names, "the DataFrame")
        return (
            lambda: (dict(zip(names, row, strict=True)) for row in table.itertuples(index=False, name=None)),
            f"a DataFrame of {len(table)} rows",
        )
    if package != "datasets":
        return None
    if name in ("DatasetDict", "IterableDatasetDict"):
        split = "train" if "train" in table else next(iter(table)) if len(table) == 1 else None
        if split is None:
            raise TextError(f"the dataset has the splits {_names(table)} and no 'train'; pass one of them.")
        return lambda: iter(table[split]), f"split {split!r} of a Hugging Face dataset"
    return lambda: iter(table), "a Hugging Face dataset"
