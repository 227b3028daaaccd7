"""The command that measures the instrument's own error rate: `armillary calibrate`."""

import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, complete_models, echo_json
from armillary.errors import ArmillaryError

if TYPE_CHECKING:
    from armillary.results.calibration import Calibration, CalibrationStudy
    from armillary.views.text.progress import Bar

FAILED = 3
SAMPLE = "sample"
# Without a terminal there is no bar: a line now and then, for a log.
LINE_EVERY_S = 60


MOST = 10_000
"""Runs of one kind."""


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_models)
@click.option("--out", type=PATH, default=Path("calibration"), show_default=True, metavar="DIR",
              help="The study's folder; a stopped study resumes there.")  # fmt: skip
@click.option("--untrained", type=int, metavar="N", help="How many untrained models. [default: 8; quick: 4]")
@click.option("--seeds", type=int, metavar="N", help="How many seeds of each MODEL's survey. [default: 3; quick: 2]")
@click.option("--planted", type=int, metavar="N",
              help="Draws of every planted model at every strength. [default: 2; quick: 1]")  # fmt: skip
@click.option("--tokens", type=int, multiple=True, metavar="N",
              help="A budget; repeat it for more. The first is the main one. [default: 2500; quick: 1000]")  # fmt: skip
@click.option("--text", "texts", multiple=True, metavar="PATH",
              help="A file, a folder, or 'sample' (built in); repeat it for more. [default: sample]")  # fmt: skip
@click.option("--claims", default="all", show_default=True, metavar="LIST",
              help="Comma-separated claim ids, chapter letters A–H, or 'all'.")  # fmt: skip
@click.option("--workers", type=int, metavar="N", help="Processes, one thread each. [default: one per core]")
@click.option("--dask", metavar="ADDRESS", help="Run on a dask cluster, or on local:N processes.")
@click.option("--device", default="cpu", show_default=True, metavar="D", help="cpu or cuda.")
@click.option("--quick", is_flag=True, help="A few quick surveys: tests that it works, not how well.")
@click.option("--json", "as_json", is_flag=True, help="Print calibration.json instead of the tables.")
@partial(friendly, interrupted="finished runs are kept; repeat the command to continue",
         smaller="use fewer --workers")  # fmt: skip
def calibrate(
    out: Path, as_json: bool, workers: int | None, dask: str | None, texts: tuple[str, ...], **asked: Any
) -> None:
    """Measure how often verdicts are wrong, and how much they depend on seed, budget and text.

    All claims are measured on small untrained models, which have learned nothing; on planted models, whose answer is
    known, at several strengths; and over seeds, budgets and texts on each MODEL (default: both built-in models).

    \b
    armillary calibrate                                   a small study, minutes
    armillary calibrate --untrained 120 --seeds 10 --tokens 2500 --tokens 1000 --text sample --text books.txt
    armillary calibrate ./my-model --untrained 0 --planted 0 --seeds 5

    Every finished run is kept in DIR/runs.jsonl: after Ctrl-C the same command continues, and a larger one adds runs.
    DIR gets calibration.json, rates.csv and trust.md. The exit code is 3 if any run failed.
    """
    named = _named(texts)
    study = _study(tuple(named), **asked)
    if workers is not None and workers < 1:
        raise ArmillaryError(f"--workers {workers} leaves no process to run; give at least 1.")
    if workers is not None and dask is not None:
        raise ArmillaryError("--workers and --dask were both given; runs are made here or on a cluster: choose one.")
    if dask is not None:
        from armillary.survey_states import check_dask

        check_dask(dask)
    from armillary.calibrate import calibrate as make_runs
    from armillary.probes.machinery.processes.jobs import cores
    from armillary.views.text.progress import progress_bar

    terminal = sys.stderr.isatty()
    with progress_bar(terminal) as bar:
        calibration, damaged = make_runs(study, out, named, workers or cores(), _Progress(bar, terminal), dask)
    for line in damaged:
        say(f"armillary: {line}", err=True)
    show_calibration(calibration, out, as_json)
    if calibration.errors:
        say(f"armillary: {len(calibration.errors)} of {calibration.runs} runs failed; the same command "
                   "tries them again.", err=True)  # fmt: skip
        sys.exit(FAILED)


def show_calibration(calibration: "Calibration", folder: Path, as_json: bool, claim: str | None = None) -> None:
    """Print a calibration, or what it says of one claim."""
    from rich.console import Console

    from armillary.errors import nearest
    from armillary.probes import claims as list_claims
    from armillary.results.calibration.calibration_file import calibration_json
    from armillary.views.text.calibration import claim_lines, print_calibration

    if claim is not None and claim not in calibration.kinds:
        raise ArmillaryError(f"{folder} has no claim {claim!r}; {nearest(claim, calibration.kinds)}")
    if as_json:
        echo_json(calibration_json(calibration))
    elif claim is not None:
        today = {entry.id: entry for entry in list_claims()}
        say("\n".join(claim_lines(calibration, claim, today.get(claim))))
    else:
        print_calibration(calibration, Console(file=sys.stdout), folder)


def _named(texts: tuple[str, ...]) -> dict[str, str]:
    """Name → path; the built-in sample needs none."""
    named: dict[str, str] = {}
    for text in texts or (SAMPLE,):
        if text == "-":
            raise ArmillaryError("--text - was given, but every run reads the text again; give a file or a folder.")
        name = text if text == SAMPLE else Path(text).stem
        if name in named or (name == SAMPLE and text != SAMPLE):
            other = named.get(name, "") or "the built-in one"
            raise ArmillaryError(f"two texts are called {name!r}, {other} and {text}; rename one of them.")
        named[name] = "" if text == SAMPLE else text
    return named


def _study(texts: tuple[str, ...], models: tuple[str, ...], claims: str, quick: bool, device: str,
           tokens: tuple[int, ...], **numbers: int | None) -> "CalibrationStudy":  # fmt: skip
    from armillary.probes import choose
    from armillary.results.calibration import CalibrationStudy

    defaults = {"untrained": 4, "seeds": 2, "planted": 1} if quick else {}
    given = {name: number for name, number in numbers.items() if number is not None}
    for name, number in given.items():
        if number < 0:
            raise ArmillaryError(f"--{name} {number} is negative; give 0 to leave that part out.")
        if number > MOST:
            raise ArmillaryError(f"--{name} {number} is more than any study needs; give at most {MOST}.")
    if any(budget < 1 for budget in tokens):
        raise ArmillaryError(f"--tokens {min(tokens)} leaves nothing to read; give at least 1, better 2000 or more.")
    settings: dict[str, Any] = {
        **defaults,
        **given,
        "texts": texts,
        "claims": tuple(probe.claim.id for probe in choose(claims)),
    }
    if models:
        settings["models"] = tuple(dict.fromkeys(models))
    if tokens or quick:
        settings["tokens"] = tuple(dict.fromkeys(tokens)) or (1000,)
    return CalibrationStudy(quick=quick, device=device, **settings)


class _Progress:
    """Where a study stands: on the bar, or a line now and then where standard error is no terminal."""

    def __init__(self, bar: "Bar", to_terminal: bool) -> None:
        self._bar, self._to_terminal, self._told = bar, to_terminal, time.monotonic()

    def __call__(self, done: int, total: int, left: float) -> None:
        from armillary.views.text.summary import duration

        what = f"run {done} of {total}" + ("" if math.isnan(left) else f", about {duration(left)} left")
        self._bar.bytes(what, done, total)
        if not self._to_terminal and time.monotonic() - self._told >= LINE_EVERY_S:
            self._told = time.monotonic()
            say(what, err=True)
