"""Progress on standard error: a bar on a terminal, lines elsewhere, one for the whole of a task.

A task may say beforehand what its stages cost (`expect`); the bar then covers all of them, and its time left follows
from the share that is done.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from armillary.views.text.summary import duration

# Seconds between two lines where there is no terminal.
PAUSE = 15.0
SCALE = 1000


class Bar:
    """Progress by rich on a terminal, by lines through `write` elsewhere; or nothing at all."""

    def __init__(
        self, bar: Any = None, write: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bar = bar
        self._write = write
        self._clock = clock
        self._task: Any = None
        self._began = self._wrote = clock()
        self._what = ""
        self._done, self._total = 0.0, 0.0
        self._stages: dict[str, float] = {}
        """Shares of the whole, of stages not begun yet."""
        self._before, self._share = 0.0, 1.0
        """What earlier stages make of the whole, and this stage's own share."""
        self._begun = 0.0
        """Of this stage, what is under way beyond what is done."""
        self._marks: list[tuple[float, float]] = []
        """When which share was reached first."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Stages in their order, with what each should take: from here on the bar is one over all of them."""
        total = sum(seconds.values()) or 1.0
        self._stages = {name: cost / total for name, cost in seconds.items()}
        self._before, self._share = 0.0, 0.0
        self._begin()

    def start(self, what: str, total: float) -> None:
        """Begin a stage; one that was expected continues the bar, any other has a bar of its own."""
        if what in self._stages:
            self._before += self._share
            self._share = self._stages.pop(what)
        elif self._share in (0.0, 1.0):
            self._before, self._share = 0.0, 1.0
            self._begin()
        self._what, self._done, self._begun, self._total = what, 0.0, 0.0, float(total)
        self._show()

    def say(self, what: str, begun: float = 0.0) -> None:
        """What is being done; `begun` counts like `advance`, until either is called again."""
        self._what, self._begun = what, begun
        self._show()

    def advance(self, amount: float, begun: float = 0.0) -> None:
        self._done, self._begun = self._done + amount, begun
        self._show()

    def _begin(self) -> None:
        self._began, self._marks = self._clock(), []

    def bytes(self, what: str, done: int, total: int) -> None:
        self._what, self._done, self._total = what, float(done), float(total)
        self._show()

    @property
    def share(self) -> float:
        """Of the whole, in 0 to 1."""
        within = min(1.0, (self._done + self._begun) / self._total) if self._total else 0.0
        return min(1.0, self._before + self._share * within)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the later half of what is done; None while hardly anything is.

        Stages are expected, not known: a first one that takes longer than expected says little of the others.
        """
        share = self.share
        if share < 0.02:
            return None
        before, then = max((mark for mark in self._marks if mark[0] <= share / 2), default=(0.0, self._began))
        return (self._clock() - then) * (1 - share) / (share - before)

    @property
    def _left(self) -> str:
        return "" if self.seconds_left is None else duration(self.seconds_left)

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

    def _show(self) -> None:
        if not self._marks or self.share >= self._marks[-1][0] + 0.005:
            self._marks.append((self.share, self._clock()))
        if self._bar is not None:
            known = self._total > 0
            if self._task is None:
                self._task = self._bar.add_task(self._what, total=SCALE, left="")
            left = f"{self._left} left" if self._left and known else ""
            self._bar.update(self._task, description=self._what, completed=SCALE * self.share, left=left)
        elif self._write is not None and self._clock() - self._wrote >= PAUSE:
            self._wrote = self._clock()
            left = f", {self._left} left" if self._left else ""
            share = f"{self.share:.0%}{left}: " if self._total else ""
            self._write(f"armillary: {share}{self._what}")


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Bar]:
    """A bar where standard error is a terminal, a line every 15 seconds where it is not; ARMILLARY_PROGRESS=0: none."""
    if not wanted or os.environ.get("ARMILLARY_PROGRESS") == "0":
        yield Bar()
        return
    if not sys.stderr.isatty():
        yield Bar(write=lambda line: print(line, file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}"),
    )
    # Standard output is left alone: it may be a file while the bar is on a terminal.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        yield Bar(bar)
