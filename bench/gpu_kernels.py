"""How long do the kernels that read rows take by themselves, and with how many threads and rows per program?"""

from collections.abc import Callable, Iterator

import torch

from armillary.geometry.fused import paths, sphere_rows
from armillary.geometry.fused.paths import Paths
from armillary.geometry.fused.row_statistics import directions, row_statistics
from armillary.geometry.fused.sphere_rows import statistics_and_directions

N, SITES, WORDS = 16384, 16, 8192


class Rows:
    """Rows of sixteen sites, and what kernels need beside them."""

    def __init__(self, d: int, centred: bool) -> None:
        self.d, self.centred = d, centred
        with torch.device("cuda"):
            self.rows = [torch.randn(N, d).bfloat16() for _ in range(SITES)]
            self.stats, self.z = torch.empty(SITES, 7, N), torch.empty(SITES, N, d, dtype=torch.float16)
            self.bounds, self.shifts = torch.full((SITES,), 500.0), torch.zeros(SITES, d)
            self.counts, self.every = torch.ones(N, dtype=torch.int8), torch.arange(N)
            words, gain = torch.randn(WORDS, d).bfloat16(), torch.ones(d)
            self.ids = torch.randint(0, WORDS, (3, N))
        self.paths = Paths(words, gain, gain, SITES)

    def three(self) -> None:
        """Statistics, directions and their sums, one after the other."""
        row_statistics(self.rows, self.centred, 1e-5, self.stats)
        known = (self.stats, self.every, self.centred, 1e-5, self.bounds, self.shifts, self.z)
        directions(self.rows, *known).unflatten(1, (2, -1)).sum(2, dtype=torch.float32)

    def once(self) -> None:
        """All of them in one read."""
        known = (self.centred, 1e-5, self.stats, self.counts, self.bounds, self.shifts, self.z)
        statistics_and_directions(self.rows, *known).sum(1, dtype=torch.float64)

    def path(self) -> None:
        """Products of states with words and with each other."""
        self.paths.begin(N, *self.ids)
        self.paths.take(self.rows, self.stats, self.centred, 1e-5)


def kernel_times() -> Iterator[tuple[str, float]]:
    """Name and milliseconds of every variant."""
    from triton.testing import do_bench

    def took(work: Callable[[], None]) -> float:
        return float(do_bench(work, warmup=10, rep=40, return_mode="median"))

    usual = sphere_rows.ROWS, sphere_rows.THREADS, paths.THREADS
    for d, centred in ((576, False), (2048, False)):
        rows = Rows(d, centred)
        yield f"d {d}, three reads", took(rows.three)
        for each, threads in ((32, 2), (8, 2), (32, 4), (8, 1)):
            sphere_rows.ROWS, sphere_rows.THREADS = each, threads
            yield f"d {d}, one read, {each} rows, {threads} × the threads", took(rows.once)
        for threads in (2, 1, 4):
            paths.THREADS = threads
            yield f"d {d}, paths, {threads} × the threads", took(rows.path)
        sphere_rows.ROWS, sphere_rows.THREADS, paths.THREADS = usual
