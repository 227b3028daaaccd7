"""The command line of one sentence's way: `armillary travel`."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from armillary.cli.errors import friendly
from armillary.cli.heads import loading
from armillary.errors import ArmillaryError


@click.command()
@click.argument("model", required=False)
@click.argument("sentence", required=False)
@click.option(
    "--projection", default="pca", show_default=True, metavar="P",
    help="pca; span (one word's start, its end and the next word, with true angles); pacmap or umap (extras).",
)  # fmt: skip
@click.option(
    "--word", type=int, metavar="N", help="Follow the Nth token (1 is the first). [default: all; span: the last]"
)
@click.option("--sublayers", is_flag=True, help="Also the states between attention and feed-forward.")
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Words that a state reads as.")
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Of the projection, and of the words drawn."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("travel.html"), show_default=True, metavar="FILE",
    help="An .html page, an .svg or .png picture, the numbers as .csv or all of it as .json.",
)  # fmt: skip
@loading
@partial(friendly, smaller="use a smaller model, a shorter sentence or a smaller --dtype")
def travel(model: str | None, sentence: str | None, out: Path, **asked: Any) -> None:
    """Draw the way of SENTENCE's words over the sphere, layer by layer, as MODEL reads it.

    \b
    armillary travel builtin:gpt "To kill two birds with one stone"
    armillary travel smollm2 "To kill two birds with one stone" --projection span --word 4 --out birds.svg
    armillary travel builtin:gpt - < chapter.txt       a long text: some words are drawn, angles are of all
    """
    if model is None or sentence is None:
        given = "nothing was given" if model is None else f"only {model!r} was given"
        raise ArmillaryError(f"armillary travel takes a model and a sentence, and {given}; try: armillary travel builtin:gpt 'To kill two birds with one stone'.")  # fmt: skip
    load = {name: asked.pop(name) for name in ("device", "dtype", "trust_remote_code")}
    if sentence == "-":
        sentence = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    # Before the slow imports: what can be refused is refused at once.
    from armillary.readouts.trajectory import check, journey
    from armillary.views.travel.trajectory import check_out, print_journey

    check(sentence, asked["projection"], asked["top"], asked["word"])
    check_out(out)
    from rich.console import Console

    from armillary import run

    made = journey(run.load(model, progress=sys.stderr.isatty(), **load), sentence, **asked)
    made.save(out)
    print_journey(made, Console(file=sys.stdout), out)
