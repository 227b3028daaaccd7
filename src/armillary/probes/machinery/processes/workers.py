"""How are many independent pieces of work done at once? In processes of their own, a few threads each."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import Any, NamedTuple, TypeVar

from armillary.errors import ArmillaryError
from armillary.flow.machine.memory import keep_pages

T = TypeVar("T")
R = TypeVar("R")


class Doing(NamedTuple):
    """What a worker is doing: in words, and how much of which task is done."""

    text: str
    task: str = ""
    share: float = 0.0


Say = Callable[[Doing], None]
"""Called by work, with what it is doing."""
Give = Callable[[int], T | None]
"""The next task of a worker, by its number; None if nothing is left for it."""
# Forked from a process that has imported what they need; elsewhere than on Linux every worker imports by itself.
START = "forkserver" if sys.platform == "linux" else "spawn"
# Seconds for workers to end by themselves.
GRACE = 1.0
DIED = "a worker process died, probably for lack of memory"


class WorkerDiedError(ArmillaryError):
    """A worker ended before its work did."""


class CannotBeginError(ArmillaryError):
    """What makes the work could not be sent to the workers."""


def one_by_one(tasks: Sequence[T], work: Callable[[T], R]) -> Generator[R, None, None]:
    """In this process, on one thread, as a worker would."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from map(work, tasks)
    finally:
        torch.set_num_threads(threads)


def on_one_thread(work: Callable[[T], R], task: T) -> R:
    """As a worker does it."""
    (result,) = one_by_one([task], work)
    return result


def side_by_side(
    tasks: Sequence[T], work: Callable[[T], R], workers: int, modules: Sequence[str] = ()
) -> Generator[R, None, None]:
    """In processes of one thread, in the order in which they end; when the caller stops, those still at work are ended.

    `work` and its tasks must be picklable; `modules` are what it imports.
    """
    waiting = deque(tasks)
    with closing(Crew(min(workers, len(tasks) or 1), modules=modules)) as crew:
        try:
            crew.begin(partial(_silent, work))
            yield from crew.results(lambda worker: waiting.popleft() if waiting else None)
        except WorkerDiedError as error:
            raise ArmillaryError(f"{error}; finished runs are kept: use fewer --workers.") from error


def _silent(work: Callable[[T], R]) -> Callable[[T, Say], R]:
    return lambda task, say: work(task)


def prepare(modules: Sequence[str]) -> None:
    """Begin to import what workers will need, in a process from which they are then forked. It runs nothing, so that
    it has no threads that a fork would lose."""
    if START == "forkserver":
        forkserver.set_forkserver_preload(list(modules))
        with _threads_each(1):
            forkserver.ensure_running()


class Crew:
    """Processes that wait for work; those still at work when it is closed are ended."""

    def __init__(self, workers: int, threads: int = 1, modules: Sequence[str] = ()) -> None:
        """`modules` are what a worker imports before there is any work."""
        prepare(modules)
        context: Any = multiprocessing.get_context(START)
        # Pipes are of another class on Windows.
        self._workers: list[tuple[Any, Any]] = []
        with _threads_each(threads):
            for _ in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, threads, tuple(modules)), daemon=True)
                process.start()
                theirs.close()
                self._workers.append((process, ours))

    def __len__(self) -> int:
        return len(self._workers)

    def begin(self, prepare: Callable[[], Callable[[Any, Say], Any]]) -> None:
        """Each worker calls `prepare`, which must be picklable; what it returns is called with every task."""
        try:
            # Torch teaches multiprocessing's own pickler to use shared memory, of which containers have little.
            content = pickle.dumps(prepare, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise CannotBeginError(f"the work cannot be sent to another process ({error})") from error
        for _, pipe in self._workers:
            _send(pipe, content)
        for _, pipe in self._workers:
            kind, why = _receive(pipe)
            if kind == "raised":
                raise CannotBeginError(f"the work cannot be received by another process ({why})") from why

    def results(self, give: Give[Any], tell: Callable[[list[Doing]], None] = lambda what: None) -> Iterator[Any]:
        """What the work returned for each task, in the order in which they end; `tell` is called with what the workers
        are doing."""
        busy: dict[Any, int] = {}
        saying: dict[int, Doing] = {}
        for number, (_, pipe) in enumerate(self._workers):
            _hand(pipe, number, give, busy)
        while busy:
            for pipe in wait(list(busy)):
                number = busy[pipe]
                kind, content = _receive(pipe)
                if kind == "say":
                    saying[number] = content
                    tell([saying[worker] for worker in sorted(saying)])
                    continue
                del busy[pipe]
                if kind == "raised":
                    raise content
                _hand(pipe, number, give, busy)
                yield content

    def close(self) -> None:
        for _, pipe in self._workers:
            pipe.close()
        # An idle worker ends by itself and gives back its semaphores; one at work is ended.
        deadline = time.monotonic() + GRACE
        for process, _ in self._workers:
            process.join(max(0.0, deadline - time.monotonic()))
            process.terminate()
        for process, _ in self._workers:
            process.join()
            process.close()
        self._workers = []


def from_both_ends(tasks: Sequence[T], workers: int) -> Give[T]:
    """Two workers share a run of tasks, one from its beginning and one from its end, so that what neighbours have in
    common is computed by one of them; a worker with nothing left helps where most is left.

    >>> give = from_both_ends([1, 2, 3, 4, 5, 6], 3)
    >>> [give(worker) for worker in (0, 1, 2, 0, 2, 2, 1)]
    [1, 3, 4, 2, 5, 6, None]
    """
    size = -(-len(tasks) // -(-workers // 2)) or 1
    piles = [deque(tasks[start : start + size]) for start in range(0, len(tasks), size)]

    def give(worker: int) -> T | None:
        pile = piles[worker // 2] if worker // 2 < len(piles) else None
        pile = pile or max(piles, key=len, default=None)
        if not pile:
            return None
        return pile.pop() if worker % 2 else pile.popleft()

    return give


def _hand(pipe: Any, number: int, give: Give[Any], busy: dict[Any, int]) -> None:
    if (task := give(number)) is not None:
        _send(pipe, pickle.dumps(task, pickle.HIGHEST_PROTOCOL))
        busy[pipe] = number


def _send(pipe: Any, content: bytes) -> None:
    try:
        pipe.send_bytes(content)
    except OSError as error:
        raise WorkerDiedError(DIED) from error


def _receive(pipe: Any) -> tuple[str, Any]:
    try:
        kind, content = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError) as error:
        raise WorkerDiedError(DIED) from error
    return kind, content


@contextmanager
def _threads_each(threads: int) -> Iterator[None]:
    """Libraries read these variables when a worker loads them."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(pipe: Any, threads: int, modules: Sequence[str]) -> None:
    """A worker: what makes its work comes first, then task after task."""
    import torch

    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    keep_pages()
    for module in modules:
        import_module(module)
    work: Callable[[Any, Say], Any] | None = None
    while True:
        try:
            content = pickle.loads(pipe.recv_bytes())
            if work is None:
                work, answer = content(), ("ready", None)
            else:
                answer = ("done", work(content, lambda doing: pipe.send_bytes(pickle.dumps(("say", doing)))))
            packed = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except EOFError:
            return
        except Exception as error:
            packed = _packed_error(error)
        try:
            pipe.send_bytes(packed)
        except OSError:
            # Nobody waits for it any more.
            return


def _packed_error(error: Exception) -> bytes:
    """Some errors cannot be made again from their arguments."""
    try:
        packed = pickle.dumps(("raised", error))
        pickle.loads(packed)
    except Exception:
        return pickle.dumps(("raised", RuntimeError(f"{type(error).__name__}: {error}")))
    return packed


def _end_with_parent() -> None:
    """A parent that was killed can tell nobody."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
