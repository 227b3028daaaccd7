"""The log of a run: one JSON object per line, without gaps or duplicates when a run is resumed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.lab.forms import check_rows, check_version, logged
from armillary.results.disk.files import disk_errors, read_bytes, strict_json, write_whole

LOG = "log.jsonl"


class Log:
    """A folder's log.jsonl: one object per line, written to disk at once."""

    def __init__(self, folder: Path, step: int) -> None:
        """Rows after `step` are dropped: a resumed run repeats those steps."""
        self.path = folder / LOG
        check_rows(self.path, _read(self.path))
        self._digest = hashlib.sha256(cut(self.path, step).encode())
        with disk_errors(self.path):
            self._file = self.path.open("a", encoding="utf-8", buffering=1)

    def write(self, row: dict[str, Any]) -> None:
        line = json.dumps(row, allow_nan=False) + "\n"
        with disk_errors(self.path):
            self._file.write(line)
        self._digest.update(line.encode())

    @property
    def sha256(self) -> str:
        """Of all rows so far, which a checkpoint keeps: a run goes on with its own log alone."""
        return self._digest.hexdigest()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        with disk_errors(self.path):
            self._file.close()


def cut(path: Path, step: int) -> str:
    """Drop rows after a step, which a resumed run repeats; returns what stays."""
    lines = "".join(json.dumps(row) + "\n" for row in _read(path) if row["step"] <= step)
    write_whole({path: lines})
    return lines


def rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of a folder's log."""
    check_version(folder)
    records = _read(folder / LOG)
    check_rows(folder / LOG, records)
    return records


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """The rows of evaluations: bits per byte of the held-out text, and the geometry."""
    return [row for row in rows(folder) if "valid_bits_per_byte" in row]


def _read(path: Path) -> list[dict[str, Any]]:
    """The last line of a killed run may be incomplete, and is left out; any other damage is refused."""
    if not os.path.lexists(path):
        return []
    try:
        lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); check the file.") from error
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(strict_json(line))
            logged(parsed[-1], "")
        except ValueError as error:
            if number == len(lines):
                break
            raise OutputError(f"line {number} of {path} is damaged ({error}); restore the file.") from error
    return parsed
