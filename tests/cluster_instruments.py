"""Instruments that go wrong on a worker of a cluster. They have a module of their own that workers can import."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery.instrument import MODEL, SHUFFLED


@dataclass(frozen=True)
class DiesOnce:
    """Lengths; the first worker that sees a third site with it is killed there, in the middle of a segment."""

    flag: str
    name: ClassVar[str] = "dies"
    arms: ClassVar[tuple[str, ...]] = (MODEL, SHUFFLED)
    overwrites: ClassVar[bool] = False

    def start(self, anatomy, corpus, seed):
        watch = LENGTHS.start(anatomy, corpus, seed)
        see, seen = watch.see, []

        def dying(site, view):
            seen.append(site)
            # The process that asks starts one, too, to know an empty state; it sees nothing.
            if len(seen) == 3:
                with suppress(FileExistsError), open(self.flag, "x") as file:
                    file.write(str(os.getpid()))
                    file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
            see(site, view)

        watch.see = dying
        return watch

    def count(self, state):
        return LENGTHS.count(state)

    def bytes(self, anatomy):
        return LENGTHS.bytes(anatomy)


@dataclass(frozen=True)
class Raises(DiesOnce):
    flag: str = ""
    name: ClassVar[str] = "raises"

    def start(self, anatomy, corpus, seed):
        watch = LENGTHS.start(anatomy, corpus, seed)
        watch.see = lambda site, view: _raise()
        return watch


def _raise():
    raise ZeroDivisionError("planted")
