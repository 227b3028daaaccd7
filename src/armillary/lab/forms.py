"""Do a laboratory's files have the form that this program writes? Recipes, logs, exams, tokens, studies.

A file carries the version of its form under `schema`; files from before forms had versions lack it. A log is rows and
nothing else, so that other programs read it: its version is the one in recipe.json beside it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.lab.recipe import Recipe
from armillary.results.claim import VERDICTS
from armillary.results.disk import schema as s
from armillary.results.disk.files import read_bytes, strict_json

SCHEMA = 1
_VERSION = {"schema": s.one_of((SCHEMA,), f"schema {SCHEMA}, which this version reads")}
_NUMBER = s.number()
_MAYBE = s.number(null=True)


def _recipe(value: Any, at: str) -> None:
    s.facts(Recipe, architecture=s.text, precision=s.text, rate=_NUMBER, floor=_NUMBER)(value, at)
    Recipe(**value)


RECIPE = s.record({"recipe": _recipe, "text": s.text, "device": s.text}, _VERSION)
_STEP = s.record({"step": s.whole(1), "loss": s.number(0), "norm": s.number(0), "rate": s.number(0)})
_LOOK = s.record(
    {"step": s.whole(0), "valid_bits_per_byte": s.number(0), "seconds": s.number(0)}, {"geometry": s.mapped(_MAYBE)}
)
_DROP = s.record(dict.fromkeys(("value", "low", "high"), _NUMBER))
_INDUCTION = s.record(
    {**dict.fromkeys(("first", "second", "score", "control"), _NUMBER), "drop": _DROP, "head": s.text}
)
_LENS = s.record({"depths": s.listed(s.text), "nats": s.listed(_NUMBER), "kl": s.listed(_NUMBER)})
_EXAM = s.record(
    {"text": s.text, "bits_per_byte": s.number(0), "induction": _INDUCTION, "lens": _LENS, "samples": s.listed(s.text)},
    {"nouns_split": s.listed(s.text), "kneser_ney": s.number(0), **_VERSION},
)
TOKENS = s.record(
    {"tokens": s.whole(0), "bytes": s.whole(0), "documents": s.whole(0), "shards": s.listed(s.text)},
    {"sha256": s.mapped(s.text)},
)
PREPARED = s.record({"sha256": s.text, "vocabulary": s.whole(0)}, {"files": s.mapped(s.text)})
DONE = s.record({"files": s.mapped(s.text)}, _VERSION)
_ARM = s.record({"prediction": s.text}, closed=False)
MANIFEST = s.record(
    {"study": s.text, "arms": s.mapped(_ARM)},
    {
        "size": s.record(
            {"name": s.text},
            {"vocabulary": s.whole(2), **dict.fromkeys(("layers", "width", "heads", "tokens"), s.whole(1))},
            closed=False,
        )
    },
    closed=False,
)
_RUN = s.record(
    {
        **dict.fromkeys(("key", "arm"), s.text),
        "rate": s.number(0),
        "seed": s.whole(0),
        **dict.fromkeys(("tuning", "diverged"), s.flag),
        **dict.fromkeys(("loss", "best"), s.number(0, null=True)),
        "curve": s.listed(s.anything),
        "parameters": s.whole(0),
        "seconds": s.number(0),
    },
    {"flops": s.number(0, null=True), "step_seconds": s.number(0, null=True), "train": s.number(0, null=True)},
    closed=False,
)
_STATE = s.record({"numbers": s.mapped(_MAYBE), "claims": s.mapped(s.listed(s.text)), "refused": s.text})


def EXAM(value: Any, at: str) -> None:  # noqa: N802 (a check, as the constants above)
    _EXAM(value, at)
    lens = value["lens"]
    if not len(lens["depths"]) == len(lens["nats"]) == len(lens["kl"]):
        raise ValueError(f"{at or 'it'} has lists of different lengths under lens")


def row(value: Any, at: str) -> None:
    """A row of a run's log: a step of training, or an evaluation."""
    (_STEP if isinstance(value, dict) and "loss" in value else _LOOK)(value, at)


logged = s.record({"step": s.whole(0)}, closed=False)
"""What the rows of all logs have."""


def run(value: Any, at: str) -> None:
    """A row of a study's runs."""
    _RUN(value, at)
    if value["diverged"] != (value["loss"] is None):
        raise ValueError("it has a loss and diverged, or neither")
    point = s.listed(_MAYBE)
    for entry in value["curve"]:
        point(entry, "curve")
        if len(entry) != 2 or entry[0] is None:
            raise ValueError("a point of its curve is not a step and a loss")


def geometry(value: Any, at: str) -> None:
    s.mapped(_STATE)(value, at)
    for state in value.values():
        for claim, entry in state["claims"].items():
            if len(entry) != 2 or entry[0] not in VERDICTS:
                raise ValueError(f"{claim[:40]} has no verdict and number")


def read_form(path: Path, check: s.Check, otherwise: str) -> Any:
    """A file of the laboratory that has its form; `otherwise` says what to do where it has not."""
    try:
        record = strict_json(read_bytes(path))
        check(record, "")
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); {otherwise}.") from error
    except ValueError as error:
        raise OutputError(f"{path} is damaged ({error}); {otherwise}.") from error
    return record


def check_version(folder: Path) -> None:
    """Refuse the log of a run whose recipe.json says that another version of this program wrote it."""
    path = folder / "recipe.json"
    try:
        version = strict_json(read_bytes(path)).get("schema", SCHEMA)
    except (OSError, ValueError, AttributeError):
        return  # a log by itself, or a recipe that its own reader refuses
    if type(version) is not int or version != SCHEMA:
        raise OutputError(
            f"{path} has schema {str(version)[:40]!r}, this version reads {SCHEMA}, so the log next to it is not read; "
            "update armillary."
        )


def check_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A log's rows have their form, and come in the order of their steps, none twice."""
    trained = evaluated = -1
    for number, entry in enumerate(rows, 1):
        try:
            row(entry, "")
            last = trained if "loss" in entry else evaluated
            if entry["step"] <= last or entry["step"] < max(trained, evaluated):
                raise ValueError(f"step {entry['step']} comes after step {max(trained, evaluated)}")
        except ValueError as error:
            raise OutputError(f"line {number} of {path} is damaged ({error}); restore the file.") from error
        trained, evaluated = (entry["step"], evaluated) if "loss" in entry else (trained, entry["step"])
