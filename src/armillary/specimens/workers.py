"""How are many independent pieces of work done at once? In processes of one thread each."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

import torch

from armillary.errors import ArmillaryError
from armillary.flow.memory import keep_pages

T = TypeVar("T")
R = TypeVar("R")


def one_by_one(tasks: Sequence[T], work: Callable[[T], R]) -> Generator[R, None, None]:
    """In this process, on one thread, as a worker would."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from map(work, tasks)
    finally:
        torch.set_num_threads(threads)


def side_by_side(tasks: Sequence[T], work: Callable[[T], R], workers: int) -> Generator[R, None, None]:
    """In processes of their own, in the order in which they end; when the caller stops, those still at work are ended.

    `work` and its tasks must be picklable.
    """
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, len(tasks) or 1), multiprocessing.get_context("spawn"), _begin_worker)
    try:
        with _one_thread_each():
            waiting = [pool.submit(work, task) for task in tasks]
            for finished in as_completed(waiting):
                yield finished.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        # The pool ends its other workers by itself; until it has, they are still there.
        pool.shutdown(cancel_futures=True)
        raise ArmillaryError(
            "a worker process died, probably for lack of memory; finished runs are kept: use fewer --workers."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
            child.join()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Libraries read these variables when a worker loads them."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin_worker() -> None:
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_pages()
