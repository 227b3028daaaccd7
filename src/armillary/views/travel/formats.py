"""A trajectory in a terminal and as JSON, and a check of the file that it is saved to."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from armillary.errors import OutputError
from armillary.results.disk.files import can_be_written
from armillary.results.sheets.trajectory import Trajectory
from armillary.results.store import json_text
from armillary.views.figures.paint import MISSING
from armillary.views.save import check_ending
from armillary.views.text.quoting import show_text
from armillary.views.text.survey import as_text, paragraphs, print_lines, table_lines
from armillary.views.travel.captions import caption, notes, score_lines, summary, title

_ENDINGS = (".html", ".svg", ".pdf", ".png", ".csv", ".json")


def check_out(path: Path) -> None:
    """Refuse, before anything is computed, a file that cannot be written."""
    check_ending(path, _ENDINGS)
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file in it, such as {path / 'travel.html'}.")
    kind = path.suffix.lower().removeprefix(".")
    if kind in ("png", "pdf") and find_spec("matplotlib") is None:
        raise OutputError(MISSING.format(kind=kind))
    can_be_written(path.parent)


def trajectory_json(trajectory: Trajectory) -> str:
    """Everything, as deterministic JSON; NaN becomes null."""
    record: dict[str, Any] = (
        {"title": title(trajectory)}
        | vars(trajectory)
        | {"readings": [[[vars(reading) for reading in words] for words in states] for states in trajectory.readings]}
    )
    return json_text(record)


def trajectory_text(trajectory: Trajectory) -> str:
    return as_text(lambda console: print_trajectory(trajectory, console))


def print_trajectory(trajectory: Trajectory, console: Console, path: Path | None = None) -> None:
    """Print the title, one row per word, and the scores of the projection."""
    width = min(console.width, 140)
    lines = paragraphs([title(trajectory)], width, "bold") + paragraphs([caption(trajectory)], width)
    lines += [Text(), *table_lines(summary(trajectory), width, 48), Text()]
    first, *scores = score_lines(trajectory)
    lines += paragraphs([f"{first}: {' · '.join(scores)}" if scores else first], width, "")
    lines += paragraphs([*notes(trajectory)[1:], *([f"File: {show_text(str(path))}"] if path else [])], width)
    print_lines(lines, console)
