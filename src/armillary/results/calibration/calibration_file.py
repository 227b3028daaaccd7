"""A calibration on disk: calibration.json, which a study writes and the package ships."""

import re
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from armillary import __version__
from armillary.errors import OutputError
from armillary.results.calibration.counts import Calibration, Counts, UntrainedReading
from armillary.results.calibration.run_list import PARTS, CalibrationStudy, Planted
from armillary.results.claim import VERDICTS
from armillary.results.disk import schema as s
from armillary.results.disk.files import read_json
from armillary.results.store import json_text

SCHEMA = 1
NAME = "calibration.json"
_FACTS = ("runs", "errors", "rules_version", "rules", "date", "versions", "shapes", "kinds")
_VERDICT = s.one_of(VERDICTS, f"one of {', '.join(VERDICTS)}")
_PART = s.one_of(PARTS, f"one of {', '.join(PARTS)}")


def _verdicts(value: Any, at: str) -> None:
    s.mapped(s.whole(0))(value, at)
    for verdict in value:
        _VERDICT(verdict, f"a verdict of {at}")


def _date(value: Any, at: str) -> None:
    s.text(value, at)
    if value and not re.fullmatch(r"\d{4}-\d\d-\d\d.*", value):
        raise s.wrong(at, value, "a date")


_FORM = s.record(
    {
        "schema": s.whole(1),
        "armillary": s.text,
        "study": s.facts(CalibrationStudy),
        "runs": s.whole(0),
        "errors": s.listed(s.text),
        "rules_version": s.text,
        "rules": s.mapped(s.text),
        "date": _date,
        "versions": s.mapped(s.text),
        "shapes": s.anything,
        "kinds": s.mapped(s.text),
        "cases": s.listed(s.facts(Planted, verdict=_VERDICT, matters=s.number(0, 1))),
        "counts": s.listed(s.facts(Counts, part=_PART, verdicts=_verdicts, strength=s.number(0, 1))),
        "readings": s.listed(s.facts(UntrainedReading, verdict=_VERDICT)),
    },
    {"texts": s.anything},
)


def calibration_json(calibration: Calibration) -> str:
    """Counts alone: every rate and interval follows from them."""
    record: dict[str, Any] = {"schema": SCHEMA, "armillary": __version__, "study": calibration.study.to_dict()}
    record |= {key: getattr(calibration, key) for key in (*_FACTS, "texts")}
    record |= {key: [asdict(entry) for entry in getattr(calibration, key)] for key in ("cases", "counts", "readings")}
    return json_text(record)


def read_calibration(path: Path) -> Calibration:
    """Read back what `calibration_json` wrote; `path` is the file or its folder."""
    path = path / NAME if path.is_dir() else path
    try:
        record = read_json(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); run armillary calibrate first.") from error
    except ValueError as error:
        raise OutputError(f"{path} is not JSON ({error}); run armillary calibrate again.") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or "study" not in record:
        raise OutputError(f"{path} is not a calibration of schema {SCHEMA}; run armillary calibrate again.")
    try:
        _FORM(record, "")
        return Calibration(
            study=CalibrationStudy.from_dict(record["study"]),
            counts=tuple(Counts(**entry) for entry in record["counts"]),
            cases=tuple(_case(entry) for entry in record["cases"]),
            readings=tuple(UntrainedReading(**entry) for entry in record["readings"]),
            texts=record.get("texts", {}),
            **{**{key: record[key] for key in _FACTS}, "errors": tuple(record["errors"])},
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise OutputError(f"{path} is damaged ({reason}); run armillary calibrate again.") from error


@cache
def shipped() -> Calibration | None:
    """The calibration that comes with the package."""
    path = Path(str(files("armillary") / "builtin" / NAME))
    return read_calibration(path) if path.is_file() else None


def _case(record: dict[str, Any]) -> Planted:
    return Planted(**{**record, "strengths": tuple(record["strengths"])})
