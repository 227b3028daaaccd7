"""The command that draws many surveys as one matrix: `armillary matrix`."""

from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, echo_table
from armillary.errors import ArmillaryError, ending


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PATH, metavar="DIRS...")
@click.option("--out", type=PATH, metavar="FILE", help="A page (.html), or a table (.csv), in place of the terminal.")
@click.option(
    "--format", "kind", type=click.Choice(["csv", "markdown", "latex"]), help="Print it for a paper or a spreadsheet."
)
@friendly
def matrix(folders: tuple[Path, ...], out: Path | None, kind: Any) -> None:
    """Draw stored surveys as a matrix of verdicts: claims by models, sizes, or checkpoints of one training run.

    A column is named for its folder. Folders NAME-0, NAME-1 … are training runs of one model and share a column. A
    folder without survey.json stands for all surveys in it.

    \b
    armillary matrix survey/gpt survey/llama survey/vit --out kinds.html
    armillary matrix run/surveys --format latex > checkpoints.tex
    """
    if out is not None and kind is not None:
        raise ArmillaryError("--out writes a file and --format prints; choose one.")
    if out is not None and out.suffix.lower() not in (".html", ".csv"):
        raise ArmillaryError(f"{out} {ending(out)}; give a file that ends in .html or .csv.")
    from armillary.results.compare import read_loosely
    from armillary.results.compare.matrix import Matrix

    homes = [home for folder in folders for home in _surveys(folder)]
    read = [read_loosely(home) for home in homes]
    notes = [f"{home}: {note}" for home, (_, more) in zip(homes, read, strict=True) for note in more]
    drawn = Matrix.of([survey for survey, _ in read], _names(homes), notes)
    from armillary.views.compare.matrix import matrix_export, print_matrix, save_matrix

    if out is not None:
        say(f"{save_matrix(drawn, out)} has {len(drawn.claims)} claims and {len(drawn.columns)} columns")
    elif kind is not None:
        echo_table(matrix_export(drawn, kind))
    else:
        from rich.console import Console

        print_matrix(drawn, Console())


def _surveys(folder: Path) -> list[Path]:
    """The folder of a survey, or those inside it."""
    folder = folder.parent if folder.name == "survey.json" else folder
    if (folder / "survey.json").exists():
        return [folder]
    inside = sorted(path.parent for path in folder.glob("*/survey.json")) if folder.is_dir() else []
    if not inside:
        raise ArmillaryError(f"{folder} holds no survey.json; give folders that `armillary survey --out` wrote.")
    return inside


def _names(homes: list[Path]) -> list[str]:
    """The last part of each path; more of it where two would be alike."""
    parts = [home.resolve().parts for home in homes]
    for length in range(1, 5):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(home) for home in homes]
