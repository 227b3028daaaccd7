"""Keep freed memory pages in the process.

A forward pass frees and takes the same megabytes layer after layer. glibc returns them and asks again, and on a virtual
machine the page faults cost up to a third of the pass (measured: half a million faults, 1.1 s of 5.5, for one batch).
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_pages() -> bool:
    """Keep what this process frees until it ends. Only for a process of our own: it cannot be undone."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)) and bool(libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1))
    except (OSError, AttributeError):  # another C library
        return False
