"""Who writes to a folder? One process at a time: others are refused while it lives."""

import errno
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from armillary.errors import OutputError
from armillary.results.disk.files import read_bytes, stage, strict_json, why_not
from armillary.results.disk.folder_swap import LOCK, tidy

if sys.platform != "win32":
    import fcntl

# Seconds to wait while another process looks at the lock, which takes milliseconds.
PATIENCE = 5.0
# Seconds by which two readings of a process's start may differ: the start of the machine is known in whole ones.
CLOCK = 2.0
# Disks that know no second name for a file.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder belongs to this process until the end; the lock of a process that died is taken over."""
    path = Path(folder) / LOCK
    content = _take(path)
    try:
        tidy(Path(folder))
        yield
    finally:
        # Somebody may have deleted this process's lock by hand, and another process may have put its own in the place.
        with suppress(OSError):
            if read_bytes(path) == content.encode():
                path.unlink(missing_ok=True)


def _take(path: Path) -> str:
    owner = {"pid": os.getpid(), "born": _born(os.getpid()), "host": platform.node()}
    content = json.dumps(owner | {"since": datetime.now(UTC).isoformat(timespec="seconds")})
    try:
        # Written before it has its name: nobody ever sees a lock that does not say whose it is.
        part = stage(path, content)
        try:
            with _turn(path.parent) as mine:
                if mine and _named(part, path, content, owner):
                    return content
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(why_not(path, error)) from error
    raise OutputError(f"another process has just begun to write to {path.parent}; choose another folder.")


def _named(part: Path, path: Path, content: str, owner: Mapping[str, object]) -> bool:
    """Whether the lock is this process's now; not if another came first, and perhaps tidied the folder."""
    if os.path.lexists(path):
        _refuse_if_held(path, owner)
        _remove(path)
    try:
        _name(part, path, content)
    except (FileExistsError, FileNotFoundError):
        return False
    return True


def _name(part: Path, path: Path, content: str) -> None:
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with path.open("x", encoding="utf-8") as file:
            file.write(content)


@contextmanager
def _turn(folder: Path) -> Iterator[bool]:
    """Whether this process may act on what it sees of the folder's lock: one process of a machine at a time.

    Without this, of three that meet the lock of a dead one, the third removes what the second has put in its place.
    Where a system or a disk has no such locks, the first name decides alone.
    """
    handle = None
    try:
        if sys.platform != "win32":
            with suppress(OSError):
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        yield handle is None or _flock(handle)
    finally:
        if handle is not None:
            os.close(handle)


def _flock(handle: int) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.002)
        except OSError:
            return True
    return False


def _remove(stale: Path) -> None:
    if stale.is_dir() and not stale.is_symlink():
        stale.rmdir()
    else:
        stale.unlink(missing_ok=True)


def _refuse_if_held(path: Path, owner: Mapping[str, object]) -> None:
    try:
        holder = strict_json(read_bytes(path))
        pid, born, host, since = (holder[key] for key in ("pid", "born", "host", "since"))
    except (OSError, ValueError, KeyError, TypeError):
        return  # a lock that was never written to the end
    if host != owner["host"]:
        raise OutputError(
            f"a process on {host!s:.80} has written to {path.parent} since {since!s:.40}; choose another folder, or "
            f"delete {path} if that process is gone."
        )
    if _lives(pid, born):
        raise OutputError(
            f"process {pid} has written to {path.parent} since {since!s:.40}; wait for it or choose another folder."
        )


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
