"""One spoilt input and one command: what became of it?

`clean` is one sentence and exit code 2; `success` is a result that equals the one of the sound input, or that says
itself what differs; `traceback`, `wait` and `silent` (a wrong result that looks right) must never be.
"""

import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from armillary.cli import main

KINDS = ("clean", "success", "traceback", "wait", "silent")
SECONDS = 30
ESCAPES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066\u2067]")


@dataclass(frozen=True)
class Case:
    """A command on a spoilt input. `sound` is the same command on the sound input."""

    what: str
    args: tuple[Any, ...]
    sound: tuple[Any, ...]
    compare: Callable[[Result, Result], str] = lambda now, sound: ""
    """Says what is silently wrong in a success; '' where nothing is."""
    given: str | None = None
    """Standard input."""
    out: Path | None = None
    command: click.Command = main


@dataclass(frozen=True)
class Outcome:
    number: int
    generator: str
    kind: str
    what: str
    detail: str = ""


class WaitError(BaseException):
    """The alarm: nothing of ours catches it."""


@contextlib.contextmanager
def alarm(seconds: float = SECONDS) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise WaitError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def native_output(past: io.BytesIO) -> Iterator[None]:
    """What libraries print past Python, straight to the terminal; the command's own output is not among it."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(number) for number in (1, 2)]
    with tempfile.TemporaryFile() as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            for number, was in enumerate(before, 1):
                os.dup2(was, number)
                os.close(was)
            file.seek(0)
            past.write(file.read())


@dataclass
class Runner:
    """Runs cases in this process; remembers what commands say on sound inputs."""

    seconds: float = SECONDS
    sound: dict[tuple[str, ...], Result] = field(default_factory=dict)

    def __call__(self, number: int, generator: str, case: Case) -> Outcome:
        kind, detail = self._judge(case)
        return Outcome(number, generator, kind, case.what, detail)

    def _judge(self, case: Case) -> tuple[str, str]:
        result, past = None, io.BytesIO()
        # On a machine that is busy with others, a second chance tells a wait without end from a long one.
        for limit in (self.seconds, 4 * self.seconds):
            try:
                with native_output(past), alarm(limit):
                    result = _invoke(case.command, case.args, case.given)
                break
            except WaitError:
                continue
            except Exception:
                return "traceback", traceback.format_exc()
        if result is None:
            return "wait", f"more than {4 * self.seconds} s"
        if wrong := ESCAPES.search(past.getvalue().decode("utf-8", "replace")):
            return "silent", f"{wrong[0]!r} reached the terminal past Python"
        if result.exit_code == 2:
            return _clean(result)
        if result.exit_code != 0:
            return "traceback", f"exit code {result.exit_code}: {result.stderr}"
        if wrong := ESCAPES.search(result.output):
            return "silent", f"{wrong[0]!r} reached the terminal"
        if case.out is not None and (left := [p.name for p in case.out.rglob("*.part")]):
            return "silent", f"left over: {left}"
        if not case.sound:
            return "success", ""
        wrong = case.compare(result, self._sound(case.sound))
        return ("silent", wrong) if wrong else ("success", "")

    def _sound(self, args: tuple[Any, ...]) -> Result:
        key = tuple(map(str, args))
        if key not in self.sound:
            self.sound[key] = _invoke(main, args)
            assert self.sound[key].exit_code == 0, self.sound[key].stderr
        return self.sound[key]


def _invoke(command: click.Command, args: tuple[Any, ...], given: str | None = None) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args], input=given, catch_exceptions=False)


def _clean(result: Result) -> tuple[str, str]:
    """A refusal is one sentence; click's own begins with the usage."""
    errors = result.stderr
    if ESCAPES.search(errors):
        return "silent", f"escapes in {errors!r}"
    usage = errors.startswith(("Usage: ", "Error: "))
    if not usage and not (errors.startswith("armillary: ") and errors.endswith((".\n", "?\n"))):
        return "traceback", f"no sentence: {errors!r}"
    if "Traceback" in errors or "should not happen" in errors:
        return "traceback", errors
    return "clean", errors


def same_output(ours: Path, theirs: Path) -> Callable[[Result, Result], str]:
    """Whatever succeeds says what the sound input says, but for its own path, which lines are wrapped at."""

    def compare(now: Result, sound: Result) -> str:
        printed = "".join(now.stdout.split()).replace(str(ours), str(theirs))
        return "" if printed == "".join(sound.stdout.split()) else f"{now.stdout!r} instead of {sound.stdout!r}"

    return compare


def own_identity(now: Result, sound: Result) -> str:
    """A survey that measured something else says so: its model's or its text's facts differ as well."""
    ours, theirs = json.loads(now.stdout), json.loads(sound.stdout)
    if _identity(ours) != _identity(theirs) or _numbers(ours) == _numbers(theirs):
        return ""
    return "other numbers for the same model and text"


def _identity(record: dict[str, Any]) -> Any:
    facts = {key: {**record[key]} for key in ("model", "text")}
    for place, name in (("model", "name"), ("model", "source"), ("text", "source"), ("model", "kind")):
        facts[place].pop(name, None)
    return facts


def _numbers(record: dict[str, Any]) -> Any:
    return [{**claim, "caption": ""} for claim in record["claims"]]
