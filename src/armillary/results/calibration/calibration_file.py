"""A calibration on disk: calibration.json, which a study writes and the package ships."""

import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from armillary import __version__
from armillary.errors import OutputError
from armillary.results.calibration.counts import Calibration, Counts, UntrainedReading
from armillary.results.calibration.run_list import CalibrationStudy, Planted
from armillary.results.store import json_text

SCHEMA = 1
NAME = "calibration.json"
_FACTS = ("runs", "errors", "rules_version", "rules", "date", "versions", "shapes", "kinds")


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
        record = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); run armillary calibrate first.") from error
    except ValueError as error:
        raise OutputError(f"{path} is not JSON ({error}); run armillary calibrate again.") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or "study" not in record:
        raise OutputError(f"{path} is not a calibration of schema {SCHEMA}; run armillary calibrate again.")
    try:
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
