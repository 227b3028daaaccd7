"""What the server was given to show: models by name, stored surveys, studies and trainings. Nothing else is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import OutputError
from armillary.serve.model_process import Source

if TYPE_CHECKING:
    from armillary.lab.study.conclusions.outcome import StudyOutcome
    from armillary.results import Survey


BUILTIN = ("builtin:gpt", "builtin:llama")
"""Always offered: they are part of the package."""


@dataclass(frozen=True, eq=False)
class Library:
    """Names that a visitor may choose from; paths stay on this side."""

    models: Mapping[str, Source]
    surveys: Mapping[str, "Survey"] = field(default_factory=dict)
    studies: Mapping[str, "StudyOutcome"] = field(default_factory=dict)
    runs: Mapping[str, Path] = field(default_factory=dict)
    """Folders of trainings that were given."""

    @cached_property
    def trainings(self) -> dict[str, list[dict[str, Any]]]:
        """Name → evaluations along a training, of built-in models and of folders that were given."""
        from armillary.anatomy.loading.catalogue import shipped
        from armillary.lab.log import evaluations

        folders = {f"builtin:{name}": folder for name, folder in shipped().items()} | dict(self.runs)
        logs = {name: evaluations(folder) for name, folder in folders.items() if (folder / "log.jsonl").is_file()}
        return {name: looks for name, looks in logs.items() if looks}


def check_named(name: str) -> None:
    """Refuse a path that leads to no model before a page is served; what is fetched by name is looked for later."""
    from armillary.anatomy.loading.load import locate, split_part

    named, _ = split_part(name)
    if named.startswith((".", "/", "~", "builtin:")) or named.endswith(".gguf"):
        locate(named)


def gather(
    models: Sequence[str],
    surveys: Sequence[Path] = (),
    studies: Sequence[Path] = (),
    runs: Sequence[Path] = (),
    options: Mapping[str, Any] | None = None,
) -> Library:
    """Everything that was named on the command line; a survey of another version is refused here, by name."""
    from armillary.results.store import read_survey

    for name in models:
        check_named(name)
    names = list(dict.fromkeys([*models, *BUILTIN]))
    sources = {
        label: Source(name, dict(options or {}), label=label) for label, name in zip(_labels(names), names, strict=True)
    }
    for folder in runs:
        if not (folder / "log.jsonl").is_file():
            raise OutputError(f"{folder} has no log.jsonl; give the folder of a training (armillary lab train).")
    return Library(
        models=sources,
        surveys=dict(zip(_labels(surveys), map(read_survey, surveys), strict=True)),
        studies=dict(zip(_labels(studies), map(_study, studies), strict=True)),
        runs=dict(zip(_labels(runs), runs, strict=True)),
    )


def _study(folder: Path) -> "StudyOutcome":
    from armillary.lab.study.conclusions.outcome import outcome

    return outcome(folder)


def _labels(names: Sequence[str | Path]) -> list[str]:
    """Names that fit into a list: of a path its last part, numbered where two would be alike.

    >>> _labels(["builtin:gpt", "a/run", "b/run"])
    ['builtin:gpt', 'run', 'run (2)']
    """
    labels: list[str] = []
    for name in map(str, names):
        short = (name if name.startswith("builtin:") else Path(name).resolve().name or name)[-60:]
        again = sum(label == short or label.startswith(f"{short} (") for label in labels)
        labels.append(f"{short} ({again + 1})" if again else short)
    return labels
