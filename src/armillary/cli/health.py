"""The command that asks whether something is wrong with a model: `armillary health`."""

import sys
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly
from armillary.cli.terminal.options import PATH, complete_models, echo_json, loading
from armillary.errors import ArmillaryError, ending

BAD = 1


@click.command()
@click.argument("model", default="", required=False, shell_complete=complete_models)
@click.option("--against", metavar="BASE", shell_complete=complete_models,
              help="A second model, to compare with on the same text.")  # fmt: skip
@click.option(
    "--text", metavar="PATH", help="A file, a folder, or - for standard input. [default: the built-in sample]"
)
@click.option("--tokens", type=int, metavar="N", help="How many tokens to read. [default: 2500]")
@click.option("--out", type=PATH, metavar="FILE", help="Write a page (.html), everything (.json) or the table (.csv).")
@click.option("--strict", is_flag=True, help="Exit with 1 if anything is bad, for a training pipeline.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@loading
@friendly
def health(model: str, out: Path | None, strict: bool, as_json: bool, **asked: Any) -> None:
    """Check MODEL: loss, length and rank of the stream, outliers, heads, units, norms, embeddings, room in float16.

    \b
    armillary health                                  the default model, on the built-in text
    armillary health ./tuned --against ./base         what got worse
    armillary health ./checkpoint --strict --json     in a pipeline: exit code 1 if anything is bad
    """
    if out is not None and out.suffix.lower() not in (".html", ".json", ".csv"):
        raise ArmillaryError(f"{out} {ending(out)}; give a file in .html, .json or .csv.")
    from armillary.flow.machine.memory import keep_pages
    from armillary.health_check import health as check
    from armillary.run import DEFAULT_MODEL, DEFAULT_TOKENS

    keep_pages()
    asked["tokens"] = DEFAULT_TOKENS if asked["tokens"] is None else asked["tokens"]
    asked["text"] = None if asked["text"] is None else _documents(asked["text"])
    result = check(model or DEFAULT_MODEL, **asked)
    if out is not None:
        result.save(out)
    if as_json:
        from armillary.results.store import json_text

        echo_json(json_text(result.to_dict()))
    else:
        from rich.console import Console

        from armillary.views.text.health import print_health

        print_health(result, Console(file=sys.stdout))
    if strict and result.status == "bad":
        raise SystemExit(BAD)


def _documents(path: str) -> Any:
    from armillary.flow.documents import from_path

    return from_path(path)
