"""One model's worker, seen from the server: a queue of jobs, one at a time, in a process that is restarted if it dies.

Several visitors who ask for the same thing share one job. A job that nobody waits for is taken back: from the queue at
once, from the process when it next says how far it is, and otherwise by force.
"""

import asyncio
import contextlib
import multiprocessing
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import ArmillaryError
from armillary.serve.model_process import Source, serve_model, serve_process

GRACE = 3.0
"""Seconds that a cancelled job may take to stop before its process is ended."""
TRIES = 2
WAITING = 64
"""Most jobs in a queue."""
Key = tuple[Any, ...]
Event = tuple[Any, ...]


class BusyError(ArmillaryError):
    """Too many people ask at once."""


@contextlib.contextmanager
def _unnamed_main() -> Iterator[None]:
    """A spawned process runs the main module again, unless it has no name: a script would start another server."""
    main = vars(sys.modules["__main__"])
    attributes: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = None
    main.pop("__file__", None)
    try:
        yield
    finally:
        main.update(attributes)


@dataclass(eq=False)
class Job:
    """What is to be computed, and who waits for it."""

    number: int
    key: Key
    part: tuple[str, str, bool]
    ask: Any
    listeners: list["asyncio.Queue[Event]"] = field(default_factory=list)
    tries: int = 0
    done: bool = False

    def tell(self, *event: Any) -> None:
        for queue in self.listeners:
            queue.put_nowait(event)


class Worker:
    """All methods run on the server's event loop; only the reader of messages is a thread."""

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source = name, source
        self.facts: dict[str, Any] | None = None
        self.state = "not started"
        self.used = time.monotonic()
        self.restarts = 0
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._number = 0
        self._life = 0
        self._heard = 0
        self._process: Any = None
        self._connection: Any = None
        self._cancelled: Any = None
        self._news = asyncio.Condition()

    # ---- what the server asks ----------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._connection is not None

    @property
    def busy(self) -> bool:
        return self._running is not None or bool(self._waiting)

    @property
    def process_id(self) -> int | None:
        return getattr(self._process, "pid", None)

    def start(self) -> None:
        """Begin to load the model, unless it is there, and listen to its process."""
        self.launch()
        if self._heard == self._life:
            return
        self._heard = self._life
        known = (asyncio.get_running_loop(), self._connection, self._life)
        threading.Thread(target=self._listen, args=known, daemon=True, name="messages").start()

    def launch(self) -> None:
        """Begin to load the model, unless it is there; `start` listens, once there is an event loop."""
        if self.alive:
            return
        context = multiprocessing.get_context("spawn")
        server_end, worker_end = context.Pipe()
        # One writer, one number: a lock would be a semaphore that a killed process leaves behind.
        self._cancelled = context.Value("q", -1, lock=False)
        if self.source.live:
            self._process = threading.Thread(
                target=serve_model,
                args=(worker_end, self._cancelled, self.source),
                daemon=True,
                name=f"model {self.name}",
            )
        else:
            self._process = context.Process(
                target=serve_process,
                args=(worker_end, self._cancelled, self.source),
                daemon=True,
                name=f"model {self.name}",
            )
        with _unnamed_main():
            self._process.start()
        if not self.source.live:
            worker_end.close()
        self._connection, self.state = server_end, "starting"
        self._life += 1

    def submit(self, key: Key, part: tuple[str, str, bool], ask: Any) -> tuple[Job, "asyncio.Queue[Event]"]:
        """The job of this key, new or shared, and a queue on which its news arrive."""
        self.used = time.monotonic()
        queue: asyncio.Queue[Event] = asyncio.Queue()
        job = next((j for j in (self._running, *self._waiting) if j is not None and j.key == key and not j.done), None)
        if job is None:
            if len(self._waiting) >= WAITING:
                raise BusyError(f"{WAITING} requests are waiting for {self.name} already; try again in a moment.")
            self._number += 1
            job = Job(self._number, key, part, ask)
            self._waiting.append(job)
        job.listeners.append(queue)
        queue.put_nowait(("state", self.state if self._running is None else "waiting for its turn"))
        self.start()
        self._next()
        return job, queue

    def leave(self, job: Job, queue: "asyncio.Queue[Event]") -> None:
        """A visitor no longer waits; a job without visitors is taken back."""
        if queue in job.listeners:
            job.listeners.remove(queue)
        if job.listeners or job.done:
            return
        if job in self._waiting:
            self._waiting.remove(job)
            job.done = True
        elif job is self._running:
            self._cancelled.value = job.number
            asyncio.get_running_loop().call_later(GRACE, self._insist, job, self._life)

    async def known(self) -> dict[str, Any]:
        """The model's facts, once it is loaded."""
        self.used = time.monotonic()
        self.start()
        async with self._news:
            await self._news.wait_for(lambda: self.facts is not None or not self.alive)
        if self.facts is None:
            raise ArmillaryError(self.state)
        return self.facts

    def stop(self, why: str = "it was put away to make room for another model") -> None:
        """End the process; jobs that wait are told."""
        for job in (self._running, *self._waiting):
            if job is not None:
                job.done = True
                job.tell("refused", f"{self.name} is gone: {why}; ask again.")
        self._waiting.clear()
        self._running = None
        self._drop(f"{self.name} is gone: {why}")

    # ---- what the process says ---------------------------------------------------------------------------

    def _listen(self, loop: asyncio.AbstractEventLoop, connection: Any, life: int) -> None:
        with contextlib.suppress(RuntimeError):
            try:
                while True:
                    loop.call_soon_threadsafe(self._hear, life, connection.recv())
            except (EOFError, OSError, TypeError):
                # A connection that `_drop` closes between two reads of one message has no handle: a TypeError.
                loop.call_soon_threadsafe(self._died, life)

    def _hear(self, life: int, message: Event) -> None:
        if life != self._life or not self.alive:
            return
        kind, *rest = message
        if kind in ("state", "ready", "failed"):
            self._heard_of_model(kind, rest[0])
            return
        job = self._running
        if job is None or job.number != rest[0]:
            return
        if kind == "progress":
            job.tell("progress", *rest[1:])
            return
        job.done, self._running = True, None
        job.tell(kind, *rest[1:])
        self._next()

    def _heard_of_model(self, kind: str, value: Any) -> None:
        if kind == "ready":
            self.facts, self.state = value, "ready"
        else:
            self.state = value
        for job in self._waiting:
            job.tell("state", self.state)
        if kind == "failed":
            for job in self._waiting:
                job.done = True
                job.tell("refused", value)
            self._waiting.clear()
            self._drop(value)
        self._wake()
        self._next()

    def _next(self) -> None:
        """Give the process its next job."""
        if self._running is not None or self.state != "ready" or not self._waiting:
            return
        job = self._running = self._waiting.popleft()
        job.tries += 1
        try:
            self._connection.send((job.number, job.part, job.ask))
        except OSError:
            self._died(self._life)

    def _died(self, life: int) -> None:
        """The process ended: say so, start another, and try its job once more."""
        if life != self._life or not self.alive:
            return
        job, self._running = self._running, None
        loading = self.facts is None
        self._drop(f"the process that held {self.name} ended")
        if loading and job is None and self.restarts:
            self._heard_of_model("failed", f"{self.name} cannot be loaded: its process ended (out of memory?).")
            return
        self.restarts += 1
        if job is not None and not job.done and job.listeners:
            if job.tries < TRIES:
                job.tell("restarted", f"The process that held {self.name} ended; it is started again.")
                self._waiting.appendleft(job)
            else:
                job.done = True
                job.tell("refused", f"the process that held {self.name} ended twice on this; it may need more memory.")
        self.start()

    def _insist(self, job: Job, life: int) -> None:
        """End a process that did not heed a cancelled job."""
        if self._running is job and life == self._life and not job.done and not self.source.live:
            job.done, self._running = True, None
            self._drop("starting")
            self.start()

    def _drop(self, state: str) -> None:
        self._life += 1
        process, connection = self._process, self._connection
        self._process = self._connection = None
        self.facts, self.state = None, state
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()
        if process is not None and not self.source.live:
            process.kill()
            threading.Thread(target=process.join, daemon=True).start()
        self._wake()

    def _wake(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        with contextlib.suppress(RuntimeError):
            self._waker = asyncio.get_running_loop().create_task(tell())
