"""The command `armillary travel`: a sentence's trajectory."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly
from armillary.cli.terminal.options import PATH, complete_models, load, loading
from armillary.errors import ArmillaryError

# Most bytes of a text.
LONGEST = 1 << 24


@click.command()
@click.argument("model", required=False, shell_complete=complete_models)
@click.argument("sentence", required=False)
@click.option(
    "--projection", default="pca", show_default=True, metavar="P",
    help="pca; span (one word's start, its end and the next word, with true angles); pacmap or umap (extras).",
)  # fmt: skip
@click.option(
    "--word", type=int, metavar="N", help="Follow the Nth token (1 is the first). [default: all; span: the last]"
)
@click.option("--sublayers", is_flag=True, help="Also the states between attention and feed-forward.")
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Words listed per state.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N",
              help="Seed of the projection and of the sampled words.")  # fmt: skip
@click.option("--out", type=PATH, default=Path("travel.html"), show_default=True, metavar="FILE",
              help="A page (.html), a picture (.svg .pdf .png), the numbers (.csv) or everything (.json).")  # fmt: skip
@loading
@partial(friendly, smaller="use a smaller model, a shorter sentence or a smaller --dtype")
def travel(model: str | None, sentence: str | None, out: Path, **asked: Any) -> None:
    """Draw the trajectory of SENTENCE's words over the sphere, layer by layer, as MODEL reads it.

    \b
    armillary travel "To kill two birds with one stone"       the default model
    armillary travel smollm2 "To kill two birds with one stone" --projection span --word 4 --out birds.svg
    armillary travel builtin:gpt - < chapter.txt       a long text: a sample of words is drawn
    """
    model, sentence = _model_and_sentence(model, sentence)
    if sentence == "-":
        sentence = _from_standard_input()
    # Bad options are refused before the slow imports.
    from armillary.readouts.trajectory import check, trajectory
    from armillary.views.travel.formats import check_out, print_trajectory

    check(sentence, asked["projection"], asked["top"], asked["word"])
    check_out(out)
    from rich.console import Console

    anatomy = load(model, asked)
    path = trajectory(anatomy, sentence, **asked)
    path.save(out)
    print_trajectory(path, Console(file=sys.stdout), out)


def _model_and_sentence(first: str | None, second: str | None) -> tuple[str, str]:
    """A sentence alone is read by the default model; a model alone is an error."""
    if first is not None and second is not None:
        return first, second
    # A name has no spaces, a sentence does; a path may have some.
    if first is not None and (first == "-" or len(first.split()) > 1) and not Path(first).exists():
        return "", first
    given = "nothing was given" if first is None else f"only {first!r} was given, which looks like a model"
    example = "armillary travel 'To kill two birds with one stone'"
    raise ArmillaryError(f"armillary travel takes a model and a sentence, or a sentence only; {given}; try: {example}.")


def _from_standard_input() -> str:
    """A sentence; what has no end is not waited for."""
    from armillary.flow.sources.text_files import standard_input

    content = standard_input().read(LONGEST + 1)
    if len(content) > LONGEST:
        raise ArmillaryError(f"standard input holds more than {LONGEST >> 20} MiB, too much for a sentence; give less.")
    return content.decode("utf-8", "surrogateescape")
