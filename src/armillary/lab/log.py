"""What does a run write down as it goes, so that a resumed one leaves no gap and says nothing twice?"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.store import why_not, write_whole

LOG = "log.jsonl"


class Log:
    """A folder's log.jsonl: an object a line, on disk as soon as it is written."""

    def __init__(self, folder: Path, step: int) -> None:
        """What was logged after `step` is forgotten: those steps are done over."""
        self.path = folder / LOG
        cut(self.path, step)
        with self._told():
            self._file = self.path.open("a", encoding="utf-8", buffering=1)

    def write(self, row: dict[str, Any]) -> None:
        with self._told():
            self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        with self._told():
            self._file.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(why_not(self.path, error)) from error


def cut(path: Path, step: int) -> None:
    """Forget what was logged after a step: a resumed run does it over."""
    write_whole({path: "".join(json.dumps(row) + "\n" for row in _read(path) if row["step"] <= step)})


def rows(folder: Path) -> list[dict[str, Any]]:
    """What was logged in a folder."""
    return _read(folder / LOG)


def looks(folder: Path) -> list[dict[str, Any]]:
    """Of that, the looks: bits per byte of the held-out text, and the geometry."""
    return [row for row in rows(folder) if "valid_bits_per_byte" in row]


def _read(path: Path) -> list[dict[str, Any]]:
    """The last line of a killed run may be torn, and is left out."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
