"""The log of a run: one JSON object per line, without gaps or duplicates when a run is resumed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.store import why_not, write_whole

LOG = "log.jsonl"


class Log:
    """A folder's log.jsonl: one object per line, written to disk at once."""

    def __init__(self, folder: Path, step: int) -> None:
        """Rows after `step` are dropped: a resumed run repeats those steps."""
        self.path = folder / LOG
        cut(self.path, step)
        with self._disk_errors():
            self._file = self.path.open("a", encoding="utf-8", buffering=1)

    def write(self, row: dict[str, Any]) -> None:
        with self._disk_errors():
            self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        with self._disk_errors():
            self._file.close()

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(why_not(self.path, error)) from error


def cut(path: Path, step: int) -> None:
    """Drop rows after a step, which a resumed run repeats."""
    write_whole({path: "".join(json.dumps(row) + "\n" for row in _read(path) if row["step"] <= step)})


def rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of a folder's log."""
    return _read(folder / LOG)


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """The rows of evaluations: bits per byte of the held-out text, and the geometry."""
    return [row for row in rows(folder) if "valid_bits_per_byte" in row]


def _read(path: Path) -> list[dict[str, Any]]:
    """The last line of a killed run may be incomplete, and is left out."""
    parsed = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            parsed.append(json.loads(line))
        except ValueError:
            break
    return parsed
