"""Save a trajectory as a page, a picture, a table or JSON, and print it in a terminal."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from armillary.errors import OutputError
from armillary.results.store import check_writable, json_text, table_csv, write_whole
from armillary.results.trajectory import Trajectory
from armillary.views.text.quoting import show_text
from armillary.views.text.survey import new_console, print_lines, printed, table_lines, wrapped
from armillary.views.travel.captions import caption, notes, score_lines, summary, title

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "check_out",
    "print_trajectory",
    "save_trajectory",
    "trajectory_figure",
    "trajectory_html",
    "trajectory_text",
]
_ENDINGS = (".html", ".svg", ".png", ".csv", ".json")


def check_out(path: Path) -> None:
    """Refuse, before anything is computed, a file that cannot be written."""
    _check_ending(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file in it, such as {path / 'travel.html'}.")
    if path.suffix.lower() == ".png" and find_spec("kaleido") is None:
        raise OutputError(
            "a .png needs kaleido: pip install 'armillary[png]', or save as .svg or .html, which need no extra."
        )
    check_writable(path.parent)


def save_trajectory(trajectory: Trajectory, path: Path) -> Path:
    """The page (.html), the picture (.svg .png), the table (.csv) or everything (.json)."""
    from armillary.views.travel.page import trajectory_page
    from armillary.views.travel.svg import picture_svg

    path = Path(path)
    _check_ending(path)
    if path.suffix.lower() == ".png":
        return _save_png(trajectory, path)
    writers: dict[str, Callable[[], str]] = {
        ".html": lambda: trajectory_page(trajectory),
        ".svg": lambda: picture_svg(trajectory)[0],
        ".csv": lambda: table_csv(trajectory.table),
        ".json": lambda: trajectory_json(trajectory),
    }
    write_whole({path: writers[path.suffix.lower()]()})
    return path


def _check_ending(path: Path) -> None:
    if path.suffix.lower() not in _ENDINGS:
        asked = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise OutputError(f"{path} {asked}; choose one of {' '.join(_ENDINGS)}.")


def _save_png(trajectory: Trajectory, path: Path) -> Path:
    """The picture as a browser renders it."""
    from armillary.views.save import save_figure
    from armillary.views.sheets.drawing import painted
    from armillary.views.travel.svg import picture_svg

    return save_figure(painted(*picture_svg(trajectory, both=False)), str, "", path)


def trajectory_json(trajectory: Trajectory) -> str:
    """Everything, as deterministic JSON; NaN becomes null."""
    record: dict[str, Any] = (
        {"title": title(trajectory)}
        | vars(trajectory)
        | {"readings": [[[vars(reading) for reading in words] for words in states] for states in trajectory.readings]}
    )
    return json_text(record)


def trajectory_html(trajectory: Trajectory) -> str:
    from armillary.views.travel.page import notebook_html

    return notebook_html(trajectory)


def trajectory_figure(trajectory: Trajectory) -> "go.Figure":
    from armillary.views.travel.interactive import figure

    return figure(trajectory)


def trajectory_text(trajectory: Trajectory, width: int | None = None, colour: bool = False) -> str:
    console = new_console(width, colour)
    print_trajectory(trajectory, console)
    return printed(console)


def print_trajectory(trajectory: Trajectory, console: Console, path: Path | None = None) -> None:
    """Print the title, one row per word, and the scores of the projection."""
    width = min(console.width, 140)
    lines = wrapped(Text(title(trajectory), "bold"), width, 0)
    lines += wrapped(Text(caption(trajectory), "dim"), width, 0)
    lines += [Text(), *table_lines(summary(trajectory), width, 48), Text()]
    first, *scores = score_lines(trajectory)
    lines += wrapped(Text(f"{first}: {' · '.join(scores)}" if scores else first), width, 0)
    for note in notes(trajectory)[1:]:
        lines += wrapped(Text(note, "dim"), width, 0)
    lines += wrapped(Text(f"File: {show_text(str(path))}", "dim"), width, 0) if path else []
    print_lines(lines, console)
