"""A finding from its record in survey.json and its tables, and the form that such a record must have."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import OutputError
from armillary.results.claim import (
    CHAPTERS,
    KINDS,
    VERDICTS,
    Claim,
    Finding,
    Part,
    Rewording,
    RuleChange,
    Why,
)
from armillary.results.disk import schema as s
from armillary.results.disk.cells import TYPES, file_name, table_from
from armillary.results.disk.files import CODEC, read_bytes, sha256
from armillary.results.disk.possible import check_possible
from armillary.results.limit import DECIDES, SIDES, Limit, Prediction
from armillary.results.quantity import Quantity
from armillary.results.statistic import Control, Statistic
from armillary.results.survey_facts import LawCheck, ModelFacts, Plan, Provenance, TextFacts, TextLoss, Times
from armillary.results.table import Table

_LATER = ("changes", "kind", "question", "rewordings")
CLAIM_WORDS = tuple(key for key in Claim.__dataclass_fields__ if key not in _LATER)
QUOTED = 3
"""Since this schema, cells that begin like formulas are written as text."""


def _ordered(value: Any, at: str) -> None:
    low, high = value.get("low"), value.get("high")
    if low is not None and high is not None and low > high:
        raise ValueError(f"{at} has an interval from {low} to {high}, which is not an interval")


def _both(*checks: s.Check) -> s.Check:
    def check(value: Any, at: str) -> None:
        for test in checks:
            test(value, at)

    return check


def _decided(value: Any, at: str) -> None:
    # Surveys of schema 1 give no reasons.
    if "why" in value and (value["verdict"] in ("undecided", "failed")) != (value.get("why") is not None):
        raise ValueError(f"{at} has the verdict {value['verdict']!r} and the reason {value.get('why')!r}")
    if (value["verdict"] == "failed") != (value.get("why") == Why.FAILED.name) and "why" in value:
        raise ValueError(f"{at} has the verdict {value['verdict']!r} and the reason {value.get('why')!r}")


def _held(value: Any, at: str) -> None:
    """A model that breaks a law is refused before anything is measured."""
    error, tolerance = value.get("error"), value.get("tolerance")
    if error is not None and tolerance is not None and error > tolerance:
        raise ValueError(f"{at} is a law that fails by {error:g}, beyond {tolerance:g}, so its model would be refused")


def _label(value: Any, at: str) -> None:
    (s.text if isinstance(value, str) else s.number())(value, at)


_NUMBER = s.number(null=True)
_INTERVAL = {"name": s.text, "value": _NUMBER, "low": _NUMBER, "high": _NUMBER}
_STATISTIC = _both(s.record({**_INTERVAL, "unit": s.text}), _ordered)
_VERDICT = s.one_of(VERDICTS, f"one of {', '.join(VERDICTS)}")
_WHY = s.optional(s.one_of(tuple(Why.__members__), "a known reason"))
_COLUMN = s.record(
    {"name": s.text, "meaning": s.text, "unit": s.text, "type": s.one_of((*TYPES, "mixed"), "a type of cells")},
    {"cells": s.text},
)
_QUANTITY = s.record(
    {
        **dict.fromkeys(("name", "meaning", "unit", "label"), s.text),
        **dict.fromkeys(("axes", "logs"), s.listed(s.text)),
        **dict.fromkeys(("values", "low", "high"), s.numbers),
        **dict.fromkeys(("controls", "theory"), s.mapped(s.numbers)),
        "coords": s.mapped(s.listed(_label)),
    }
)
_PART = s.record(
    {"name": s.text, "verdict": _VERDICT, "reading": s.text, "statistic": s.optional(_STATISTIC)},
    {"asserted": s.flag, "why": _WHY},
)
_LIMIT = s.record(
    {
        "value": s.number(),
        "side": s.one_of(SIDES, f"one of {', '.join(SIDES)}"),
        **dict.fromkeys(("meaning", "part"), s.text),
        "decides": s.one_of(DECIDES, f"one of {', '.join(DECIDES)}"),
        "measured": s.optional(_STATISTIC),
    }
)
_CLAIM = _both(
    s.record(
        {
            **dict.fromkeys(CLAIM_WORDS, s.text),
            "chapter": s.one_of(CHAPTERS, f"one of {', '.join(CHAPTERS)}"),
            "verdict": _VERDICT,
            "statistic": _STATISTIC,
            "controls": s.listed(_both(s.record(_INTERVAL), _ordered)),
            "n": s.whole(0),
            **dict.fromkeys(("reading", "headline", "caption"), s.text),
            "notes": s.listed(s.text),
            "columns": s.listed(_COLUMN),
            "quantities": s.listed(_QUANTITY),
            "more_tables": s.mapped(s.listed(_COLUMN)),
            "sha256": s.mapped(s.text),
        },
        {
            "kind": s.one_of(KINDS, f"one of {', '.join(KINDS)}"),
            "changes": s.listed(s.record({"date": s.text, "reason": s.text})),
            "question": s.text,
            "rewordings": s.listed(s.record({"date": s.text, "before": s.text, "changes": s.whole(0)})),
            "why": _WHY,
            "parts": s.listed(_PART),
            "of_text": s.flag,
            "limits": s.listed(_LIMIT),
            "prediction": s.optional(s.record({"value": s.number(), "meaning": s.text})),
        },
    ),
    _decided,
)


def _version(value: Any, at: str) -> None:
    s.text(value, at)
    # Surveys before schema 3 may lack their version.
    if value and not re.fullmatch(r"\d+\.\d+[\w.+-]*", value, re.ASCII):
        raise s.wrong(at, value, "a version")


_PLAN = s.facts(Plan)
_LAW = _both(s.facts(LawCheck, error=s.number(0, null=True), tolerance=s.number(0, null=True)), _held)
_SURVEY = {
    "schema": s.whole(1),
    "armillary": _version,
    "model": s.facts(ModelFacts),
    "text": s.facts(TextFacts),
    "provenance": s.facts(Provenance, seed=s.whole()),
    "thresholds": s.mapped(_NUMBER),
    "laws": s.listed(_LAW),
    "claims": s.listed(_CLAIM),
    "notes": s.listed(s.text),
    "times": s.facts(Times, claims=s.mapped(s.number(0)), plan=s.optional(_PLAN), seconds=s.number(0)),
}
_LOSS = s.facts(TextLoss)


def check_survey(record: Mapping[str, Any]) -> None:
    """A `ValueError` that names the first field that no survey can have."""
    # Surveys of earlier schemas lack fields that came later.
    later = () if record["schema"] >= QUOTED else ("armillary", "notes", "laws", "times", "thresholds", "provenance")
    known = {name: check for name, check in _SURVEY.items() if name not in later}
    s.record(known, {**{name: _SURVEY[name] for name in later}, "loss": s.optional(_LOSS)})(record, "")
    names = [claim["id"] for claim in record["claims"]]
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f"it contains the claim {doubled[0]} twice")
    timed = record.get("times", {}).get("claims", {})
    if timed and set(timed) != set(names):
        other = sorted(set(timed) ^ set(names))[0]
        raise ValueError(
            f"the claim {other} is {'missing' if other in timed else 'there, and no time was taken of it'}"
        )
    if record["schema"] >= QUOTED:
        check_possible(record)


def finding_from(record: Mapping[str, Any], find: Callable[[str], Path], version: int = QUOTED) -> Finding:
    """`find` says where a table of this name is."""
    claim = Claim(
        **{key: record[key] for key in CLAIM_WORDS},
        kind=record.get("kind", "behaviour"),
        changes=tuple(RuleChange(**entry) for entry in record.get("changes", ())),
        question=record.get("question", ""),
        rewordings=tuple(Rewording(**entry) for entry in record.get("rewordings", ())),
    )

    def table(columns: Sequence[Mapping[str, Any]], name: str) -> Table:
        return _table(columns, find(file_name(name)), record["sha256"][file_name(name)], version >= QUOTED)

    return Finding(
        claim=claim,
        statistic=Statistic(**_with_nan(record["statistic"])),
        controls=tuple(Control(**_with_nan(entry)) for entry in record["controls"]),
        table=table(record["columns"], claim.id),
        quantities=tuple(_quantity(entry) for entry in record["quantities"]),
        notes=tuple(record["notes"]),
        parts=tuple(_part(entry) for entry in record.get("parts", ())),
        why=Why[record["why"]] if record.get("why") else None,
        more_tables={n: table(columns, f"{claim.id}.{n}") for n, columns in record["more_tables"].items()},
        of_text=record.get("of_text", True),
        limits=tuple(_limit(entry) for entry in record.get("limits", ())),
        prediction=Prediction(**record["prediction"]) if record.get("prediction") else None,
        **{key: record[key] for key in ("verdict", "n", "reading", "headline", "caption")},
    )


def check_claim(record: Any) -> None:
    """A `ValueError` where a record is not one of a claim."""
    _CLAIM(record, "it")


def _part(record: Mapping[str, Any]) -> Part:
    statistic = None if record["statistic"] is None else Statistic(**_with_nan(record["statistic"]))
    return Part(**{**record, "statistic": statistic, "why": Why[record["why"]] if record.get("why") else None})


def _limit(record: Mapping[str, Any]) -> Limit:
    measured = None if record["measured"] is None else Statistic(**_with_nan(record["measured"]))
    return Limit(**{**record, "measured": measured})


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


def _table(columns: Sequence[Mapping[str, Any]], path: Path, digest: str, quoted: bool) -> Table:
    try:
        content = read_bytes(path).decode(*CODEC)
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); run the survey again.") from error
    if sha256(content) != digest:
        raise OutputError(f"{path} is not the table that survey.json refers to; run the survey again.")
    return table_from(columns, content, quoted)
