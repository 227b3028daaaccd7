"""Who writes to a folder? One process at a time: others are refused while it lives."""

import json
import os
import platform
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

from armillary.errors import OutputError
from armillary.results.disk.files import strict_json, why_not
from armillary.results.disk.folder_swap import LOCK, tidy
from armillary.results.disk.turns import a_turn

if sys.platform != "win32":
    import fcntl

# How often a lock may be removed by its holder between this process's opening it and taking it.
ATTEMPTS = 100
# The record of a holder is some 120 bytes long.
LONGEST = 4096
# Seconds by which two readings of a process's start may differ: the start of the machine is known in whole ones.
CLOCK = 2.0
HELD: set[int] = set()
"""Open files of this process's locks."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder belongs to this process until the end.

    The kernel holds the lock (`flock`) and frees it however the process ends. What is written in the file says who
    holds it, and decides where the kernel cannot: for a process of another machine, on some disks, and on Windows.
    """
    path = Path(folder) / LOCK
    handle = _take(path)
    try:
        tidy(Path(folder))
        yield
    finally:
        # Not in a child that was forked meanwhile.
        if handle in HELD:
            _release(path, handle)


def _take(path: Path) -> int:
    for _ in range(ATTEMPTS):
        try:
            handle = _open(path)
            try:
                free = _flock(handle)
                with nullcontext(True) if free is not None else a_turn(path) as alone:
                    if alone and _is_free(handle, path, free) and _is_at(handle, path):
                        _sign(handle, path)
                        return handle
            except BaseException:
                _close(handle)
                raise
            _close(handle)
        except OSError as error:
            raise OutputError(why_not(path, error)) from error
    raise OutputError(f"other processes keep writing to {path.parent}; choose another folder.")


def _open(path: Path) -> int:
    """The file of the lock, which is made where there is none; what is no file and stands in its place is removed."""
    with suppress(FileNotFoundError):
        state = os.lstat(path)
        if stat.S_ISDIR(state.st_mode):
            path.rmdir()
        elif not stat.S_ISREG(state.st_mode):
            path.unlink()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    HELD.add(handle)
    return handle


def _close(handle: int) -> None:
    HELD.discard(handle)
    os.close(handle)


def _is_free(handle: int, path: Path, free: bool | None) -> bool:
    """Whether nobody holds the lock, or an `OutputError` that says who does; `free` is what the kernel knows."""
    owner = _owner(handle)
    host, since = owner.get("host", platform.node()), owner.get("since")
    if host != platform.node():
        raise OutputError(
            f"a process on {host!s:.80} has written to {path.parent} since {since!s:.40}; choose another folder, or "
            f"delete {path} if that process is gone."
        )
    if free or (free is None and not _lives(owner.get("pid"), owner.get("born"))):
        return True
    if "pid" not in owner:
        raise OutputError(f"another process has just started to write to {path.parent}; choose another folder.")
    raise OutputError(
        f"process {owner['pid']!s:.20} has written to {path.parent} since {since!s:.40}; wait for it or choose another "
        "folder."
    )


def _owner(handle: int) -> Mapping[str, object]:
    """What the lock says of its holder; nothing where that was never written to its end."""
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        record = strict_json(os.read(handle, LONGEST))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _flock(handle: int) -> bool | None:
    """Whether the kernel's lock is this process's now; None where a disk or a system has no such locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file is still at the path: its holder may have removed it, and another made a new one."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _sign(handle: int, path: Path) -> None:
    owner = {"pid": os.getpid(), "born": _born(os.getpid()), "host": platform.node()}
    content = json.dumps(owner | {"since": datetime.now(UTC).isoformat(timespec="seconds")})
    try:
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, content.encode())
        os.fsync(handle)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _release(path: Path, handle: int) -> None:
    with suppress(OSError):
        # Somebody may have deleted this process's lock by hand, and another process may have put its own in the place.
        mine = _is_at(handle, path)
        if sys.platform == "win32":
            _close(handle)  # Windows removes no open file
        if mine:
            path.unlink()
    if sys.platform != "win32":
        _close(handle)


def _forget() -> None:
    """A forked child holds none of its parent's locks, also where it outlives it."""
    while HELD:
        os.close(HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _lives(pid: object, born: object) -> bool:
    now = _born(pid)
    return now is not None and isinstance(born, int | float) and abs(now - born) < CLOCK


def _born(pid: object) -> float | None:
    """Seconds from the machine's start to a process's, which tell it from a later one with its number; None if gone.

    Not by the clock of the day: where that is set, all processes would seem to have begun at another time.
    """
    import psutil

    try:
        return psutil.Process(pid).create_time() - psutil.boot_time() if isinstance(pid, int) else None
    except (psutil.Error, ValueError, OverflowError):
        return None
