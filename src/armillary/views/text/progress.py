"""Progress on standard error: a bar on a terminal, lines elsewhere, one for the whole of a task.

A task may say beforehand what its stages cost (`expect`); the bar then covers all of them. The time left is a range, as
wide as the paces that were measured differ: what stages cost is expected, not known, and machines are shared.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from armillary.views.text.summary import rough_duration

# Seconds between two lines where there is no terminal.
PAUSE = 15.0
SCALE = 1000
# Before so much is done, and so many seconds have passed, no time left is said: the first stages say too little.
SETTLED, WAITED = 0.1, 10.0
# Paces are measured over the last parts of what is done; how far either end is moved beyond them, at the start. Four
# runs of 3 to 17 minutes, two cores shared with ten processes: a range held the truth in 41 to 93 % of all moments, one
# half as wide again in 85 to 100 %.
PARTS = (1.0, 0.5, 0.25, 0.1)
WIDER = 1.0
# A range narrower than this factor is said as one number.
ONE = 1.4


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
    def seconds_left(self) -> tuple[float, float] | None:
        """At least and at most, by the fastest and the slowest pace of late; None while little is done.

        Expected costs may be wrong by stage, and other processes come and go, so the ends are wider apart the more is
        still to do.
        """
        share, now = self.share, self._clock()
        if share < SETTLED or now - self._began < WAITED:
            return None
        paces = []
        for part in PARTS:
            start = share * (1 - part)
            before, then = max((mark for mark in self._marks if mark[0] <= start), default=(0.0, self._began))
            paces.append((now - then) / (share - before))
        wider = 1 + WIDER * (1 - share)
        return min(paces) * (1 - share) / wider, max(paces) * (1 - share) * wider

    @property
    def _left(self) -> str:
        return "" if self.seconds_left is None else f"{time_range(*self.seconds_left)} left"

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
            left = self._left if known else ""
            self._bar.update(self._task, description=self._what, completed=SCALE * self.share, left=left)
        elif self._write is not None and self._clock() - self._wrote >= PAUSE:
            self._wrote = self._clock()
            left = f", {self._left}" if self._left else ""
            share = f"{self.share:.0%}{left}: " if self._total else ""
            self._write(f"armillary: {share}{self._what}")


def time_range(low: float, high: float) -> str:
    """As exactly as it can be meant.

    >>> time_range(100, 130), time_range(100, 330), time_range(40, 65), time_range(3000, 8000), time_range(2, 3)
    ('about 2 min', '2 to 6 min', '40 s to 1 min', '50 min to 2 h', 'less than 10 s')
    """
    ends = rough_duration(low), rough_duration(high)
    if high <= 10:
        return "less than 10 s"
    if high <= ONE * low or ends[0] == ends[1]:
        return "about {} {}".format(*rough_duration((low * high) ** 0.5))
    (first, unit), (last, last_unit) = ends
    return f"{first} to {last} {unit}" if unit == last_unit else f"{first} {unit} to {last} {last_unit}"


def wants_progress() -> bool:
    return os.environ.get("ARMILLARY_PROGRESS") != "0"


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Bar]:
    """A bar where standard error is a terminal, a line every 15 seconds where it is not; ARMILLARY_PROGRESS=0: none."""
    if not wanted or not wants_progress():
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
