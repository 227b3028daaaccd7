"""How is a text read on many machines at once? By dask: every worker holds the model and reads segment after segment.

Segments and the order in which their states are added are those of a pass in one process, so a cluster measures what
one process does. A worker that dies loses the segment it was reading: another reads it again. A cluster that cannot go
on is given up with a sentence: none of its workers can import what is sent, or none of them works any more.
"""

import os
import pickle
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import distributed
from dask import config
from distributed.protocol import pickle as by_dask

from armillary.errors import ClusterError
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import SHUFFLED, AnyInstrument
from armillary.probes.machinery.processes.kept_pass import States, fill, packed
from armillary.probes.machinery.shared_pass import PassArm, Tick, observe

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus, Segment

# Most of its functions have no types.
dask: Any = distributed
# By reference, or by value what a script defines.
dumps: Callable[[Any], bytes] = by_dask.dumps
# Processes of one machine that share its cores.
PER_CORE = 16
LOCAL = re.compile(r"local:(\d+)")
# Seconds until a scheduler that does not answer is given up.
PATIENCE = 30
# How long a local worker may take to start again. Dask gives up after 15 seconds, and then nobody is left to work: on a
# busy machine that was too short.
LOST = "5 minutes"
# Seconds between two looks at the workers, and until a cluster is given up in which none executes anything although
# work is waiting. A batch system may start the first worker late.
LOOK = 5.0
IDLE = 600.0
EMPTY = 3600.0
T = TypeVar("T")
R = TypeVar("R")


def check_address(address: str) -> None:
    """Refuse what names no cluster, and more processes than this machine can start."""
    local = LOCAL.fullmatch(address)
    if (local and int(local[1]) < 1) or not (local or re.match(r"\w+://", address) or re.search(r":\d+$", address)):
        raise ClusterError(
            f"--dask {address} is not a cluster; give the address of a scheduler (tcp://host:8786), or local:N for N "
            "processes here."
        )
    most = PER_CORE * (os.cpu_count() or 1)
    if local and int(local[1]) > most:
        raise ClusterError(
            f"--dask {address} asks for more than {most} processes, too many for this machine; ask for fewer."
        )


@contextmanager
def cluster_of(address: str) -> "Iterator[Cluster]":
    """The cluster at an address, or N processes of this machine that share its threads."""
    import torch

    check_address(address)
    if (local := LOCAL.fullmatch(address)) is None:
        try:
            client = dask.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"no dask scheduler answers at {address} ({error}); check the address.") from error
        with client:
            yield Cluster(client)
        return
    number = int(local[1])
    threads = max(1, torch.get_num_threads() // number)
    with (
        config.set({"distributed.deploy.lost-worker-timeout": LOST}),
        dask.LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs="CRITICAL",
            memory_limit=0,
            env={name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")},
        ) as workers,
        dask.Client(workers, set_as_default=False) as client,
    ):
        yield Cluster(client, threads)


class Cluster:
    """Workers that are there while work is done."""

    def __init__(self, client: Any, threads: int = 0) -> None:
        self.client = client
        self._threads = threads

    def __len__(self) -> int:
        return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))

    def map(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """`work` for every task, in the order in which they end; it and the tasks must be picklable."""
        futures = set(self.client.map(_unpacked, [dumps((work, task)) for task in tasks], pure=False, batch_size=1))
        while futures:
            done = self._done(futures)
            futures -= done
            yield from map(self.result, done)

    def result(self, future: Any) -> Any:
        """What a task gave, or its error."""
        while True:
            self._done({future})
            try:
                with _gone():
                    return future.result(IDLE)
            except dask.KilledWorker as error:
                raise ClusterError(
                    "several workers died with the same part of the work, probably for lack of memory; use fewer "
                    "workers per machine."
                ) from error
            except TimeoutError as error:
                # A worker that dies with a result is another case: the task is computed again.
                if future.status == "error":
                    raise
                if future.done():
                    raise ClusterError("a dask worker has a result that cannot be fetched; start it again.") from error

    def _done(self, futures: set[Any]) -> set[Any]:
        """Those of these that are done, as soon as there is one."""
        since = time.monotonic()
        while True:
            try:
                with _gone(), self.client.as_current():
                    return set(dask.wait(futures, timeout=LOOK, return_when="FIRST_COMPLETED").done)
            except TimeoutError:
                workers, executing = self._workers()
            idle = time.monotonic() - since
            if executing:
                since = time.monotonic()
            elif workers and idle > IDLE:
                raise ClusterError(
                    f"the {workers} workers of the dask cluster have done nothing for {idle:.0f} seconds although work "
                    "is waiting; see their logs and start them again."
                )
            elif not workers and idle > (IDLE if self._threads else EMPTY):
                raise ClusterError(f"the dask cluster has had no worker for {idle:.0f} seconds; start some.")

    def _workers(self) -> tuple[int, int]:
        """How many there are, and how many tasks they are executing."""
        with _gone():
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return len(workers), sum(worker["metrics"].get("task_counts", {}).get("executing", 0) for worker in workers)

    @contextmanager
    def holding(self, source: "Callable[[str], Anatomy]", corpus: "Corpus", seed: int) -> "Iterator[OnCluster]":
        """Every worker, also one that joins later, gets the text, and makes the model when it is first needed."""
        name = f"armillary-{uuid4().hex}"
        content = pickle.dumps((source, corpus, seed), pickle.HIGHEST_PROTOCOL)
        self.client.register_plugin(Holder(name, content, self._threads))
        try:
            yield OnCluster(self, name)
        finally:
            # Workers that are gone hold nothing.
            with suppress(OSError, TimeoutError, ValueError):
                self.client.unregister_worker_plugin(name)


@dataclass(frozen=True)
class Call:
    """One segment of one arm."""

    arm: str
    instruments: tuple[AnyInstrument, ...]
    batches: range


class OnCluster:
    """Observes on workers: a few segments ahead of those that are added, also of the next arms."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._ahead: deque[Call] = deque()
        self._running: dict[Call, Any] = {}

    def expect(self, arm: str, instruments: Sequence[AnyInstrument], segments: "Iterable[Segment]") -> None:
        """What will be asked for, in this order."""
        self._ahead.extend(Call(arm, tuple(instruments), segment.batches) for segment in segments)

    def __call__(
        self, arm: PassArm, instruments: Sequence[AnyInstrument], segments: "Sequence[Segment]", tick: Tick
    ) -> Iterator[States]:
        from safetensors.torch import load

        empty = arm.empty(instruments)
        for segment in segments:
            call = Call(arm.name, tuple(instruments), segment.batches)
            future = self._running.pop(call, None) or self.submit(call)
            self._fill()
            states = deepcopy(empty)
            content = self._cluster.result(future)
            if instruments:
                fill(states, load(content))
            tick(segment.tokens)
            yield states

    def _fill(self) -> None:
        most = 2 * len(self._cluster)
        while self._ahead and len(self._running) < most:
            call = self._ahead.popleft()
            self._running[call] = self.submit(call)

    def submit(self, call: Call) -> Any:
        if call in self._ahead:
            self._ahead.remove(call)
        return self._cluster.client.submit(_unpacked, dumps((_Observe(self._name), call)), pure=False)


@dataclass(frozen=True)
class _Observe:
    """On a worker: the states of one segment."""

    holder: str

    def __call__(self, call: Call) -> bytes:
        content: bytes = dask.get_worker().plugins[self.holder].observe(call)
        return content


def _unpacked(content: bytes) -> Any:
    """On a worker: a function of one task.

    They travel as bytes. A worker that cannot import what it is sent drops the connection, and dask waits for ever;
    here it is an error of the task.
    """
    try:
        work, task = pickle.loads(content)
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"a dask worker cannot import what it was sent ({type(error).__name__}: {error}); install the package that "
            "defines it where workers run."
        ) from error
    return work(task)


class Holder(distributed.WorkerPlugin):
    """On a worker: the model, its twins and the text, made once.

    A worker that starts again receives it before it answers anybody: this module must not import torch, which would
    take longer than others wait.
    """

    def __init__(self, name: str, content: bytes, threads: int) -> None:
        self.name, self._content, self._threads = name, content, threads

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "_content": self._content, "_threads": self._threads}

    def setup(self, worker: Any) -> None:
        self._worker, self._lock = worker, Lock()

    def observe(self, call: Call) -> bytes:
        # Hooks are on the model: one segment at a time, whatever the worker's threads.
        with self._lock:
            evidence = self._evidence
            text = self._shuffled if call.arm == SHUFFLED else evidence.corpus
            assert text is not None
            states = observe(evidence.model(call.arm), text, call.instruments, evidence.seed, part=call.batches)
            return packed({instrument: states[instrument] for instrument in call.instruments}, {})

    @cached_property
    def _evidence(self) -> Evidence:
        import torch

        from armillary.flow.controls import Twins
        from armillary.flow.machine.memory import keep_pages

        keep_pages()
        torch.set_num_threads(self._threads or self._worker.state.nthreads)
        source, corpus, seed = pickle.loads(self._content)
        anatomy = source(device_of(self._worker.name, torch.cuda.device_count()))
        return Evidence(anatomy, corpus, Twins(anatomy, seed), seed=seed)

    @cached_property
    def _shuffled(self) -> "Corpus":
        assert self._evidence.corpus is not None
        return self._evidence.corpus.shuffled(self._evidence.seed)


def device_of(worker: object, devices: int) -> str:
    """The GPU of a worker, by its number where several share a machine; elsewhere each sees its own as the first.

    >>> device_of(5, 4), device_of("tcp://10.0.0.1:4000", 1)
    ('cuda:1', 'cuda:0')
    """
    return f"cuda:{worker % devices if isinstance(worker, int) else 0}" if devices else "cpu"


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except (dask.CancelledError, dask.comm.CommClosedError) as error:
        raise ClusterError(f"the dask cluster is gone ({type(error).__name__}); start it again.") from error
