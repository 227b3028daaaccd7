"""A progress bar on standard error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Bar:
    """Progress on standard error, by rich; or nothing at all."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar
        self._task: Any = None

    def start(self, what: str, total: int) -> None:
        if self._bar is None:
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=total or None)

    def say(self, what: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=what)

    def advance(self, amount: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While something else is printed, the bar is not there."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def bytes(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            return
        if self._task is None:
            self.start(what, total)
        self._bar.update(self._task, description=what, completed=done, total=total or None)


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Bar]:
    if not wanted:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    # Standard output is left alone: it may be a file while the bar is on a terminal.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        yield Bar(bar)
