"""Who writes to a folder? One process at a time: others are refused while it lives."""

import errno
import json
import os
import platform
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from armillary.errors import OutputError
from armillary.results.disk.files import read_bytes, stage, strict_json, why_not
from armillary.results.disk.folder_swap import LOCK, tidy

# Disks that know no second name for a file.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder belongs to this process until the end; the lock of a process that died is taken over."""
    path = Path(folder) / LOCK
    _take(path)
    try:
        tidy(Path(folder))
        yield
    finally:
        path.unlink(missing_ok=True)


def _take(path: Path) -> None:
    mine = {"pid": os.getpid(), "born": _born(os.getpid()), "host": platform.node()}
    content = json.dumps(mine | {"since": datetime.now(UTC).isoformat(timespec="seconds")})
    part = None
    try:
        # Written before it has its name: nobody ever sees a lock that does not say whose it is.
        part = stage(path, content)
        for _ in range(2):
            try:
                _name(part, path, content)
                return
            except FileExistsError:
                _refuse_if_held(path, mine)
                _remove_stale(path, mine)
            except FileNotFoundError:
                break  # another holds the folder, and has tidied it
    except OSError as error:
        raise OutputError(why_not(path, error)) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
    raise OutputError(f"another process has just begun to write to {path.parent}; choose another folder.")


def _name(part: Path, path: Path, content: str) -> None:
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with path.open("x", encoding="utf-8") as file:
            file.write(content)


def _remove_stale(path: Path, mine: Mapping[str, object]) -> None:
    """Remove the lock of a process that is gone; of two that find it, one may already hold the folder anew."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    try:
        _refuse_if_held(aside, mine)
    except OutputError:
        with suppress(OSError):
            os.link(aside, path)
        raise
    finally:
        if aside.is_dir() and not aside.is_symlink():
            aside.rmdir()
        else:
            aside.unlink(missing_ok=True)


def _refuse_if_held(path: Path, mine: Mapping[str, object]) -> None:
    try:
        holder = strict_json(read_bytes(path))
        pid, born, host, since = (holder[key] for key in ("pid", "born", "host", "since"))
    except (OSError, ValueError, KeyError, TypeError):
        return  # a lock that was never written to the end
    if host != mine["host"]:
        raise OutputError(
            f"a process on {host!s:.80} has written to {path.parent} since {since!s:.40}; choose another folder, or "
            f"delete {path} if that process is gone."
        )
    if _born(pid) == born:
        raise OutputError(
            f"process {pid} has written to {path.parent} since {since!s:.40}; wait for it or choose another folder."
        )


def _born(pid: object) -> float | None:
    """When a process began, which tells it from a later one with its number; None if there is none."""
    import psutil

    try:
        return psutil.Process(pid).create_time() if isinstance(pid, int) else None
    except (psutil.Error, ValueError, OverflowError):
        return None
