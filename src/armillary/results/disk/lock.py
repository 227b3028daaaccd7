"""Who writes to a folder? One process at a time: others are refused while it lives."""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from armillary.errors import OutputError
from armillary.results.disk.files import read_bytes, strict_json, why_not
from armillary.results.disk.folder_swap import tidy

NAME = ".armillary.lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder belongs to this process until the end; the lock of a process that died is taken over."""
    path = Path(folder) / NAME
    _take(path)
    try:
        tidy(Path(folder))
        yield
    finally:
        path.unlink(missing_ok=True)


def _take(path: Path) -> None:
    mine = {"pid": os.getpid(), "born": _born(os.getpid()), "host": platform.node()}
    content = json.dumps(mine | {"since": datetime.now(UTC).isoformat(timespec="seconds")})
    for _ in range(2):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
            return
        except FileExistsError:
            _refuse_if_held(path, mine)
            # Its owner is gone. A second process that finds the same may be first: then the next attempt fails.
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(why_not(path, error)) from error
    raise OutputError(f"another process has just begun to write to {path.parent}; choose another folder.")


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
