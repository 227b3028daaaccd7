"""Which surveys are these, what do they not share, and what can be read of one that another version wrote?"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results import store
from armillary.results.claim import VERDICTS, Claim, Finding, Statistic
from armillary.results.survey import Survey
from armillary.results.table import Table

# A tenth more text changes no interval that one could see.
_LIKE = 1.1


def survey_names(a: Survey, b: Survey) -> tuple[str, str]:
    """What to call the two: their models, and where those are alike the first thing that is not."""
    named = [str(survey.model.get("name") or "a model") for survey in (a, b)]
    if named[0] != named[1]:
        short = [name.rstrip("/").rpartition("/")[2] for name in named]
        return (named[0], named[1]) if short[0] == short[1] else (short[0], short[1])
    for mapping, key, after in (
        ("provenance", "dtype", ""),
        ("text", "tokens", " tokens"),
        ("text", "source", ""),
        ("model", "fingerprint", ""),
        ("provenance", "seed", " as seed"),
    ):
        ours = [getattr(survey, mapping).get(key) for survey in (a, b)]
        if ours[0] != ours[1] and None not in ours:
            said = [f"{one:,}{after}" if isinstance(one, int) else f"{one}{after}" for one in ours]
            return f"{named[0]} ({said[0]})", f"{named[1]} ({said[1]})"
    return f"{named[0]} (A)", f"{named[1]} (B)"


def unlike_shapes(a: Survey, b: Survey) -> dict[str, str]:
    """Why layers or heads have no counterparts: L3 of 7 layers is not L3 of 30."""
    made: dict[str, str] = {}
    for key in ("layers", "heads"):
        ours = [survey.model.get(key) for survey in (a, b)]
        if None not in ours and ours[0] != ours[1]:
            made[key] = f"A has {ours[0]} {key}, B {ours[1]}"
    return made


def survey_notes(a: Survey, b: Survey) -> tuple[str, ...]:
    """What the surveys do not share, most important first."""
    notes = []
    shapes = unlike_shapes(a, b)
    if shapes:
        why = "; ".join(dict.fromkeys(shapes.values()))
        notes.append(
            f"{why}: only claims as a whole are compared, not their {', '.join(f'{kind}s' for kind in shapes)}"
        )
    elif a.model.get("fingerprint") != b.model.get("fingerprint"):
        notes.append(
            "rows are matched by place; unless one model was trained on from the other, two heads of the same place are not "
            "the same head"
        )
    tokens = [n for n in (survey.text.get("tokens") for survey in (a, b)) if isinstance(n, int) and n > 0]
    if len(tokens) == 2 and max(tokens) > _LIKE * min(tokens):
        notes.append(
            f"A read {tokens[0]:,} tokens, B {tokens[1]:,}: intervals have other widths, and statistics that grow or shrink "
            "with the amount of text (dimensions, extremes, counts) may differ for that reason alone"
        )
    sources = [survey.text.get("source") for survey in (a, b)]
    if sources[0] != sources[1]:
        notes.append(f"A read {sources[0]!r}, B {sources[1]!r}: what differs may be the text")
    if a.thresholds != b.thresholds:
        keys = [k for k in {**a.thresholds, **b.thresholds} if a.thresholds.get(k) != b.thresholds.get(k)]
        moved = [k for k in keys if k in a.thresholds and k in b.thresholds]
        if moved:
            notes.append(f"verdicts were decided with other thresholds: {', '.join(moved)}")
    for said, key in (("seeds", "seed"), ("dtypes", "dtype"), ("devices", "device")):
        ours = [survey.provenance.get(key) for survey in (a, b)]
        if ours[0] != ours[1]:
            notes.append(f"the {said} differ: {ours[0]} and {ours[1]}")
    if a.provenance.get("versions") != b.provenance.get("versions"):
        notes.append(f"the versions differ: {_versions(a.provenance, b.provenance)}")
    for side, mine, other in (("A", a, b), ("B", b, a)):
        only = [finding.id for finding in mine if finding.id not in {f.id for f in other}]
        if only:
            notes.append(f"only {side} measured {', '.join(only)}")
    return tuple(notes)


def _versions(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    both = [side.get("versions") or {} for side in (a, b)]
    keys = [key for key in {**both[0], **both[1]} if both[0].get(key) != both[1].get(key)]
    return ", ".join(f"{key} {both[0].get(key, 'none')} and {both[1].get(key, 'none')}" for key in keys)


def read_loosely(folder: Path) -> tuple[Survey, tuple[str, ...]]:
    """A stored survey; one of another schema as far as it can be understood, with notes on what was lost."""
    folder = Path(folder)
    folder = folder.parent if folder.name == "survey.json" else folder
    try:
        return store.read_survey(folder), ()
    except OutputError as error:
        record = _other_schema(folder / "survey.json")
        if record is None:
            raise
        refused = error
    findings: list[Finding] = []
    numbers, lost = [], []
    claims = record.get("claims")
    for entry in claims if isinstance(claims, list) else []:
        try:
            findings.append(store._finding(entry, folder / "tables"))
            continue
        except (OutputError, KeyError, TypeError, ValueError, AttributeError, IndexError):
            bare = _bare(entry)
        if bare is None:
            lost.append(
                str(entry.get("id", "one without an id")) if isinstance(entry, Mapping) else "one that is no claim"
            )
        else:
            findings.append(bare)
            numbers.append(bare.id)
    if not findings:
        raise refused
    kept = {key: _mapping(record.get(key)) for key in ("model", "text", "provenance", "thresholds", "times")}
    laws = record.get("laws")
    survey = Survey(tuple(findings), laws=tuple(laws) if isinstance(laws, list) else (), **kept)
    return survey, _losses(folder, record, numbers, lost)


def _losses(folder: Path, record: Mapping[str, Any], numbers: list[str], lost: list[str]) -> tuple[str, ...]:
    said = f"{folder} has schema {record['schema']!r}, this version writes {store.SCHEMA}: what it shares was compared"
    notes = [said]
    if numbers:
        notes.append(f"of {folder} only verdict and number could be read for {', '.join(numbers)}")
    if lost:
        notes.append(f"of {folder} these claims could not be read: {', '.join(lost)}")
    return tuple(notes)


def _other_schema(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(record, dict) and record.get("schema", store.SCHEMA) != store.SCHEMA
    return record if known else None


def _bare(entry: Any) -> Finding | None:
    """Verdict and number alone, of a record that says at least those."""
    if not isinstance(entry, Mapping) or entry.get("verdict") not in VERDICTS or not isinstance(entry.get("id"), str):
        return None
    number = _mapping(entry.get("statistic"))
    if not isinstance(number.get("value"), int | float):
        return None
    low, high = (float(number[k]) if isinstance(number.get(k), int | float) else math.nan for k in ("low", "high"))
    statistic = Statistic(
        str(number.get("name") or ""), float(number["value"]), low, high, str(number.get("unit") or "")
    )
    claim = Claim(**{key: str(entry.get(key) or "") for key in store._CLAIM_WORDS})
    n, (reading, headline) = entry.get("n"), (str(entry.get(key) or "") for key in ("reading", "headline"))
    size = n if isinstance(n, int) else 0
    return Finding(claim, entry["verdict"], statistic, size, (), reading, headline, Table((), ()))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
