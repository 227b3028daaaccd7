"""Commands that measure claims and print stored results: `armillary survey`, `show` and `claims`."""

import os
import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.calibrate import show_calibration
from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import (
    PATH,
    complete_claims,
    complete_models,
    echo_json,
    echo_table,
    form_of,
    forms,
    loading,
    stored_survey,
)
from armillary.errors import ArmillaryError, nearest

if TYPE_CHECKING:
    from armillary.results import Finding, Survey

FAILED = 3
SOURCE = ("text", "dataset", "split", "column", "images", "audio")


def _left(written: list[Path]) -> str:
    """What an interrupted survey leaves on disk."""
    given = click.get_current_context().params
    goes_on = "" if given["text"] == "-" else "; armillary survey --resume DIR continues it"
    if any(path.name == "survey.json" for path in written):
        return f"the claims that were already decided are saved{goes_on}"
    return f"no claim was decided{goes_on}"


@click.command()
@click.argument("model", default="", required=False, shell_complete=complete_models)
@click.option(
    "--text",
    metavar="PATH",
    help="A file (also .jsonl, .parquet, compressed as .gz, .xz, .bz2, .zst), a folder, or - for standard input.",
)
@click.option("--dataset", metavar="NAME", help="A Hugging Face dataset, streamed (needs armillary[datasets]).")
@click.option("--split", metavar="NAME", help="The part of --dataset to read. [default: train]")
@click.option("--column", metavar="NAME", default="", help="The column with the text in .jsonl, .parquet or --dataset.")
@click.option("--images", metavar="DIR", help="A folder of .png, .jpg or .npy files, for a model that reads images.")
@click.option("--audio", metavar="DIR", help="A folder of .wav files, for a model that reads sound.")
@click.option("--tokens", type=int, metavar="N", help="How many tokens to read. [default: 2500]")
@click.option("--claims", default="all", show_default=True, metavar="LIST", shell_complete=complete_claims,
              help="Comma-separated claim ids, chapter letters A–H, or 'all'.")  # fmt: skip
@click.option("--steps", is_flag=True, help="MODEL is the folder of a training run: read all its checkpoints.")
@click.option(
    "--quick",
    is_flag=True,
    help="Less text and fewer documents in experiments: faster; intervals are wider, some verdicts differ.",
)
@loading
@click.option("--jobs", type=int, metavar="N",
              help="Processes that decide claims. [default: by cores and memory; 1 for a large model]")  # fmt: skip
@click.option(
    "--shard", metavar="I/N", help="Read only part I of N of the text and store it in --out, for `armillary merge`."
)
@click.option("--dask", metavar="ADDRESS", help="Read the text on a dask cluster, or on local:N processes.")
@click.option("--out", type=PATH, metavar="DIR",
              help="Write report.html, survey.json, tables/ and figures/ here. [default: survey/MODEL]")  # fmt: skip
@click.option("--resume", type=PATH, metavar="DIR", help="Continue the interrupted survey in DIR.")
@click.option("--json", "as_json", is_flag=True, help="Print survey.json instead of the ledger.")
@forms
@click.option("--debug", is_flag=True, help="Print the traceback of every claim that failed, and store it.")
@partial(friendly, interrupted=_left)
def survey(
    out: Path | None, resume: Path | None, as_json: bool, brief: bool, full: bool, debug: bool, **settings: Any
) -> None:
    """Measure claims on MODEL and print the ledger of verdicts.

    MODEL is a folder, a .gguf file, a hub id or a short name (`armillary models`); without it, builtin:gpt.
    The exit code is 3 if the measurement of any claim failed; the others are still printed and saved.
    """
    # Before the slow imports: a mistyped claim or a folder that cannot be written is reported at once.
    form = form_of(brief, full)
    from armillary.probes import choose
    from armillary.probes.machinery.processes.jobs import prepare_jobs
    from armillary.results.disk.files import check_writable, not_left_empty
    from armillary.results.disk.resume import read_settings, write_settings

    if resume is not None:
        _check_resumed(out, settings)
        settings = _trusted(read_settings(resume, _forms()), settings["trust_remote_code"])
        if settings["text"] == "-":
            raise ArmillaryError(
                "that survey read standard input, which is gone; save the text to a file and start anew."
            )
    _check_source(**{name: settings[name] for name in SOURCE})
    if settings["shard"] is not None and settings["text"] == "-":
        raise ArmillaryError("--shard was given, but standard input can be read only once; save the text to a file.")
    part = "" if settings["shard"] is None else "-shard-" + settings["shard"].replace("/", "-of-")
    folder = resume or out or Path("survey") / (_folder_name(settings["model"] or "default") + part)
    # What is refused leaves nothing behind: settings are written when the survey begins.
    begin = partial(write_settings, folder, settings) if resume is None else None
    with not_left_empty(folder):
        check_writable(folder)
        if not part:
            prepare_jobs(settings["jobs"], settings["device"], choose(settings["claims"]))
        _print_survey(folder, settings, as_json, debug, begin, form, resume=resume is not None)


def _print_survey(
    folder: Path,
    settings: dict[str, Any],
    as_json: bool,
    debug: bool,
    begin: Callable[[], None] | None = None,
    form: Any = "standard",
    **how: Any,
) -> None:
    """Make a survey, or read a part for one, and print it as it grows."""
    from armillary import run
    from armillary.flow.machine.memory import keep_pages
    from armillary.probes import choose
    from armillary.results.store import survey_json

    keep_pages()
    text = _text(**{name: settings[name] for name in SOURCE})
    from rich.console import Console

    from armillary.views.text.ledger import GrowingLedger

    # The stream as it is now: a progress bar on the same terminal may replace sys.stdout later.
    widest = max(len(probe.claim.id) for probe in choose(settings["claims"]))
    ledger = GrowingLedger(Console(file=sys.stdout), widest, form)

    def tell(so_far: "Survey") -> None:
        if not len(so_far) and begin is not None:
            begin()
        if not as_json and settings["shard"] is None:
            ledger.grow(so_far)

    result = run.survey(
        settings["model"] or run.DEFAULT_MODEL,
        text,
        out=folder,
        tell=tell,
        debug=debug,
        **{name: value for name, value in settings.items() if name not in ("model", *SOURCE)},
        **how,
    )
    if as_json:
        echo_json(survey_json(result))
    elif settings["shard"] is not None:
        say(f"shard {settings['shard']} of {result.text.tokens} tokens is in {folder}; when all are read: "
                   "armillary merge DIRS --out DIR")  # fmt: skip
    else:
        ledger.end(result, folder)
    _report_failures(result, debug)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PATH, metavar="DIRS...")
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Write the survey here.")
@click.option("--device", metavar="D", help="cpu or cuda, for experiments. [default: that of the shards]")
@click.option("--trust-remote-code", is_flag=True, help="Run code that the model's folder contains.")
@click.option("--jobs", type=int, metavar="N", help="Processes that decide claims. [default: by cores and memory]")
@click.option("--json", "as_json", is_flag=True, help="Print survey.json instead of the ledger.")
@click.option("--debug", is_flag=True, help="Print the traceback of every claim that failed, and store it.")
@partial(friendly, interrupted="the claims that were already decided are saved")
def merge(
    folders: tuple[Path, ...],
    out: Path,
    device: str | None,
    trust_remote_code: bool,
    jobs: int | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Decide the claims of a survey from all its shards, which `armillary survey --shard` stored in DIRS.

    The model and the text must still be in place: experiments need them. The order of DIRS does not matter.
    """
    from armillary.probes.machinery.processes.shards import Shards
    from armillary.results.disk.files import check_writable, not_left_empty
    from armillary.results.disk.resume import read_settings

    first = Shards.of(folders).parts[0].folder
    settings = {**_trusted(read_settings(first, _forms()), trust_remote_code), "shard": None, "jobs": jobs}
    settings["device"] = device or settings["device"]
    with not_left_empty(out):
        check_writable(out)
        _print_survey(out, settings, as_json, debug, shards=folders)


def _forms() -> dict[str, Callable[[Any, str], None]]:
    """The form that each setting has on disk."""
    from armillary.results.disk import schema

    # What `survey` names in its signature is no setting: where and how it prints.
    named = signature(survey.callback).parameters if survey.callback is not None else {}
    forms: dict[str, Callable[[Any, str], None]] = {}
    for option in survey.params:
        plain = schema.whole() if option.type is click.INT else schema.text
        given = schema.text if option.default == "" or option.name == "claims" else schema.optional(plain)
        if option.name not in named:
            forms[str(option.name)] = schema.flag if getattr(option, "is_flag", False) else given
    return forms


def _check_resumed(out: Path | None, settings: dict[str, Any]) -> None:
    """A survey goes on with its own settings."""
    given = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    others = [name for name in settings if given.get_parameter_source(name) != default and name != "trust_remote_code"]
    if out is not None or others:
        names = ", ".join(sorted({*others, *(["out"] if out is not None else [])}))
        raise ArmillaryError(f"--resume takes its settings from the folder; leave out {names}.")


def _trusted(stored: dict[str, Any], trust: bool) -> dict[str, Any]:
    """Stored settings. A folder cannot allow that a model's code runs: it may come from somebody else."""
    if stored["trust_remote_code"] and not trust:
        raise ArmillaryError(
            f"that survey ran code of the model {stored['model']!r}; add --trust-remote-code if you trust that code."
        )
    return {**stored, "trust_remote_code": trust}


def _check_source(
    text: str | None, dataset: str | None, split: str | None, column: str, images: str | None, audio: str | None
) -> None:
    given = [name for name, value in (("text", text), ("dataset", dataset), ("images", images), ("audio", audio))
             if value is not None]  # fmt: skip
    if len(given) > 1:
        raise ArmillaryError(f"--{' and --'.join(given)} were given; choose one source.")
    if split is not None and dataset is None:
        raise ArmillaryError("--split was given without --dataset, and a file has no splits; leave it out.")
    if column and text is None and dataset is None:
        raise ArmillaryError("--column was given, but the built-in sample has none; add --text or --dataset.")


def _text(
    text: str | None, dataset: str | None, split: str | None, column: str, images: str | None, audio: str | None
) -> Any:
    from armillary.flow.documents import from_dataset, from_path

    if images is not None or audio is not None:
        from armillary.flow.media.sources import from_folder

        return from_folder(images or audio or "", "images" if images is not None else "sound")
    if dataset is not None:
        return from_dataset(dataset, split or "train", column)
    return None if text is None else from_path(text, column)


def _report_failures(result: "Survey", debug: bool) -> None:
    """One line naming the claims that failed, and exit code 3."""
    failed = [finding.id for finding in result if finding.verdict == "failed"]
    if not failed:
        return
    for note in result.notes:
        say(note, err=True)
    hint = "" if debug else "; --debug shows the tracebacks"
    say(f"armillary: {len(failed)} of {len(result)} claims failed: {', '.join(failed)}{hint}.", err=True)
    sys.exit(FAILED)


@click.command()
@click.argument("folder", type=PATH)
@click.argument("claim", required=False, shell_complete=complete_claims)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON, as in survey.json.")
@click.option(
    "--format", "kind", type=click.Choice(["csv", "markdown", "latex"]),
    help="Print the ledger, or the table of CLAIM, for a paper or a spreadsheet.",
)  # fmt: skip
@click.option("--methods", is_flag=True, help="Print a methods paragraph for a paper, and how to cite Armillary.")
@forms
@friendly
def show(folder: Path, claim: str | None, as_json: bool, kind: Any, methods: bool, brief: bool, full: bool) -> None:
    """Print a stored survey or calibration, or one CLAIM of it in full.

    \b
    armillary show survey/default --brief
    armillary show survey/default --format latex > ledger.tex
    armillary show survey/default sphere.radius --format csv > radius.csv
    """
    form = form_of(brief, full)
    if sum((as_json, kind is not None, methods, form != "standard")) > 1:
        raise ArmillaryError("--json, --format, --methods, --brief and --full exclude each other; choose one.")
    from armillary.results.calibration.calibration_file import NAME, read_calibration
    from armillary.results.store import finding_json, survey_json

    # Not Path.exists, which raises an error for a name that is too long.
    if folder.name == NAME or os.path.exists(folder / NAME):
        show_calibration(read_calibration(folder), folder, as_json, claim)
        return
    stored = stored_survey(folder)
    try:
        finding = None if claim is None else stored[claim]
    except KeyError as error:
        raise ArmillaryError(str(error.args[0])) from None
    if as_json:
        echo_json(survey_json(stored) if finding is None else finding_json(finding))
        return
    if kind is not None or methods:
        _show_for_paper(stored, finding, kind)
        return
    from rich.console import Console

    from armillary.views.text.ledger import print_ledger
    from armillary.views.text.survey import print_finding

    if finding is None:
        print_ledger(stored, Console(), folder, form)
    else:
        print_finding(finding, Console())


def _show_for_paper(stored: "Survey", finding: "Finding | None", kind: Any) -> None:
    """The ledger or a table in the format `kind`, or without one the methods paragraph."""
    from armillary.views.text.papers.exports import ledger_export, table_export
    from armillary.views.text.papers.methods import CITATION, methods_text

    if kind is None:
        say(f"{methods_text(stored)}\n\n{CITATION}")
    else:
        text = ledger_export(stored, kind) if finding is None else table_export(finding, kind)
        echo_table(text)


@click.command()
@click.argument("claim", required=False, shell_complete=complete_claims)
@friendly
def claims(claim: str | None) -> None:
    """List the claims that can be measured, or explain one CLAIM: definition, rule, control, source, error rate.

    Claims of chapter G are decided by training models (armillary lab run), and are not part of a survey.
    """
    from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
    from armillary.lab.study.generalise import GENERALISE
    from armillary.probes import claims as list_claims
    from armillary.probes import origin
    from armillary.results.calibration.calibration_file import shipped
    from armillary.views.text.calibration import claim_lines
    from armillary.views.text.lab.lab_claims import lab_claim_text, lab_list_text
    from armillary.views.text.survey import claim_text, claims_list_text

    known = {entry.id: entry for entry in list_claims()}
    trained = {entry.id: entry for entry in (*LAB_CLAIMS, GENERALISE)}
    if claim is None:
        say(claims_list_text(known.values(), packages={entry: origin(entry) for entry in known}))
        say("\n" + lab_list_text(trained.values()))
    elif claim in trained:
        say(lab_claim_text(trained[claim]))
    elif claim in known:
        calibration = shipped()
        lines = [] if calibration is None else claim_lines(calibration, claim, known[claim])
        say(claim_text(known[claim], package=origin(claim), calibrated=lines))
    else:
        raise ArmillaryError(f"there is no claim {claim!r}; {nearest(claim, [*known, *trained])}")


def _folder_name(name: str) -> str:
    """A model's name as the name of a folder.

    >>> _folder_name("./runs/my model.gguf")
    'my-model.gguf'
    """
    letters = "".join(c if c.isalnum() or c in "._-" else "-" for c in Path(name).name)
    return letters.strip("-.") or "model"
