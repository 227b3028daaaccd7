"""How long will a study still take? By the runs that are finished, whichever process made them."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """Runs to make since the start, counted in the file that all processes append to."""

    path: Path
    began: float
    before: int
    """Lines of the file at the start."""
    wanted: int
    """Runs that were missing then."""

    @classmethod
    def of(cls, path: Path, wanted: int) -> "Progress":
        return cls(path, time.time(), _lines(path), wanted)

    def left(self) -> str:
        """'3 of 156 runs, about 4 min left'."""
        done = max(1, _lines(self.path) - self.before)
        seconds = (time.time() - self.began) / done * max(0, self.wanted - done)
        return f"{done} of {max(done, self.wanted)} runs, about {spoken(seconds)} left"


def spoken(seconds: float) -> str:
    """
    >>> spoken(40), spoken(600), spoken(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
