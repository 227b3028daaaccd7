"""A run that fails before it has written anything leaves no folder behind."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def no_empty_folders(folder: Path | None) -> Iterator[None]:
    """Folders on the way to `folder` that are made meanwhile and are empty at the end are removed."""
    missing = [] if folder is None else [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    finally:
        for path in missing:
            # The first that holds something keeps the rest.
            with suppress(OSError):
                path.rmdir()
