"""What two surveys are called, in what they differ as a whole, and how a survey of another version is read."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from armillary.errors import OutputError
from armillary.results import store
from armillary.results.claim import VERDICTS, Claim, Finding
from armillary.results.disk.files import read_bytes, sha256, strict_json
from armillary.results.disk.finding_records import CLAIM_WORDS, check_claim, finding_from
from armillary.results.disk.folder_swap import SURVEY, listed
from armillary.results.disk.schema import facts
from armillary.results.statistic import Statistic
from armillary.results.survey import Survey
from armillary.results.survey_facts import Facts, ModelFacts, Provenance, TextFacts, Times
from armillary.results.table import Table

_F = TypeVar("_F", bound=Facts)
# A tenth more text changes no interval visibly.
_LIKE = 1.1


def survey_names(a: Survey, b: Survey) -> tuple[str, str]:
    """The names of the two models, with the first setting that differs where the models have the same name."""
    named = [survey.model.name for survey in (a, b)]
    if named[0] != named[1]:
        short = [name.rstrip("/").rpartition("/")[2] for name in named]
        return (named[0], named[1]) if short[0] == short[1] else (short[0], short[1])
    differences = (
        [survey.provenance.dtype for survey in (a, b)],
        [f"{survey.text.tokens:,} tokens" for survey in (a, b)],
        [survey.text.source for survey in (a, b)],
        [survey.model.fingerprint for survey in (a, b)],
        [f"seed {survey.provenance.seed}" for survey in (a, b)],
    )
    for first, second in differences:
        if first != second and first and second:
            return f"{named[0]} ({first})", f"{named[1]} ({second})"
    return f"{named[0]} (A)", f"{named[1]} (B)"


def unlike_shapes(a: Survey, b: Survey) -> dict[str, str]:
    """Why layers or heads have no counterparts: layer 3 of 7 is not layer 3 of 30."""
    sizes = {"layers": (a.model.layers, b.model.layers), "heads": (a.model.heads, b.model.heads)}
    return {kind: f"A has {m} {kind}, B {n}" for kind, (m, n) in sizes.items() if m != n and m and n}


def survey_notes(a: Survey, b: Survey) -> tuple[str, ...]:
    """Differences between the surveys, most important first."""
    notes = []
    shapes = unlike_shapes(a, b)
    if shapes:
        why = "; ".join(dict.fromkeys(shapes.values()))
        notes.append(
            f"{why}: layers are matched by relative depth, heads are not compared"
            if "layers" in shapes
            else f"{why}: heads are not compared"
        )
    elif a.model.fingerprint != b.model.fingerprint:
        notes.append(
            "rows are matched by position; unless one model was trained from the other, two heads at the same position "
            "are not the same head"
        )
    tokens = (a.text.tokens, b.text.tokens)
    if min(tokens) and max(tokens) > _LIKE * min(tokens):
        notes.append(
            f"A read {tokens[0]:,} tokens, B {tokens[1]:,}: intervals have other widths, and statistics that depend on "
            "the amount of text (dimensions, extremes, counts) may differ for that reason alone"
        )
    if a.text.source != b.text.source:
        notes.append(f"A read {a.text.source!r}, B {b.text.source!r}: differences may come from the text")
    moved = [key for key, value in a.thresholds.items() if b.thresholds.get(key, value) != value]
    if moved:
        notes.append(f"verdicts were decided with other thresholds: {', '.join(moved)}")
    record_a, record_b = a.provenance, b.provenance
    for what, first, second in (
        ("rules", record_a.rules_version or "not recorded", record_b.rules_version or "not recorded"),
        ("seeds", record_a.seed, record_b.seed),
        ("dtypes", record_a.dtype, record_b.dtype),
        ("devices", record_a.device, record_b.device),
    ):
        if first != second:
            notes.append(f"the {what} differ: {first} and {second}")
    if record_a.versions != record_b.versions:
        notes.append(f"the versions differ: {_versions(record_a.versions, record_b.versions)}")
    for side, mine, other in (("A", a, b), ("B", b, a)):
        only = [finding.id for finding in mine if finding.id not in {f.id for f in other}]
        if only:
            notes.append(f"only {side} measured {', '.join(only)}")
    return tuple(notes)


def _versions(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return ", ".join(f"{key} {a.get(key, 'none')} and {b.get(key, 'none')}" for key in keys)


def read_loosely(folder: Path) -> tuple[Survey, tuple[str, ...]]:
    """A stored survey. One of a later schema is read as far as possible, with notes on what was lost."""
    folder = Path(folder)
    folder = folder.parent if folder.name == SURVEY else folder
    try:
        return store.read_survey(folder), ()
    except OutputError as error:
        record = _later_schema(folder)
        if record is None:
            raise
        refused = error
    findings, numbers, lost = _findings(folder, record.get("claims"))
    if not findings or len({finding.id for finding in findings}) < len(findings):
        raise refused
    unread = [key for key in ("laws", "loss", "notes") if record.get(key)]
    thresholds = _mapping(record.get("thresholds"))
    survey = Survey(
        tuple(findings),
        model=_facts(ModelFacts, record, "model", unread, name="unknown model"),
        text=_facts(TextFacts, record, "text", unread, source="unknown text"),
        laws=(),
        provenance=_facts(Provenance, record, "provenance", unread),
        thresholds={name: value for name, value in thresholds.items() if _number(value) == value},
        times=Times.from_dict({}),
    )
    losses = {
        "only verdict and number could be read for": numbers,
        "these claims could not be read:": lost,
        "these were not read:": unread,
    }
    first = f"{folder} has schema {record['schema']}, this version writes {store.SCHEMA}: what both have was compared"
    return survey, (first, *(f"of {folder} {what} {', '.join(names)}" for what, names in losses.items() if names))


def _findings(folder: Path, claims: Any) -> tuple[list[Finding], list[str], list[str]]:
    """The claims of a later schema; the names of those with verdict and number alone, and of those that are lost."""
    findings: list[Finding] = []
    numbers, lost = [], []
    for entry in claims if isinstance(claims, list) else []:
        try:
            check_claim(entry)
            findings.append(finding_from(entry, lambda name: folder / "tables" / name))
            continue
        except (OutputError, KeyError, TypeError, ValueError, AttributeError, IndexError):
            bare = _bare(entry)
        if bare is None:
            named = isinstance(entry, Mapping)
            lost.append(str(entry.get("id", "a claim without an id")) if named else "an entry that is not a claim")
        else:
            findings.append(bare)
            numbers.append(bare.id)
    return findings, numbers, lost


def _facts(kind: type[_F], record: Mapping[str, Any], key: str, unread: list[str], **otherwise: str) -> _F:
    """What a later schema says under `key`, if it can be understood; otherwise `unread` gets the key."""
    stated = {**otherwise, **_mapping(record.get(key))}
    try:
        facts(kind, closed=False)(stated, key)
        return kind.from_dict(stated)
    except (TypeError, ValueError):
        unread.append(key)
        return kind.from_dict(otherwise)


def _later_schema(folder: Path) -> dict[str, Any] | None:
    """What a survey of a later version says; None where it is no such survey, or not the file that was written."""
    try:
        content = read_bytes(folder / SURVEY)
        record, digest = strict_json(content), listed(folder).get(SURVEY)
    except (OSError, ValueError):
        return None
    later = isinstance(record, dict) and type(record.get("schema")) is int and record["schema"] > store.SCHEMA
    return record if later and digest in (None, sha256(content)) else None


def _bare(entry: Any) -> Finding | None:
    """Verdict and number alone, of a record that has at least those."""
    if not isinstance(entry, Mapping) or entry.get("verdict") not in VERDICTS or not isinstance(entry.get("id"), str):
        return None
    number = _mapping(entry.get("statistic"))
    value, low, high = (_number(number.get(key)) for key in ("value", "low", "high"))
    if math.isnan(value) or low > high:
        return None
    statistic = Statistic(str(number.get("name") or ""), value, low, high, str(number.get("unit") or ""))
    words: dict[str, Any] = {key: str(entry.get(key) or "") for key in CLAIM_WORDS}
    claim = Claim(**words)
    n, (reading, headline) = entry.get("n"), (str(entry.get(key) or "") for key in ("reading", "headline"))
    size = n if type(n) is int and n > 0 else 0
    return Finding(claim, entry["verdict"], statistic, size, (), reading, headline, Table((), ()))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    """A finite number; NaN for all else."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1.8e308
    return float(value) if known else math.nan
