"""How does a folder go from one result to the next at once?

A result is many files: survey.json, its tables, its pictures, and manifest.json, which lists them with their SHA-256.
All are written aside; then one file, the journal, says which of them replace what, and that is the moment at which
the new result is there. What remains is renaming: a process that is killed in the middle leaves the journal, readers
read through it, and the next writer ends the work.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.disk.files import (
    PART,
    WRITTEN,
    read_bytes,
    remove_parts,
    sha256,
    stage,
    strict_json,
    sync_folders,
    why_not,
)

JOURNAL, MANIFEST, SURVEY, REPORT = ".armillary.swap", "manifest.json", "survey.json", "report.html"
LOCK = ".armillary.lock"
SETTINGS, PASS = "settings.json", "pass"
"""How a survey was asked for; of one that has decided nothing yet, it lies in the folder of its pass."""
SCHEMA = 1
FOLDERS = ("tables", "figures", PASS, "shard")
# A manifest of unknown origin must not name a file elsewhere.
NAME = re.compile(r"(?:(?:tables|figures)/)?[\w-][\w.-]*")
TOP = re.compile("|".join(map(re.escape, (JOURNAL, LOCK, MANIFEST, SURVEY, REPORT, SETTINGS))))


def write_result(folder: Path, files: Mapping[str, str | bytes], unchanged: Mapping[str, str]) -> None:
    """Replace the folder's result by these files and those in `unchanged` (name → SHA-256), which are there already.

    Files of the result before that are neither go; files of others stay.
    """
    folder = Path(folder)
    finish(folder)
    hashes = {**unchanged, **{name: sha256(content) for name, content in files.items()}}
    manifest = json.dumps({"schema": SCHEMA, "files": hashes}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    gone = sorted(name for name in _before(folder) if name not in hashes)
    _swap(folder, {**files, MANIFEST: manifest}, gone)


def add_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Add files to the folder's result."""
    write_result(folder, files, {name: digest for name, digest in listed(folder).items() if name not in files})


def listed(folder: Path) -> dict[str, str]:
    """The files of the folder's result by their names, with their SHA-256; none without a manifest."""
    path = there(folder)(MANIFEST)
    try:
        record = strict_json(read_bytes(path))
        if not isinstance(record, dict) or set(record) != {"schema", "files"} or _version(record) != SCHEMA:
            raise ValueError(f"it is not a manifest of schema {SCHEMA}")
        files: dict[str, str] = record["files"]
        for name, digest in files.items():
            if not NAME.fullmatch(name) or not re.fullmatch("[0-9a-f]{64}", digest):
                raise ValueError(f"it lists {name[:80]!r} in a form that this program does not write")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputError(
            f"{path} is damaged ({why}), so the result next to it cannot be checked; run the survey again, or delete "
            "that file if you trust the others."
        ) from error
    return files


def check_own(folder: Path) -> None:
    """Refuse a folder whose manifest is that of something else, such as a study of the laboratory: it would be lost."""
    path = folder / MANIFEST
    try:
        record = strict_json(read_bytes(path))
    except (OSError, ValueError):
        return  # one that is damaged is replaced
    if isinstance(record, dict) and record and "files" not in record:
        raise OutputError(f"{path} does not belong to a survey; choose another folder.")


def changed(folder: Path) -> list[str]:
    """Files of the folder's result that are missing, or are not those that were written with its manifest."""
    find, wrong = there(folder), []
    for name, digest in listed(folder).items():
        try:
            same = sha256(read_bytes(find(name))) == digest
        except OSError:
            same = False
        wrong += [] if same else [name]
    return sorted(wrong)


def _version(record: Mapping[str, Any]) -> int | None:
    """The schema's number; True and 1.0 are none."""
    return record["schema"] if type(record["schema"]) is int else None


def there(folder: Path) -> Callable[[str], Path]:
    """Where a file of the folder's result is: under its name, or, while it is being renamed, beside it."""
    parts = _journal(Path(folder)).get("files", {})

    def find(name: str) -> Path:
        path = Path(folder) / name
        part = path.with_name(parts[name]) if name in parts else path
        return part if part.exists() else path

    return find


def finish(folder: Path) -> None:
    """End what a killed process began to rename."""
    try:
        _apply(Path(folder))
    except KeyboardInterrupt:
        _apply(Path(folder))
        raise
    except OSError as error:
        raise OutputError(why_not(Path(folder) / SURVEY, error)) from error


def tidy(folder: Path) -> None:
    """End what a killed process began, and remove its temporary files; whoever calls has the folder to itself."""
    finish(folder)
    remove_parts(folder, TOP)
    for name in FOLDERS:
        remove_parts(folder / name, re.compile(".*"))


def _swap(folder: Path, files: Mapping[str, str | bytes], gone: list[str]) -> None:
    staged: dict[str, Path] = {}
    current = folder / JOURNAL
    try:
        for name, content in files.items():
            current = folder / name
            staged[name] = stage(current, content)
        current = folder / JOURNAL
        journal = json.dumps({"files": {name: part.name for name, part in staged.items()}, "gone": gone})
        staged[JOURNAL] = stage(current, journal)
        os.replace(staged[JOURNAL], current)
        WRITTEN.extend(folder / name for name in files if name != MANIFEST)
    except BaseException as error:
        # From the journal on, these are the result.
        for part in staged.values() if not current.exists() or current.name != JOURNAL else ():
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(why_not(current, error)) from error
        raise
    finish(folder)


def _apply(folder: Path) -> None:
    """What must go goes first: an old report never lies beside a new survey.json."""
    journal = _journal(folder)
    if not journal:
        return
    for name in journal["gone"]:
        (folder / name).unlink(missing_ok=True)
    for name, part in journal["files"].items():
        target = folder / name
        try:
            os.replace(target.with_name(part), target)
        except FileNotFoundError:
            continue  # renamed before
    sync_folders({path for path in {(folder / name).parent for name in journal["files"]} if path.is_dir()})
    (folder / JOURNAL).unlink(missing_ok=True)


def _journal(folder: Path) -> dict[str, Any]:
    """What is to be renamed and removed; nothing where there is no journal, or none of ours."""
    try:
        record = strict_json(read_bytes(folder / JOURNAL))
        names = [*record["files"], *record["gone"]]
        known = all(NAME.fullmatch(name) for name in names) and all(
            (part := PART.fullmatch(beside)) and part[1] == Path(name).name for name, beside in record["files"].items()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return dict(record) if known else {}


def _before(folder: Path) -> list[str]:
    """The files of the result that is there, also of one without a manifest or with a damaged one."""
    try:
        if names := listed(folder):
            return list(names)
    except OutputError:
        pass
    try:
        claims = strict_json(read_bytes(folder / SURVEY))["claims"]
        tables = [name for claim in claims for name in claim["sha256"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        tables = []
    known = [REPORT, SETTINGS, *(f"tables/{name}" for name in tables)]
    known += [f"figures/{name.removesuffix('.csv')}.html" for name in tables]
    return [name for name in known if NAME.fullmatch(name)]
