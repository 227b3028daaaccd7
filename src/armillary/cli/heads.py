"""The command line of read-outs: `armillary heads` and `armillary paper`."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, complete_models, echo_json, echo_table, load, loading
from armillary.errors import ArmillaryError, nearest

FORMATS = ("table", "csv", "json", "latex")
careful = partial(friendly, smaller="use a smaller model, fewer layers or a smaller --dtype")


@click.command()
@click.argument("model", default="", required=False, shell_complete=complete_models)
@click.option("--layer", metavar="L", help="A layer, or a list: 0,3 or first,middle,last or all.")
@click.option("--head", type=int, metavar="H", help="A head's number within its layer.")
@click.option(
    "--word", metavar="W", help="A word: the keys it prefers, the queries that prefer it, what is written for it."
)
@click.option("--matrix", metavar="M", help="qk or vo (ov is the same). [default: both]")
@click.option(
    "--offset", type=int, metavar="Δ", help="Under RoPE: how many positions the query is after its key. [default: 0]"
)
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Words per list.")
@click.option(
    "--directions", type=int, default=10, show_default=True, metavar="N", help="Singular pairs to show in words."
)
@click.option(
    "--ranking", default="dot", show_default=True, metavar="R", help="How to rank words: dot (product) or cosine."
)
@click.option(
    "--format", "shape", default="table", show_default=True, metavar="F",
    help="table, csv (the main table), json or latex.",
)  # fmt: skip
@click.option("--out", type=PATH, metavar="DIR", help="Write README.md, tables/ and figures/ here.")
@loading
@careful
def heads(model: str, shape: str, out: Path | None, **asked: Any) -> None:
    """Read MODEL's heads in numbers and in words: an atlas of all heads, some heads, or one word in them.

    \b
    armillary heads                          every head: strength, roles, null space
    armillary heads --layer 3 --head 2       singular values, and the words at both ends
    armillary heads --layer 3 --word time    its keys, its queries, and what is written for it
    """
    if shape not in FORMATS:
        raise ArmillaryError(f"there is no format {shape!r}; {nearest(shape, FORMATS)}")
    _check(asked, out)
    from armillary import readouts
    from armillary.views.text.progress import progress_bar

    anatomy = load(model, asked)
    with progress_bar(True) as bar:
        sheet = readouts.heads(anatomy, progress=bar.bytes, **asked)
    if out is not None:
        from armillary.results.sheets.sheet import Sheets

        Sheets(f"Heads of {anatomy.name}", (sheet,), sheet.about, sheet.notes).save(out)
    _print(sheet, shape, out)


@click.command()
@click.argument("model", default="", required=False, shell_complete=complete_models)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Folder for tables and figures.")
@click.option(
    "--layers", default="first,middle,last", show_default=True, metavar="LIST", help="all, or a list such as 0,3,5."
)
@click.option("--bare", is_flag=True, help="Nouns as bare strings, without a leading space.")
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Words per list.")
@click.option(
    "--ranking", default="dot", show_default=True, metavar="R", help="How to rank words: dot (product) or cosine."
)
@click.option(
    "--text",
    metavar="PATH",
    help="Sentences for E10: a file, a folder, or - for standard input. [default: the built-in sample]",
)
@loading
@careful
def paper(model: str, out: Path, **asked: Any) -> None:
    """Repeat the experiments of 'Traveling Words' (arXiv:2309.07315) on MODEL, as tables and figures.

    Distances of embeddings from their directions, extreme tokens, keys and values of the 100 most frequent nouns,
    read-outs of singular vectors and biases, cumulative singular values, a sentence's trajectory over the sphere, a
    circle through norm and W_QK, and how states come to predict the next word.
    """
    _check(asked, out)
    if asked["text"] is not None:
        from armillary.flow.documents import from_path

        asked["text"] = from_path(asked["text"])
    from armillary import readouts
    from armillary.views.sheets.sheet import sheets_text
    from armillary.views.text.progress import progress_bar

    anatomy = load(model, asked)
    with progress_bar(True) as bar:
        sheets = readouts.paper(anatomy, progress=bar.bytes, **asked)
        bar.bytes("writing files", 0, 0)
        sheets.save(out)
    say(sheets_text(sheets, folder=out))


def _check(asked: dict[str, Any], out: Path | None) -> None:
    """Refuse bad options before anything slow is imported."""
    from armillary.readouts.settings import check_counts, pick_matrices, pick_ranking
    from armillary.results.disk.files import can_be_written

    check_counts(asked["top"], asked.get("directions", 1))
    pick_ranking(asked["ranking"])
    pick_matrices(asked.get("matrix"))
    if out is not None:
        can_be_written(out)


def _print(sheet: Any, shape: str, out: Path | None) -> None:
    if shape == "table":
        from rich.console import Console

        from armillary.views.sheets.sheet import print_sheet

        print_sheet(sheet, Console(file=sys.stdout), out)
        return
    from armillary.results.store import table_csv
    from armillary.views.sheets.latex import sheet_latex
    from armillary.views.sheets.sheet import sheet_json

    writers: dict[str, Any] = {"csv": lambda sheet: table_csv(sheet.table), "json": sheet_json, "latex": sheet_latex}
    (echo_json if shape == "json" else echo_table)(writers[shape](sheet))
