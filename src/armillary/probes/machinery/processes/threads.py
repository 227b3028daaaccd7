"""How are many small decompositions done at once?

Matrices of a few hundred rows are too small to share between threads: two threads on one eigenvalue problem wait for
each other at every step (on a busy machine, a hundred times longer than they work). One site per thread scales.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def over_sites(sites: Sequence[str], work: Callable[[str], T]) -> dict[str, T]:
    """`work` for every site, one thread each, in the order of the sites."""
    import torch

    threads = torch.get_num_threads()
    if threads == 1:
        return {site: work(site) for site in sites}
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(threads, os.cpu_count() or 1)) as pool:
            return dict(zip(sites, pool.map(work, sites), strict=True))
    finally:
        torch.set_num_threads(threads)
