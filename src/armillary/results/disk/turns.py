"""How do processes take turns where the kernel has no locks? By names: who sees another's beside its own waits.

A name is there at once and whole, and no other process has the same, so it can be removed without harm. Of two that put
down their names at the same time each sees the other's, so that at most one goes on; often neither does, and both try
again after a moment of their own.
"""

import os
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A turn takes milliseconds; a name that is older by so many seconds was left by a process that was killed.
OLD = 10.0
# The longest pause before another attempt, in seconds.
PAUSE = 0.2


@contextmanager
def a_turn(path: Path) -> Iterator[bool]:
    """Whether this process is the only one that now begins with the file; where it is not, only after a pause."""
    mine = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    mine.touch(exist_ok=False)
    try:
        yield _is_alone(mine, path)
    finally:
        with suppress(OSError):
            mine.unlink()


def _is_alone(mine: Path, path: Path) -> bool:
    # The clock is the disk's: that of this machine may differ from another's.
    now, alone = os.stat(mine).st_mtime, True
    for name in os.listdir(path.parent):
        if not name.startswith(f"{path.name}.") or name == mine.name:
            continue
        other = path.with_name(name)
        with suppress(FileNotFoundError):
            if now - os.lstat(other).st_mtime > OLD:
                other.unlink()
                continue
            alone = False
    if not alone:
        mine.unlink()
        time.sleep(random.uniform(0, PAUSE))
    return alone
