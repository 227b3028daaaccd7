"""A survey by the command line, ended at any moment: the folder holds nothing, or claims that are decided, and the next
run comes to the same end."""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import folders
import pytest
from command import run

from armillary.cli import main
from armillary.errors import OutputError
from armillary.results.store import read_survey

CLAIMS = "sphere.radius,spectrum.two-zeros,sphere.plane"
MOMENTS = 100


def command(model: Path, text: Path, out: Path) -> list[str]:
    words = ("survey", model, "--text", text, "--tokens", 400, "--claims", CLAIMS, "--jobs", 1, "--out", out)
    return [str(word) for word in words]


def began(words: list[str], log: Path) -> int:
    """The command in a process of its own, forked, so that nothing need be imported anew."""
    if pid := os.fork():
        return pid
    code = 9
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        sys.stdout, sys.stderr = os.fdopen(handle, "w"), os.fdopen(os.dup(handle), "w")
        main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def content(folder: Path) -> Any:
    record = json.loads((folder / "survey.json").read_text("utf-8"))
    return {key: value for key, value in record.items() if key != "times"}


@pytest.mark.slow
def test_a_survey_is_ended_at_a_hundred_moments(tmp_path: Path) -> None:
    model, text = folders.model_folder("gpt2", tmp_path / "gpt2"), folders.text_file(tmp_path / "text.txt")
    log = tmp_path / "log"
    assert run(*command(model, text, tmp_path / "first")).exit_code == 0
    start = time.monotonic()
    assert ended(began(command(model, text, tmp_path / "whole"), log)) == 0
    seconds, whole, draw, seen = time.monotonic() - start, content(tmp_path / "whole"), random.Random(0), Counter[str]()
    for moment in range(MOMENTS):
        out = tmp_path / f"out{moment}"
        which = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[moment % 3]
        pid = began(command(model, text, out), log)
        time.sleep(draw.uniform(0, 1.1 * seconds))
        os.kill(pid, which)
        code, printed = ended(pid), log.read_text("utf-8", "replace")
        # A run that had ended before the signal came is among them.
        assert code in ((0, 130) if which == signal.SIGINT else (0, -which)), printed
        assert "Traceback" not in printed and "should not happen" not in printed
        if code == 130:
            assert ("nothing was written" in printed) == (not out.exists()), printed
        seen[f"{which.name} {_state(out)}"] += 1
        begun = any((out / name).exists() for name in ("settings.json", "pass/settings.json"))
        words = ["survey", "--resume", str(out)] if moment % 2 and begun else None
        assert ended(began(words or command(model, text, out), log)) == 0, log.read_text("utf-8", "replace")
        assert content(out) == whole
        assert not [path for path in out.rglob("*") if path.name.endswith((".part", ".swap", ".lock"))]
    print(seen)
    assert len({name.split(" ", 1)[1] for name in seen}) > 2, "the moments fell into every part of a run"


def _state(folder: Path) -> str:
    """How much of a survey a folder holds; whatever is there can be read."""
    if not folder.exists():
        return "nothing"
    try:
        return f"{len(read_survey(folder).findings)} claims"
    except OutputError as error:
        message = str(error)
    assert "did not finish" in message
    return "no claim yet"
