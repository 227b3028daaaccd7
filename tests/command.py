"""The command line called in this process: what works says nothing on stderr, what cannot work is one sentence."""

import re
from typing import Any

import plotly.graph_objects as go
import pytest
from click.testing import CliRunner, Result

from armillary.cli import main


def run(*args: Any, **more: Any) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False, **more)


def works(*args: Any, **more: Any) -> Result:
    result = run(*args, **more)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result


def refused(message: str, *args: Any, **more: Any) -> str:
    """Exit code 2, nothing on stdout, one sentence on stderr that matches: what was found, and what to do."""
    result = run(*args, **more)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    check_sentence(result.stderr, message)
    return result.stderr


def check_sentence(printed: str, message: str) -> None:
    assert printed.startswith("armillary: ")
    assert printed.endswith((".\n", "?\n"))
    assert printed.count("\n") == 1
    # What other libraries said is quoted in brackets; our own words are one sentence.
    assert not re.search(r"[.?!] ", re.sub(r"\(.*\)", "", printed.strip())), printed
    assert re.search(message, printed), printed


def blank_figures(patch: pytest.MonkeyPatch) -> None:
    """For surveys whose pages nobody reads: to draw is a quarter of the time that a survey of a tiny model takes."""
    blank = go.Figure(layout={"height": 100, "margin": {"t": 10}})
    patch.setattr("armillary.views.figures.figure.figure", lambda finding, narrow=False: blank)
