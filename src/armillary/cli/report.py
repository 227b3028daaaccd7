"""Commands for stored surveys: `armillary report` and `armillary compare`."""

import sys
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, complete_claims, complete_models, echo_json, stored_survey
from armillary.errors import ArmillaryError, ending


@click.command()
@click.argument("folder", type=PATH)
@click.option("--out", type=PATH, metavar="FILE", help="Another path. [default: FOLDER/report.html]")
@friendly
def report(folder: Path, out: Path | None) -> None:
    """Write report.html again from the survey stored in FOLDER: one page that opens from disk, without a network."""
    if out is not None and out.suffix.lower() != ".html":
        raise ArmillaryError(f"{out} does not end in .html; a report is a page, for example report.html.")
    from armillary.views.report.report import save_report

    stored = stored_survey(folder)
    home = folder.parent if folder.name == "survey.json" else folder
    path = save_report(stored, out or home / "report.html")
    say(f"{path} contains {len(stored)} claims, {path.stat().st_size / 1e6:.1f} MB")


@click.command()
@click.argument("folder", type=PATH)
@click.argument("claim", required=False, shell_complete=complete_claims)
@click.option("--out", type=PATH, required=True, metavar="PLACE", help="A folder, or with CLAIM a file.")
@click.option("--as", "kind", type=click.Choice(["svg", "pdf", "png"]), default="pdf", show_default=True,
              help="The format, if PLACE is a folder.")  # fmt: skip
@click.option("--columns", type=click.Choice(["1", "2"]), default="2", show_default=True, help="Width in a paper.")
@click.option("--panel", type=int, metavar="N", help="One panel of CLAIM alone: all of them can be taller than a page.")
@friendly
def figures(folder: Path, claim: str | None, out: Path, kind: str, columns: str, panel: int | None) -> None:
    """Write the figures of the survey stored in FOLDER for a paper: SVG, PDF or PNG, one or two columns wide.

    \b
    armillary figures survey/default --out figures/ --as svg
    armillary figures survey/default sphere.radius --out radius.pdf --columns 1
    armillary figures survey/default words.travel --panel 2 --out next-word.pdf

    No browser is needed. PDF and PNG are drawn by matplotlib: pip install 'armillary[paper]'.
    """
    from armillary.views.save import save_figures, save_finding

    stored = stored_survey(folder)
    if claim is None:
        if panel is not None:
            raise ArmillaryError("--panel is a panel of one claim's figure; give the CLAIM too.")
        written = save_figures(stored, out, kind, int(columns))
        wide = "; the ledger is two columns wide" if columns == "1" else ""
        say(f"{out} contains {len(written)} figures{wide}")
        return
    try:
        finding = stored[claim]
    except KeyError as error:
        raise ArmillaryError(str(error.args[0])) from None
    if out.suffix.lower() not in (".svg", ".pdf", ".png"):
        raise ArmillaryError(f"{out} does not end in .svg, .pdf or .png; give a file for one figure.")
    say(str(save_finding(finding if panel is None else _panel(finding, panel), out, int(columns))))


def _panel(finding: Any, number: int) -> Any:
    """The finding with one of its panels."""
    from dataclasses import replace

    if not 1 <= number <= len(finding.quantities):
        names = ", ".join(f"{i} ({quantity.name})" for i, quantity in enumerate(finding.quantities, 1))
        raise ArmillaryError(f"{finding.id} has no panel {number}; it has {names or 'none'}.")
    return replace(finding, quantities=(finding.quantities[number - 1],), more_tables={})


@click.command()
@click.argument("a", shell_complete=complete_models)
@click.argument("b", shell_complete=complete_models)
@click.option("--out", type=PATH, metavar="PLACE",
              help="A folder for compare.html, .json, .csv and rows.csv, "
              "or a file that ends in one of these.")  # fmt: skip
@click.option("--text", metavar="PATH", help="If models are surveyed: a file, a folder, or - for standard input.")
@click.option(
    "--tokens", type=int, metavar="N", help="If models are surveyed: how many tokens to read. [default: 2500]"
)
@click.option(
    "--claims", metavar="LIST", help="If models are surveyed: claim ids, chapter letters, or 'all'. [default: all]"
)
@click.option("--quick", is_flag=True, help="If models are surveyed: less text and fewer documents in experiments.")
@click.option("--device", metavar="D", help="If models are surveyed: cpu or cuda.")
@click.option("--dtype", metavar="T", help="If models are surveyed: float32, bfloat16 or float16.")
@click.option("--full", is_flag=True, help="Print every claim, including unchanged ones.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that a model's folder contains.")
@friendly
def compare(a: str, b: str, out: Path | None, as_json: bool, full: bool, **asked: Any) -> None:
    """Compare B with A: the loss, the largest changes in plain words, then every claim that changed.

    A and B are folders of stored surveys, or models, which are then surveyed with the same text, tokens and claims.
    For two models, the similarity of their streams is measured too: CKA and mutual nearest neighbours beyond chance.

    \b
    armillary compare survey/base survey/tuned --out tuned-against-base/
    armillary compare smollm2 smollm2-q4.gguf --claims A,B --tokens 5000 --out q4.html
    armillary compare run/steps/000374 run/steps/000748
    """
    folders = [_stored(name) for name in (a, b)]
    from armillary.results.disk.files import not_left_empty

    with not_left_empty(out):
        _check(folders, out, asked)
        _compared(folders, (a, b), out, asked, as_json, full)


def _compared(
    folders: list[Path | None],
    names: tuple[str, str],
    out: Path | None,
    asked: dict[str, Any],
    as_json: bool,
    full: bool,
) -> None:
    from armillary.results.compare import compare as compared
    from armillary.results.compare import read_loosely

    read = [None if folder is None else read_loosely(folder) for folder in folders]
    notes = tuple(note for entry in read if entry is not None for note in entry[1])
    surveys: list[Any] = [None if entry is None else entry[0] for entry in read]
    similarity = None
    if None in surveys:
        surveys, similarity, further = _surveyed(surveys, names, out, asked)
        notes += further
    first, second = surveys
    _write(compared(first, second, notes=notes, similarity=similarity), out, as_json, full)


def _stored(name: str) -> Path | None:
    """The folder of a survey, or None for a model."""
    path = Path(name)
    if path.name == "survey.json" or (path / "survey.json").exists():
        return path
    holds_model = path.is_file() or any((path / file).exists() for file in ("config.json", "recipe.json"))
    if path.is_dir() and not holds_model:
        raise ArmillaryError(
            f"{name} is a folder without survey.json and without config.json, so neither a survey nor a model; give "
            "the folder that `armillary survey --out` wrote, or a model."
        )
    return None


def _check(folders: list[Path | None], out: Path | None, asked: dict[str, Any]) -> None:
    """Refuse bad options before anything is read or loaded."""
    given = [f"--{name.replace('_', '-')}" for name, value in asked.items() if value not in (None, False)]
    if None not in folders and given:
        raise ArmillaryError(
            f"A and B are both stored surveys, so {', '.join(given)} would change nothing; leave it out."
        )
    if asked["claims"]:
        from armillary.probes import choose

        choose(asked["claims"])
    if out is not None and out.suffix.lower() in _PICTURES:
        raise ArmillaryError(f"{out} {ending(out)}; give a folder, or a file in {' '.join(_ENDINGS)}.")
    if out is not None:
        from armillary.results.store import check_writable

        check_writable(out.parent if out.suffix.lower() in _ENDINGS else out)


_ENDINGS = (".html", ".json", ".csv")
# Any other ending may belong to a folder's name: v1.5.
_PICTURES = (".png", ".svg", ".pdf", ".tex")


def _surveyed(
    surveys: list[Any], names: tuple[str, str], out: Path | None, asked: dict[str, Any]
) -> tuple[list[Any], Any, tuple[str, ...]]:
    """Survey models with the same settings, and compare their streams where both are at hand.

    Defaults for tokens and claims are those of a stored survey, if given.
    """
    from armillary import run
    from armillary.anatomy.loading.load import locate
    from armillary.flow.documents import from_any, from_path
    from armillary.flow.machine.memory import keep_pages
    from armillary.readouts.similarity import PASSAGES, QUICK_PASSAGES, passages, sample_states
    from armillary.views.text.progress import wants_progress
    from armillary.views.text.quoting import show_text

    keep_pages()
    stored = next((survey for survey in surveys if survey is not None), None)
    tokens, claims = asked["tokens"], asked["claims"]
    if stored is not None:
        tokens = (stored.text.budget or None) if tokens is None else tokens
        claims = ",".join(finding.id for finding in stored) if claims is None else claims
    # Read once, since standard input cannot be read twice.
    documents = from_any(None) if asked["text"] is None else from_path(asked["text"])
    how = {"tokens": tokens, "claims": "all" if claims is None else claims, "quick": asked["quick"]}
    # New surveys are saved beside the comparison, if that has a folder.
    homes = [None, None] if out is None or out.suffix.lower() in _ENDINGS else [out / "a", out / "b"]
    words = passages(documents, QUICK_PASSAGES if asked["quick"] else PASSAGES) if stored is None else []
    loading = {name: asked[name] for name in ("device", "dtype", "trust_remote_code")}
    for survey, name in zip(surveys, names, strict=True):
        if survey is None:
            # A second model that is not there is refused before the first is surveyed.
            locate(name, trust=asked["trust_remote_code"])
    measured, sampled, notes = [], [], []
    for letter, survey, name, home in zip("AB", surveys, names, homes, strict=True):
        if survey is not None:
            measured.append(survey)
            continue
        if wants_progress():
            # Each survey has a bar of its own, from 0 % on.
            say(f"armillary: surveying {letter}, {show_text(name)}", err=True)
        anatomy = run.load(name, **loading)
        measured.append(run.survey(anatomy, documents, out=home, jobs=None, **how))
        if words:
            try:
                sampled.append(sample_states(anatomy, words))
            except ArmillaryError as error:
                notes.append(f"the streams were not compared: {str(error).rstrip('.')}")
        del anatomy
    similarity, further = _similarity(sampled)
    return measured, similarity, (*notes, *further)


def _similarity(sampled: list[Any]) -> tuple[Any, tuple[str, ...]]:
    """How alike the streams are, or why they were not compared."""
    if len(sampled) < 2:
        return None, ()
    from armillary.readouts.similarity import compare_states

    try:
        return compare_states(*sampled), ()
    except ArmillaryError as error:
        return None, (f"the streams were not compared: {str(error).rstrip('.')}",)


def _write(comparison: Any, out: Path | None, as_json: bool, full: bool) -> None:
    from armillary.views.compare.comparison import comparison_json, print_comparison, save_all

    if out is not None:
        if out.suffix.lower() in _ENDINGS:
            comparison.save(out)
        else:
            save_all(comparison, out)
    if as_json:
        echo_json(comparison_json(comparison))
        return
    from rich.console import Console

    print_comparison(comparison, Console(file=sys.stdout), out, full)
