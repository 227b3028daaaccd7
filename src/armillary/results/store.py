"""Surveys on disk.

A folder holds survey.json, tables/<claim id>.csv, pictures made from them, and manifest.json with the SHA-256 of each.
They change together (`swap`): a reader sees the old survey or the new one, never a mixture.
"""

import json
import os
from collections.abc import Container, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import OutputError
from armillary.results.claim import Finding, Part
from armillary.results.disk.cells import column_records, plain
from armillary.results.disk.cells import file_name as file_name
from armillary.results.disk.cells import table_csv as table_csv
from armillary.results.disk.files import check_writable as check_writable
from armillary.results.disk.files import read_bytes, sha256, strict_json
from armillary.results.disk.files import why_not as why_not
from armillary.results.disk.files import write_whole as write_whole
from armillary.results.disk.finding_records import QUOTED, check_survey, finding_from
from armillary.results.disk.folder_swap import JOURNAL, PASS, SETTINGS, SURVEY, listed, there, write_result
from armillary.results.limit import Limit
from armillary.results.survey import Survey
from armillary.results.survey_facts import LawCheck, ModelFacts, Provenance, TextFacts, TextLoss, Times
from armillary.results.table import Table

SCHEMA = QUOTED
# Schema 1 lacks changed rules, reasons, notes and the version of the rules; schema 2 wrote formulas as they were.
READS = (1, 2, 3)
ATTEMPTS = 5


def survey_json(survey: Survey) -> str:
    """The survey as deterministic JSON; NaN and infinities become null."""
    record: dict[str, Any] = {"schema": SCHEMA, "armillary": survey.version}
    record |= {key: getattr(survey, key).to_dict() for key in ("model", "text", "provenance")}
    record |= {"thresholds": survey.thresholds, "laws": [law.to_dict() for law in survey.laws]}
    record |= {"claims": [_stored_finding(finding) for finding in survey.findings]}
    record |= {"loss": survey.loss and survey.loss.to_dict()}
    return json_text(record | {"notes": survey.notes, "times": survey.times.to_dict()})


def finding_json(finding: Finding) -> str:
    """One finding, as in the `claims` of survey.json."""
    return json_text(_finding_record(finding))


def write_survey(survey: Survey, folder: Path, stored: Container[str] = (), goes_on: bool = False) -> Path:
    """Make this survey the result in `folder`: tables/ and survey.json; returns the path of survey.json.

    The tables of the claims in `stored` are there already. Pictures of the result before go, and so do its settings,
    unless this survey `goes_on` with it.
    """
    files: dict[str, str | bytes] = {}
    unchanged: dict[str, str] = {}
    if (begun := Path(folder) / PASS / SETTINGS).exists():
        files[SETTINGS] = read_bytes(begun)
    elif goes_on and SETTINGS in (before := listed(folder)):
        unchanged[SETTINGS] = before[SETTINGS]
    for finding in survey.findings:
        for name, table in _tables(finding).items():
            path = f"tables/{name}"
            if path in files or path in unchanged:
                raise OutputError(f"two tables would both be written as {Path(folder) / path}; rename one of them.")
            if finding.id in stored:
                unchanged[path] = _hashes(finding)[name]
            else:
                files[path] = table_csv(table)
    write_result(folder, {**files, SURVEY: survey_json(survey)}, unchanged)
    return Path(folder) / SURVEY


def read_survey(folder: Path) -> Survey:
    """Read back what `write_survey` wrote; `folder` may also be the path of its survey.json."""
    folder = Path(folder)
    folder = folder.parent if folder.name == SURVEY else folder
    if not os.path.isdir(folder):
        raise OutputError(f"there is no folder {folder}; give the one that a survey was written to.")
    for _ in range(ATTEMPTS):
        before = _version(folder)
        try:
            return _read_survey(folder)
        except OutputError:
            # What a survey under way has just replaced is read again.
            if _version(folder) == before:
                raise
    return _read_survey(folder)


def _version(folder: Path) -> tuple[object, ...]:
    """Changes whenever the folder's result does."""
    states = (os.stat(path) for path in (folder / SURVEY, folder / JOURNAL) if path.exists())
    return tuple((state.st_ino, state.st_mtime_ns) for state in states)


def _read_survey(folder: Path) -> Survey:
    find = there(folder)
    record = _read_json(find(SURVEY), listed(folder).get(SURVEY))
    try:
        check_survey(record)
        return Survey(
            findings=tuple(
                finding_from(entry, lambda name: find(f"tables/{name}"), record["schema"]) for entry in record["claims"]
            ),
            model=ModelFacts.from_dict(record["model"]),
            text=TextFacts.from_dict(record["text"]),
            laws=tuple(LawCheck.from_dict(law) for law in record["laws"]),
            provenance=Provenance.from_dict(record["provenance"]),
            thresholds=record["thresholds"],
            times=Times.from_dict(record["times"]),
            notes=tuple(record.get("notes", ())),
            loss=TextLoss.from_dict(record["loss"]) if record.get("loss") else None,
            version=record.get("armillary", ""),
        )
    except OutputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise OutputError(f"{folder}/survey.json is damaged ({why}); run the survey again.") from error


def _read_json(source: Path, digest: str | None) -> dict[str, Any]:
    try:
        content = read_bytes(source)
        record = strict_json(content)
    except FileNotFoundError as error:
        what = f"{source.parent} has no survey.json, which is written when the first claim is decided"
        raise OutputError(f"{what}: the run did not finish; run it again.") from error
    except OSError as error:
        raise OutputError(f"{source} cannot be read ({error.strerror}); check its permissions.") from error
    except ValueError as error:
        raise OutputError(f"{source} is not JSON ({error}); run the survey again.") from error
    if not isinstance(record, dict) or "schema" not in record:
        raise OutputError(f"{source} is JSON but not a survey: it has no schema number; give another folder.")
    if record["schema"] not in READS or isinstance(record["schema"], bool | float):
        known = f"{', '.join(map(str, READS[:-1]))} and {READS[-1]}"
        what = f"{source} has schema {str(record['schema'])[:40]!r}, this version reads {known}"
        raise OutputError(f"{what}; update armillary or run the survey again.")
    if digest is not None and sha256(content) != digest:
        raise OutputError(f"{source} does not match manifest.json (its SHA-256 differs); run the survey again.")
    return record


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
        "limits": [_limit_record(limit) for limit in finding.limits],
        "prediction": None if finding.prediction is None else vars(finding.prediction),
        **{key: getattr(finding, key) for key in ("n", "reading", "headline", "caption", "notes", "of_text")},
        "columns": column_records(finding.table),
        "quantities": [vars(quantity) for quantity in finding.quantities],
        "more_tables": {name: column_records(table) for name, table in finding.more_tables.items()},
        # Ties the numbers to their tables: a folder assembled from two runs is refused.
        "sha256": _hashes(finding),
    }


def _hashes(finding: Finding) -> dict[str, str]:
    """The SHA-256 of each table's file, made once for each finding."""
    if "_hashes" not in vars(finding):
        vars(finding)["_hashes"] = {name: sha256(table_csv(table)) for name, table in _tables(finding).items()}
    hashes: dict[str, str] = vars(finding)["_hashes"]
    return hashes


def _tables(finding: Finding) -> dict[str, Table]:
    more = {f"{finding.id}.{name}": table for name, table in finding.more_tables.items()}
    return {file_name(name): table for name, table in {finding.id: finding.table, **more}.items()}


def json_text(value: Any) -> str:
    # backslashreplace writes half a surrogate pair as \udce2, which is also how JSON spells it.
    return (_json(value, 0) + "\n").encode("utf-8", "backslashreplace").decode()


def _json(value: Any, depth: int) -> str:
    """JSON with one entry per line, and lists of plain values on one line, so that diffs stay readable."""
    if isinstance(value, _Ready):
        return value
    value = plain(value)
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


def _limit_record(limit: Limit) -> dict[str, Any]:
    return {**vars(limit), "measured": None if limit.measured is None else vars(limit.measured)}


def _part_record(part: Part) -> dict[str, Any]:
    statistic = None if part.statistic is None else vars(part.statistic)
    return {**vars(part), "statistic": statistic, "why": part.why.name if part.why else None}
