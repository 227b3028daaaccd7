"""How are files read and written so that nothing is half there? Regular files alone; written aside, then renamed."""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from armillary.errors import OutputError

# A byte-level token can be half a character, which strict UTF-8 cannot encode.
CODEC = ("utf-8", "surrogatepass")
# Temporary files, left if the process was killed.
PART = re.compile(r"\.(.+)\.[0-9a-f]{8}\.part")
WRITTEN: list[Path] = []
"""What this process has written so far, for whoever must say so when it is interrupted."""


# Records and tables are smaller by far. A file with a hole is as large as somebody says, and needs no space on disk.
LARGEST = 1 << 29


def read_bytes(path: Path, most: int | None = LARGEST) -> bytes:
    """A regular file's bytes; of a pipe, a device or a file of /proc, which may never end, an `OSError`. So of a file
    above `most` bytes."""
    check_regular(path)
    size = os.stat(path).st_size
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"it has {size / 2**30:.1f} GiB, too much for such a file", str(path))
    return path.read_bytes() if size else b""


def check_regular(path: str | os.PathLike[str]) -> None:
    """An `OSError` where something else stands in a file's place."""
    if not is_regular(path):
        raise OSError(errno.EINVAL, "it is not a regular file")


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Is it a file whose end can be reached? An `OSError` where nothing is there.

    Files of the kernel's own file systems call themselves regular and empty, and some never end.
    """
    state = os.stat(path)
    return stat.S_ISREG(state.st_mode) and not (state.st_size == 0 and in_kernel(path))


# The kernel's own file systems; /dev/shm is memory like any other disk.
KERNEL, MEMORY = ("/proc", "/sys", "/dev"), "/dev/shm"


def in_kernel(path: str | os.PathLike[str]) -> bool:
    """Is it one of the kernel's own files or folders, such as /proc, by whatever link?"""
    parts = Path(os.path.realpath(path)).parts
    return any(parts[:2] == Path(place).parts for place in KERNEL) and parts[:3] != Path(MEMORY).parts


def is_readable(path: str | os.PathLike[str]) -> bool:
    """The same of a path that may lead nowhere, or be none."""
    try:
        return is_regular(path)
    except (OSError, ValueError):
        return False


def strict_json(content: bytes | str) -> Any:
    """JSON by the book, or a `ValueError`: no NaN, no key twice, no nesting without end."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=each_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """What a regular file of strict JSON says; an `OSError` or a `ValueError` of anything else."""
    return strict_json(read_bytes(path))


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it contains {name}, which is not JSON")


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        doubled = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ValueError(f"it contains {doubled[:40]!r} twice")
    return record


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode(*CODEC) if isinstance(content, str) else content).hexdigest()


def stage(target: Path, content: str | bytes) -> Path:
    """The content on disk under a temporary name beside its target."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    with not_left_empty(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as stream:
                stream.write(content.encode(*CODEC) if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    return part


def write_whole(files: Mapping[Path, str | bytes]) -> None:
    """Write all files or none: each under a temporary name first, then renamed in the order given."""
    staged: dict[Path, Path] = {}
    current = Path()
    try:
        for current, content in files.items():
            staged[current] = stage(current, content)
        for current, temporary in staged.items():
            os.replace(temporary, current)
            WRITTEN.append(current)
        sync_folders({path.parent for path in staged})
    except OSError as error:
        raise OutputError(why_not(current, error)) from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def check_writable(folder: Path) -> Path:
    """Create the folder and check that a file can be written there, before hours are spent on its content."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(b"armillary")
    except OSError as error:
        raise OutputError(why_not(Path(folder), error)) from error
    return Path(folder)


def can_be_written(folder: Path) -> None:
    """The same for a folder that is made later: a run that fails leaves none behind."""
    with not_left_empty(folder):
        check_writable(folder)


@contextmanager
def not_left_empty(folder: Path | None) -> Iterator[None]:
    """Folders that are made for a result on the way are not left behind where nothing was written."""
    created = []
    if folder is not None:
        there = Path(os.path.abspath(folder))
        while not os.path.lexists(there):
            created.append(there)
            there = there.parent
    try:
        yield
    finally:
        for empty in created:
            # For a name that is too long, os.path returns False where Path raises.
            if not os.path.isdir(empty) or any(empty.iterdir()):
                break
            empty.rmdir()


def remove_tree(folder: Path) -> None:
    """Remove a folder of this program with all that is in it, as far as that can be done; nothing else is touched."""
    # The standard library opens what it removes, and would wait for whoever writes into a pipe.
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def remove_parts(folder: Path, names: re.Pattern[str]) -> None:
    """Remove temporary files whose targets have such names; a killed process left them."""
    for path in folder.glob(".*.part") if folder.is_dir() else ():
        if (match := PART.fullmatch(path.name)) and names.fullmatch(match[1]):
            path.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What a disk refuses while `path` is written, as an error that a user can put right."""
    try:
        yield
    except OSError as error:
        raise OutputError(why_not(path, error)) from error


def why_not(path: Path, error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            reason = "the disk is full; free some space or choose another folder"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            reason = "permission denied; choose a folder that you may write to"
        case errno.EEXIST | errno.ENOTDIR:
            reason = "a file stands where a folder should be; choose another folder"
        case _:
            reason = f"{error.strerror or error}; choose another folder"
    return f"{path} cannot be written: {reason}."


def sync_folders(folders: set[Path]) -> None:
    # A rename survives a power failure only once its folder is synced; Windows cannot open folders.
    for folder in folders if os.name == "posix" else ():
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
