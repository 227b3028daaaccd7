"""Surveys on disk.

A folder holds `survey.json` and `tables/<claim id>.csv`. All files are first written under temporary names and renamed
only when all of them are on disk, survey.json last: a reader sees the old survey or the new one, never a mixture.
"""

import csv
import errno
import hashlib
import io
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from armillary import __version__
from armillary.errors import OutputError
from armillary.results.claim import KINDS, VERDICTS, Claim, Control, Finding, Part, RuleChange, Statistic, Why
from armillary.results.facts import LawCheck, ModelFacts, Provenance, TextFacts, TextLoss, Times
from armillary.results.quantity import Quantity
from armillary.results.survey import Survey
from armillary.results.table import Cell, Column, Table

SCHEMA = 2
# Schema 1 lacks changed rules, reasons, notes and the version of the rules; the rest is the same.
READS = (1, 2)
CLAIM_WORDS = tuple(key for key in Claim.__dataclass_fields__ if key not in ("changes", "kind"))
# A byte-level token can be half a character, which strict UTF-8 cannot encode.
_CODEC = ("utf-8", "surrogatepass")
# CSV has only text, so survey.json records the type of every column; where a column mixes types (an absent number, an
# empty word beside None), it records the first letter of each cell's type.
_TYPES: dict[str, Callable[[str], Cell]] = {"int": int, "float": float, "str": str}
_TYPES |= {"bool": lambda text: text == "True", "none": lambda text: None}
_BY_LETTER = {name[0]: parse for name, parse in _TYPES.items()}


def survey_json(survey: Survey) -> str:
    """The survey as deterministic JSON; NaN and infinities become null."""
    record: dict[str, Any] = {"schema": SCHEMA, "armillary": __version__}
    record |= {key: getattr(survey, key).to_dict() for key in ("model", "text", "provenance")}
    record |= {"thresholds": survey.thresholds, "laws": [law.to_dict() for law in survey.laws]}
    record |= {"claims": [_stored_finding(finding) for finding in survey.findings]}
    record |= {"loss": survey.loss and survey.loss.to_dict()}
    return json_text(record | {"notes": survey.notes, "times": survey.times.to_dict()})


def finding_json(finding: Finding) -> str:
    """One finding, as in the `claims` of survey.json."""
    return json_text(_finding_record(finding))


def table_csv(table: Table) -> str:
    """The table as CSV, with floats in full precision; None is an empty field.

    >>> table_csv(Table((Column("site", "where"), Column("r", "radius")), (("ln1", 0.1), ("ln2", None))))
    'site,r\\nln1,0.1\\nln2,\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.names)
    for row in table.rows:
        cells = [_plain(cell) for cell in row]
        writer.writerow([repr(cell) if isinstance(cell, float) else cell for cell in cells])
    return out.getvalue()


def write_survey(survey: Survey, folder: Path, stored: Container[str] = ()) -> Path:
    """Write tables/ and then survey.json into `folder`; returns the path of survey.json.

    The tables of the claims in `stored` are there already.
    """
    files: dict[Path, str | bytes] = {}
    for finding in survey.findings:
        for name, table in _tables(finding).items() if finding.id not in stored else ():
            path = Path(folder) / "tables" / name
            if path in files:
                raise OutputError(f"two tables would both be written as {path}; rename one of them.")
            files[path] = table_csv(table)
    target = Path(folder) / "survey.json"
    write_whole({**files, target: survey_json(survey)})
    return target


def write_whole(files: Mapping[Path, str | bytes]) -> None:
    """Write all files or none: each under a temporary name first, then renamed in the order given."""
    staged: dict[Path, Path] = {}
    current = Path()
    try:
        for current, content in files.items():
            current.parent.mkdir(parents=True, exist_ok=True)
            staged[current] = current.with_name(f".{current.name}.{secrets.token_hex(4)}.part")
            with staged[current].open("xb") as stream:
                stream.write(content.encode(*_CODEC) if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
        for current, temporary in staged.items():
            os.replace(temporary, current)
        _sync_folders({path.parent for path in staged})
    except OSError as error:
        raise OutputError(why_not(current, error)) from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def check_writable(folder: Path) -> Path:
    """Create the folder and check that a file can be written there, before hours are spent on its content."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(b"armillary")
    except OSError as error:
        raise OutputError(why_not(Path(folder), error)) from error
    return Path(folder)


def read_survey(folder: Path) -> Survey:
    """Read back what `write_survey` wrote; `folder` may also be the path of its survey.json."""
    folder = Path(folder)
    folder = folder.parent if folder.name == "survey.json" else folder
    if not folder.is_dir():
        raise OutputError(f"there is no folder {folder}; give the one that a survey was written to.")
    record = _read_json(folder / "survey.json")
    try:
        return Survey(
            findings=tuple(finding_from(entry, folder / "tables") for entry in record["claims"]),
            model=ModelFacts.from_dict(record["model"]),
            text=TextFacts.from_dict(record["text"]),
            laws=tuple(LawCheck.from_dict(law) for law in record["laws"]),
            provenance=Provenance.from_dict(record["provenance"]),
            thresholds=record["thresholds"],
            times=Times.from_dict(record["times"]),
            notes=tuple(record.get("notes", ())),
            loss=TextLoss.from_dict(record["loss"]) if record.get("loss") else None,
        )
    except OutputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise OutputError(f"{folder}/survey.json is damaged ({why}); run the survey again.") from error


def _read_json(source: Path) -> dict[str, Any]:
    try:
        record = json.loads(source.read_text("utf-8"))
    except FileNotFoundError as error:
        what = f"{source.parent} has no survey.json, which is written when the first claim is decided"
        raise OutputError(f"{what}: the run did not finish; run it again.") from error
    except OSError as error:
        raise OutputError(f"{source} cannot be read ({error.strerror}); check its permissions.") from error
    except ValueError as error:
        raise OutputError(f"{source} is not JSON ({error}); run the survey again.") from error
    if not isinstance(record, dict) or "schema" not in record:
        raise OutputError(f"{source} is JSON but not a survey: it has no schema number; give another folder.")
    if record["schema"] not in READS:
        what = f"{source} has schema {record['schema']!r}, this version reads {' and '.join(map(str, READS))}"
        raise OutputError(f"{what}; update armillary or run the survey again.")
    return record


def why_not(path: Path, error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            reason = "the disk is full; free some space or choose another folder"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            reason = "permission denied; choose a folder that you may write to"
        case errno.EEXIST | errno.ENOTDIR:
            reason = "a file stands where a folder should be; choose another folder"
        case _:
            reason = f"{error.strerror or error}; choose another folder"
    return f"{path} cannot be written: {reason}."


def _sync_folders(folders: set[Path]) -> None:
    # A rename survives a power failure only once its folder is synced; Windows cannot open folders.
    for folder in folders if os.name == "posix" else ():
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class _Ready(str):
    """JSON text, to be stored as it is."""


def _stored_finding(finding: Finding) -> _Ready:
    """A finding as an entry of survey.json, whose every version holds all findings so far: made once for each."""
    # A finding is frozen, and tables make it unhashable: the text is kept with it.
    if "_stored" not in vars(finding):
        vars(finding)["_stored"] = _Ready(_json(_finding_record(finding), 2))
    stored: _Ready = vars(finding)["_stored"]
    return stored


def _finding_record(finding: Finding) -> dict[str, Any]:
    return {
        **asdict(finding.claim),
        "verdict": finding.verdict,
        "why": finding.why.name if finding.why else None,
        "statistic": vars(finding.statistic),
        "controls": [vars(control) for control in finding.controls],
        "parts": [_part_record(part) for part in finding.parts],
        **{key: getattr(finding, key) for key in ("n", "reading", "headline", "caption", "notes", "of_text")},
        "columns": _column_records(finding.table),
        "quantities": [vars(quantity) for quantity in finding.quantities],
        "more_tables": {name: _column_records(table) for name, table in finding.more_tables.items()},
        # Ties the numbers to their tables: a folder assembled from two runs is refused.
        "sha256": {name: _sha256(table_csv(table)) for name, table in _tables(finding).items()},
    }


def _column_records(table: Table) -> list[dict[str, Any]]:
    records = []
    for index, column in enumerate(table.columns):
        cells = [_plain(row[index]) for row in table.rows]
        types = ["none" if cell is None else type(cell).__name__ for cell in cells]
        if not set(types) <= set(_TYPES):
            raise TypeError(f"column {column.name!r} holds {set(types)}; a table holds {', '.join(_TYPES)}")
        record: dict[str, Any] = {**vars(column), "type": types[0] if types else "none"}
        if len(set(types)) > 1:
            record |= {"type": "mixed", "cells": "".join(name[0] for name in types)}
        records.append(record)
    return records


def _tables(finding: Finding) -> dict[str, Table]:
    more = {f"{finding.id}.{name}": table for name, table in finding.more_tables.items()}
    return {file_name(name): table for name, table in {finding.id: finding.table, **more}.items()}


def file_name(name: str, ending: str = ".csv") -> str:
    # Names can come from a survey.json of unknown origin: they must not contain a path.
    return re.sub(r"[^\w.-]+", "-", name).lstrip(".") + ending


def _sha256(content: str) -> str:
    return hashlib.sha256(content.encode(*_CODEC)).hexdigest()


def _plain(value: Any) -> Any:
    """A NumPy or path value as a builtin type; any other type is an error of the caller."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str | Mapping | list | tuple | range):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be stored: {value!r}")


def json_text(value: Any) -> str:
    # backslashreplace writes half a surrogate pair as \udce2, which is also how JSON spells it.
    return (_json(value, 0) + "\n").encode("utf-8", "backslashreplace").decode()


def _json(value: Any, depth: int) -> str:
    """JSON with one entry per line, and lists of plain values on one line, so that diffs stay readable."""
    if isinstance(value, _Ready):
        return value
    value = _plain(value)
    start, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, Mapping):
        inner = [f"{json.dumps(str(k), ensure_ascii=False)}: {_json(v, depth + 1)}" for k, v in value.items()]
        return "{" + start + f",{start}".join(inner) + end + "}" if inner else "{}"
    if isinstance(value, list | tuple | range):
        inner = [_json(v, depth + 1) for v in value]
        if any(isinstance(v, Mapping | list | tuple | np.ndarray | _Ready) for v in value):
            return "[" + start + f",{start}".join(inner) + end + "]"
        return "[" + ", ".join(inner) + "]"
    if isinstance(value, float) and not np.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False)


def finding_from(record: Mapping[str, Any], tables: Path) -> Finding:
    changes = tuple(RuleChange(**entry) for entry in record.get("changes", ()))
    claim = Claim(**{key: record[key] for key in CLAIM_WORDS}, kind=record.get("kind", "behaviour"), changes=changes)
    for verdict in (record["verdict"], *(part["verdict"] for part in record.get("parts", ()))):
        if verdict not in VERDICTS:
            raise ValueError(f"{claim.id} has the verdict {verdict!r}, known: {', '.join(VERDICTS)}")
    if claim.kind not in KINDS:
        raise ValueError(f"{claim.id} is of the kind {claim.kind!r}, known: {', '.join(KINDS)}")
    files = {name: tables / file_name(f"{claim.id}.{name}") for name in record["more_tables"]}
    return Finding(
        claim=claim,
        statistic=Statistic(**_with_nan(record["statistic"])),
        controls=tuple(Control(**_with_nan(entry)) for entry in record["controls"]),
        table=_table(record["columns"], tables / file_name(claim.id), record),
        quantities=tuple(_quantity(entry) for entry in record["quantities"]),
        notes=tuple(record["notes"]),
        parts=tuple(_part(entry) for entry in record.get("parts", ())),
        why=Why[record["why"]] if record.get("why") else None,
        more_tables={n: _table(columns, files[n], record) for n, columns in record["more_tables"].items()},
        of_text=record.get("of_text", True),
        **{key: record[key] for key in ("verdict", "n", "reading", "headline", "caption")},
    )


def _part_record(part: Part) -> dict[str, Any]:
    statistic = None if part.statistic is None else vars(part.statistic)
    return {**vars(part), "statistic": statistic, "why": part.why.name if part.why else None}


def _part(record: Mapping[str, Any]) -> Part:
    statistic = None if record["statistic"] is None else Statistic(**_with_nan(record["statistic"]))
    return Part(**{**record, "statistic": statistic, "why": Why[record["why"]] if record["why"] else None})


def _with_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: float("nan") if value is None else value for key, value in record.items()}


def _quantity(record: Mapping[str, Any]) -> Quantity:
    def array(values: Any) -> Any:
        return None if values is None else np.array(values, dtype=np.float64)

    fields: dict[str, Any] = {key: record[key] for key in ("name", "meaning", "unit", "label")}
    fields |= {key: tuple(record[key]) for key in ("axes", "logs")}
    fields |= {key: array(record[key]) for key in ("values", "low", "high")}
    fields |= {key: {n: array(v) for n, v in record[key].items()} for key in ("controls", "theory")}
    return Quantity(**fields, coords={axis: tuple(labels) for axis, labels in record["coords"].items()})


def _table(columns: Sequence[Mapping[str, Any]], path: Path, record: Mapping[str, Any]) -> Table:
    try:
        content = path.read_bytes().decode(*_CODEC)
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); run the survey again.") from error
    if _sha256(content) != record["sha256"][path.name]:
        raise OutputError(f"{path} is not the table that its survey.json belongs to; run the survey again.")
    rows = list(csv.reader(io.StringIO(content, newline="")))[1:]
    parsers = [
        [_TYPES[c["type"]]] * len(rows) if "cells" not in c else [_BY_LETTER[letter] for letter in c["cells"]]
        for c in columns
    ]
    return Table(
        columns=tuple(Column(c["name"], c["meaning"], c["unit"]) for c in columns),
        rows=tuple(
            tuple(parse[index](text) for text, parse in zip(row, parsers, strict=True))
            for index, row in enumerate(rows)
        ),
    )
