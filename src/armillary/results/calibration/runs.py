"""What did each run give? One JSON line per finished run, so that a killed study goes on where it stopped."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.calibration.run_list import Task
from armillary.results.claim import VERDICTS, Finding, Verdict
from armillary.results.disk.files import disk_errors, read_bytes, strict_json

RUNS = "runs.jsonl"


@dataclass(frozen=True)
class Outcome:
    """What one run said of one claim."""

    verdict: Verdict
    why: str | None = None
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    reading: str = ""

    @classmethod
    def of(cls, finding: Finding) -> "Outcome":
        statistic = finding.statistic
        why = None if finding.why is None else finding.why.name
        return cls(finding.verdict, why, statistic.value, statistic.low, statistic.high, finding.reading)


@dataclass(frozen=True)
class CalibrationRun:
    """A finished run."""

    task: Task
    claims: Mapping[str, Outcome] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    """What the whole run raised; it has no claims then."""

    def line(self) -> str:
        """As one line of JSON; a number that is not finite becomes null."""
        record = asdict(self)
        for outcome in record["claims"].values():
            outcome |= {key: None if not math.isfinite(outcome[key]) else outcome[key] for key in _NUMBERS}
        return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def parse(cls, line: str) -> "CalibrationRun":
        """Raises KeyError, TypeError or ValueError of anything else than a run's line."""
        record = strict_json(line)
        claims = {claim: _outcome(entry) for claim, entry in record["claims"].items()}
        return cls(Task(**record["task"]), claims, float(record["seconds"]), str(record["error"]))


_NUMBERS = ("value", "low", "high")


def _outcome(record: dict[str, Any]) -> Outcome:
    if record["verdict"] not in VERDICTS:
        raise ValueError(f"there is no verdict {record['verdict']!r}")
    numbers = {key: math.nan for key in _NUMBERS if record.get(key) is None}
    return Outcome(**{**record, **numbers})


class RunsFile:
    """A study's runs.jsonl: what is finished, and where the next run is written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RUNS
        self.damaged: list[str] = []
        """A sentence for every line that is not a run."""
        self.runs: dict[str, CalibrationRun] = {}
        """By the key of their task; of several runs of one task the last counts."""
        # Not splitlines: a reading may contain a character that it takes for the end of a line.
        *lines, rest = self._content().split("\n")
        for number, line in enumerate([*lines, rest] if rest else lines, 1):
            try:
                run = CalibrationRun.parse(line)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
                self.damaged.append(f"{self.path} line {number} is not a run ({reason}); that run is made again.")
            else:
                self.runs[run.task.key] = run
        self._torn = bool(rest)

    def _content(self) -> str:
        try:
            return read_bytes(self.path).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise OutputError(f"{self.path} cannot be read ({error.strerror}); check its permissions.") from error

    def finished(self, tasks: Iterable[Task]) -> list[CalibrationRun]:
        """The runs of these tasks, those that ended in an error too."""
        known = (self.runs.get(task.key) for task in tasks)
        return [run for run in known if run is not None]

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks that are still to be run: an error may have been the machine's, so these are tried again."""
        return [task for task in tasks if task.key not in self.runs or self.runs[task.key].error]

    def __enter__(self) -> "RunsFile":
        with disk_errors(self.path):
            self._stream = self.path.open("a", encoding="utf-8", errors="backslashreplace")
            if self._torn:
                # A killed write left half a line: the next run must not be glued to it.
                self._stream.write("\n")
        return self

    def add(self, run: CalibrationRun) -> None:
        """Write a run to disk at once."""
        with disk_errors(self.path):
            self._stream.write(run.line())
            self._stream.flush()
        self.runs[run.task.key] = run

    def __exit__(self, *error: object) -> None:
        with disk_errors(self.path):
            self._stream.close()
