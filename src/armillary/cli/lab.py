"""The command line of the laboratory: `armillary lab train`, `run`, `show`, `exam`, `plot`, `card`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, complete_models, echo_json

if TYPE_CHECKING:
    from armillary.lab.study.queue import Spread


MOST = 10_000
"""Seeds or processes."""


@click.group()
def lab() -> None:
    """Train small models, follow their geometry during training, and examine them."""


@lab.command()
@click.option(
    "--preset", default="smoke", show_default=True, metavar="NAME", help="smoke (CPU, seconds) or builtin (GPU)."
)
@click.option(
    "--text", metavar="PATH", help="A text file (also .xz, .gz) or a folder of them. [default: the built-in sample]"
)
@click.option("--heldout", metavar="PATH", help="Text to validate on. [default: the last twentieth of --text]")
@click.option("--out", type=PATH, required=True, metavar="DIR", help="The run's folder; a killed run resumes there.")
@click.option("--architecture", default="gpt", show_default=True, metavar="A", help="gpt or llama.")
@click.option("--steps", type=int, metavar="N", help="Training steps, instead of the preset's.")
@click.option("--batch", type=int, metavar="N", help="Windows per step.")
@click.option("--vocabulary", type=int, metavar="N", help="Tokens in the vocabulary.")
@click.option("--rate", type=float, metavar="R", help="Highest learning rate.")
@click.option("--seed", type=int, metavar="N", help="Seed of the weights and of the order of the text. [default: 0]")
@click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]")
@partial(
    friendly,
    interrupted="the same command resumes from the run's last checkpoint, if there is one",
    smaller="use a smaller --batch",
)
def train(
    preset: str, text: str | None, heldout: str | None, out: Path, architecture: str, device: str | None, **given: Any
) -> None:
    """Train a model on a text, and write a folder in the hub's layout that `armillary survey` reads."""
    from armillary.lab.recipe import recipe

    changes = {name: value for name, value in given.items() if value is not None}
    recipe(preset, architecture, **changes)
    from armillary.lab.data import check_source
    from armillary.results.disk.files import check_writable, not_left_empty

    for path in (text, heldout):
        if path is not None:
            check_source(path)
    how: dict[str, Any] = {"heldout": heldout, "architecture": architecture, "device": device}
    with not_left_empty(out):
        check_writable(out)
        from armillary import laboratory

        folder = laboratory.train(preset, text, out, **how, **changes)
    say(laboratory.summary(folder))


@lab.command("run")
@click.argument("study", metavar="STUDY")
@click.option("--preset", default="smoke", show_default=True, metavar="P",
              help="smoke (a minute or two), cpu (up to half an hour) or gpu (the sizes of docs/lab).")  # fmt: skip
@click.option("--size", metavar="NAME", help="smoke, cpu, xs, xs-scarce, s-short, s or m, instead of the preset's.")
@click.option("--text", metavar="PATH", help="A text file (also .xz, .gz) or a folder. [default: the built-in sample]")
@click.option("--heldout", metavar="PATH", help="Text to validate on. [default: the last twentieth of --text]")
@click.option("--seeds", type=int, metavar="N", help="Paired runs per arm, instead of the preset's 3, 5 or 8.")
@click.option("--jobs", default=1, show_default=True, metavar="N", help="Arms trained in parallel.")
@click.option("--dask", metavar="ADDRESS", help="Train arms on a dask cluster that shares --out, or on local:N.")
@click.option("--survey", is_flag=True, help="Survey the end state of each arm: what did it do to the geometry?")
@click.option("--arms", metavar="LIST", help="Comma-separated arms of the study. [default: all]")
@click.option(
    "--out", type=PATH, required=True, metavar="DIR", help="The study's folder; a killed study resumes there."
)
@click.option("--known", type=PATH, multiple=True, metavar="DIR",
              help="Reuse the runs of the same model from these studies.")  # fmt: skip
@click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]")
@partial(friendly, interrupted="repeat the command to continue after the last finished run")
def run_study(study: str, out: Path, arms: str | None, jobs: int, text: str | None, heldout: str | None,
              device: str | None, survey: bool, dask: str | None, known: tuple[Path, ...],
              **amount: Any) -> None:  # fmt: skip
    """Train the arms of STUDY in pairs and compare their losses.

    gate, stability, norms, symmetriser, layout, expansion, softheads, activations, implicit, metric, rank or mismatch
    (docs/lab.md), or all: each in its own folder of --out.
    """
    from armillary.lab.study.arms import STUDIES

    names = list(STUDIES) if study == "all" else [study]
    wanted = _arms(study, arms)
    size, seeds = _amount(jobs=jobs, **amount)
    if dask is not None:
        from armillary.survey_states import check_dask

        check_dask(dask)
    from armillary.lab.data import Text, check_source

    for path in (text, heldout):
        if path is not None:
            check_source(path)
    from armillary.anatomy.loading.load import pick_device
    from armillary.lab.study.conclusions.outcome import outcome
    from armillary.lab.study.queue import Study
    from armillary.laboratory import SAMPLE, survey_states
    from armillary.views.text.lab.study import study_text

    source, on = Text.of(SAMPLE if text is None else text, heldout), pick_device(device)
    for index, name in enumerate(names):
        folder = out / name if study == "all" else out
        if study == "all":
            say(f"study {index + 1} of {len(names)}: {name}", err=True)
        queue = Study(name, size, source, folder, seeds, on, lambda line: say(line, err=True), known)
        with _spread(dask) as spread:
            queue.run(wanted, jobs, spread)
        if survey:
            survey_states(folder, queue.report)
        say(study_text(outcome(folder)), nl=False)


@contextmanager
def _spread(dask: str | None) -> "Iterator[Spread | None]":
    """How arms are trained on a cluster; None without one."""
    if dask is None:
        yield None
        return
    from armillary.probes.machinery.processes.cluster import cluster_of

    with cluster_of(dask) as cluster:
        yield cluster.map


def _arms(study: str, asked: str | None) -> list[str]:
    """The arms asked for; none for all of them."""
    from armillary.errors import ArmillaryError, nearest
    from armillary.lab.study.arms import STUDIES, arms_of

    if study not in (*STUDIES, "all"):
        raise ArmillaryError(f"there is no study {study!r}; {nearest(study, [*STUDIES, 'all'])}")
    if asked is None:
        return []
    if study == "all":
        raise ArmillaryError("--arms chooses arms of one study, and all were asked for; name the study.")
    known = [arm.name for arm in arms_of(study)]
    # The name of an arm may itself contain a comma.
    wanted = [asked.strip()] if asked.strip() in known else [name.strip() for name in asked.split(",")]
    for name in wanted:
        if name not in known:
            raise ArmillaryError(f"the study {study} has no arm {name!r}; {nearest(name, known)}")
    return wanted


def _amount(preset: str, size: str | None, seeds: int | None, jobs: int) -> tuple[str, int]:
    """The size and the number of seeds: the preset's, unless given."""
    from armillary.errors import ArmillaryError, nearest
    from armillary.lab.study.design import PRESETS, SIZES

    if preset not in PRESETS:
        raise ArmillaryError(f"there is no preset {preset!r}; {nearest(preset, PRESETS)}")
    if size is not None and size not in SIZES:
        raise ArmillaryError(f"there is no size {size!r}; {nearest(size, SIZES)}")
    for option, number in (("--seeds", seeds), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise ArmillaryError(f"{option} {number} leaves nothing to run; give at least 1.")
        if number is not None and number > MOST:
            raise ArmillaryError(f"{option} {number} is more than any study needs; give at most {MOST}.")
    return size or PRESETS[preset].size, seeds or PRESETS[preset].seeds


@lab.command()
@click.argument("folders", type=PATH, nargs=-1, required=True)
@click.option(
    "--out", type=PATH, metavar="FILE", help="Also its page as .html, forest plot as .png, .svg or .pdf, table as .csv."
)
@click.option("--survey", is_flag=True, help="First survey the end states that the study has stored.")
@friendly
def show(folders: tuple[Path, ...], out: Path | None, survey: bool) -> None:
    """Show the results so far of the study in FOLDERS.

    Arms of further folders are judged together with those of the first, where its claim is about both: symmetriser
    and norms.
    """
    if survey:
        from armillary.laboratory import survey_states

        survey_states(folders[0], lambda line: say(line, err=True))
    from armillary.lab.study.conclusions.outcome import together
    from armillary.views.text.lab.study import study_text

    result = together(folders)
    # Its manifest may come from anywhere.
    say(study_text(result), nl=False)
    if out is not None:
        from armillary.views.figures.lab.study import save_study

        say(f"{save_study(result, out)}")


@lab.command()
@click.argument("model", default="builtin:gpt", shell_complete=complete_models)
@click.option(
    "--text", metavar="PATH", help="Text that the model has not seen. [default: the run's held-out text, or the sample]"
)
@click.option("--training", metavar="PATH", help="The model's training text, for a Kneser–Ney 5-gram as a baseline.")
@click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@friendly
def exam(model: str, text: str | None, training: str | None, device: str | None, as_json: bool) -> None:
    """Examine a causal language model: bits per byte, copying, the logit lens, samples.

    In the folder of a run, exam.json is written as well.
    """
    import json

    from armillary import laboratory
    from armillary.lab.card import results

    answers = laboratory.examine(model, text, training=training, device=device)
    if as_json:
        echo_json(json.dumps(answers, indent=2, ensure_ascii=False) + "\n")
        return
    from armillary.views.text.quoting import show_text

    width = max(len(name) for name, _ in results(answers))
    for name, value in results(answers):
        say(f"{name:<{width}}  {value}")
    for sample in answers["samples"]:
        say("\n" + "\n".join(map(show_text, sample.split("\n"))))


@lab.command()
@click.argument("model", default="builtin:gpt", shell_complete=complete_models)
@click.option("--out", type=PATH, default=Path("training.html"), show_default=True, metavar="FILE",
              help="An .html page, a .png or .svg picture, or the numbers as .csv.")  # fmt: skip
@friendly
def plot(model: str, out: Path) -> None:
    """Draw how a model's geometry changed during training: MODEL is the folder of a run, or a built-in model."""
    from armillary import laboratory
    from armillary.views.figures.lab.training import save_training

    say(f"{save_training(laboratory.training(model), model, out)}")


@lab.command("card")
@click.argument("folder", type=PATH)
@click.option("--title", default="A model trained by Armillary", show_default=True, metavar="T")
@click.option("--about", default="", metavar="TEXT", help="Text about the data and its licence.")
@click.option("--command", default="armillary lab train", metavar="C", help="The command that trained it.")
@friendly
def write_card(folder: Path, title: str, about: str, command: str) -> None:
    """Write card.md of a run from its recipe, log and exam."""
    from armillary.lab.card import card
    from armillary.results.store import write_whole
    from armillary.views.text.quoting import show_text

    write_whole({folder / "card.md": card(folder, title, about, command, show_text)})
    say(f"{folder / 'card.md'}")
