"""The command line of read-outs: `armillary heads` and `armillary paper`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from armillary.cli.errors import friendly
from armillary.errors import ArmillaryError, nearest

FORMATS = ("table", "csv", "json", "latex")
LOADING: tuple[Callable[..., Any], ...] = (
    click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]"),
    click.option("--dtype", metavar="T", help="float32, bfloat16 or float16. [default: float32]"),
    click.option("--trust-remote-code", is_flag=True, help="Run code that the model's folder brings along."),
)
careful = partial(friendly, smaller="use a smaller model, fewer layers or a smaller --dtype")


def loading(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how a model is loaded."""
    for option in reversed(LOADING):
        command = option(command)
    return command


@click.command()
@click.argument("model", default="", required=False)
@click.option("--layer", metavar="L", help="A layer, or a list: 0,3 or first,middle,last or all.")
@click.option("--head", type=int, metavar="H", help="A head's number within its layer.")
@click.option(
    "--word", metavar="W", help="A word: the keys it looks for, the queries that look for it, what is written."
)
@click.option("--matrix", metavar="M", help="qk or vo (ov is the same). [default: both]")
@click.option(
    "--offset", type=int, metavar="Δ", help="Under RoPE: how many places a query stands after its key. [default: 0]"
)
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Words in a list.")
@click.option(
    "--directions", type=int, default=10, show_default=True, metavar="N", help="Singular pairs read in words."
)
@click.option("--ranking", default="dot", show_default=True, metavar="R", help="Of words: dot (product) or cosine.")
@click.option("--format", "shape", default="table", show_default=True, metavar="F", help="table, csv (the main table), json or latex.")  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write README.md, tables/ and figures/ here."
)
@loading
@careful
def heads(model: str, shape: str, out: Path | None, **asked: Any) -> None:
    """Read MODEL's heads: an atlas of all of them, or some of them or a word in numbers and in words.

    \b
    armillary heads                          every head: strength, roles, what it can see
    armillary heads --layer 3 --head 2       singular values and the words at both ends
    armillary heads --layer 3 --word time    its keys, its queries, what is written for it
    """
    if shape not in FORMATS:
        raise ArmillaryError(f"there is no format {shape!r}; {nearest(shape, FORMATS)}")
    load = {name: asked.pop(name) for name in ("device", "dtype", "trust_remote_code")}
    _check(asked, out)
    from armillary import readouts, run
    from armillary.views.text.progress import progress_bar

    shown = sys.stderr.isatty()
    anatomy = run.load(model or run.DEFAULT_MODEL, progress=shown, **load)
    with progress_bar(shown) as bar:
        sheet = readouts.heads(anatomy, progress=bar.bytes, **asked)
    if out is not None:
        from armillary.results.sheet import Sheets
        from armillary.views.save import save_sheets

        save_sheets(Sheets(f"Heads of {anatomy.name}", (sheet,), sheet.about, sheet.notes), out)
    _print(sheet, shape, out)


@click.command()
@click.argument("model", default="", required=False)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The folder for tables and figures."
)
@click.option(
    "--layers", default="first,middle,last", show_default=True, metavar="LIST", help="all, or a list such as 0,3,5."
)
@click.option("--bare", is_flag=True, help="Nouns as bare strings, without the space before them.")
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Words in a list.")
@click.option("--ranking", default="dot", show_default=True, metavar="R", help="Of words: dot (product) or cosine.")
@click.option(
    "--text", metavar="PATH", help="Sentences for E10: a file, a folder, or - for standard input. [default: built in]"
)
@loading
@careful
def paper(model: str, out: Path, **asked: Any) -> None:
    """Repeat the experiments of 'Traveling Words' (arXiv:2309.07315) on MODEL, as tables and figures.

    Distances of embeddings from their directions, extreme tokens, keys and values of the 100 commonest nouns, read-outs
    of singular vectors and of biases, cumulative singular values, a sentence's way over the sphere, what norm and W_QK
    make of a circle, and how states come to say the next word.
    """
    load = {name: asked.pop(name) for name in ("device", "dtype", "trust_remote_code")}
    _check(asked, out)
    if asked["text"] is not None:
        from armillary.flow.documents import from_path

        asked["text"] = from_path(asked["text"])
    from armillary import readouts, run
    from armillary.views.sheet import sheets_text
    from armillary.views.text.progress import progress_bar

    shown = sys.stderr.isatty()
    anatomy = run.load(model or run.DEFAULT_MODEL, progress=shown, **load)
    with progress_bar(shown) as bar:
        made = readouts.paper(anatomy, progress=bar.bytes, **asked)
        bar.bytes("writing files", 0, 0)
        made.save(out)
    click.echo(sheets_text(made, folder=out))


def _check(asked: dict[str, Any], out: Path | None) -> None:
    """What can be refused before anything heavy is imported."""
    from armillary.readouts.ask import check_directions, check_top, pick_matrices, pick_ranking
    from armillary.results.store import check_writable

    check_top(asked["top"])
    check_directions(asked.get("directions", 1))
    pick_ranking(asked["ranking"])
    pick_matrices(asked.get("matrix"))
    if out is not None:
        check_writable(out)


def _print(sheet: Any, shape: str, out: Path | None) -> None:
    if shape == "table":
        from rich.console import Console

        from armillary.views.sheet import print_sheet

        print_sheet(sheet, Console(file=sys.stdout), out)
        return
    from armillary.results.store import table_csv
    from armillary.views.sheet import sheet_json
    from armillary.views.text.latex import sheet_latex

    text = {
        "csv": lambda: table_csv(sheet.table),
        "json": lambda: sheet_json(sheet),
        "latex": lambda: sheet_latex(sheet),
    }
    # As bytes: these are UTF-8 whatever the terminal is.
    click.echo(text[shape]().encode("utf-8", "surrogatepass"), nl=False)
