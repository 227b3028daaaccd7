"""Does a worker share, cancel, queue and survive? With a stand-in for the process, and with a real one."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from folders import tokenizer
from tiny import tiny

from armillary import load
from armillary.serve.model_process import Source
from armillary.serve.room import Room, RoomPart
from armillary.serve.rooms import ROOMS
from armillary.serve.worker import WAITING, BusyError, Worker


@pytest.fixture(scope="module")
def anatomy():
    return load(tiny("gpt2"), tokenizer=tokenizer(), progress=False)


@pytest.fixture
def counted(monkeypatch):
    """A room whose part takes twenty steps and counts how often it ran and how far it came."""
    seen = {"runs": 0, "steps": 0}

    def slow(opened, ask):
        seen["runs"] += 1
        for step in range(20):
            opened.progress("counting", step, 20)
            seen["steps"] = step
            time.sleep(0.02)
        return []

    room = Room("slow", "Slow", "", (), (RoomPart("count", "", (), slow),))
    monkeypatch.setattr("armillary.serve.rooms.ROOMS", (*ROOMS, room))
    return seen


async def finished(queue):
    while True:
        event = await asyncio.wait_for(queue.get(), 60)
        if event[0] in ("result", "refused", "cancelled"):
            return event


COUNT = ("slow", "count", False)


def test_a_model_that_was_launched_before_the_loop_answers(anatomy, counted):
    worker = Worker("tiny", Source(anatomy, {}, live=True))
    worker.launch()

    async def visit():
        assert (await finished(worker.submit(("one",), COUNT, {})[1]))[0] == "result"
        worker.stop()

    asyncio.run(visit())


def test_visitors_who_ask_for_the_same_share_one_job(anatomy, counted):
    async def visit():
        worker = Worker("tiny", Source(anatomy, {}, live=True))
        queues = [worker.submit(("same",), COUNT, {})[1] for _ in range(20)]
        assert {(await finished(queue))[0] for queue in queues} == {"result"}
        worker.stop()

    asyncio.run(visit())
    assert counted["runs"] == 1


def test_a_job_that_nobody_wants_is_stopped(anatomy, counted):
    async def visit():
        worker = Worker("tiny", Source(anatomy, {}, live=True))
        job, queue = worker.submit(("a",), COUNT, {})
        while (await queue.get())[0] != "progress":
            pass
        waiting, other = worker.submit(("b",), COUNT, {})
        worker.leave(waiting, other)
        assert waiting.done, "what waited is gone at once"
        worker.leave(job, queue)
        for _ in range(100):
            if not worker.busy:
                break
            await asyncio.sleep(0.05)
        assert not worker.busy
        worker.stop()

    asyncio.run(visit())
    assert counted["runs"] == 1
    assert counted["steps"] < 19


def test_one_who_leaves_does_not_take_it_from_the_others(anatomy, counted):
    async def visit():
        worker = Worker("tiny", Source(anatomy, {}, live=True))
        job, first = worker.submit(("a",), COUNT, {})
        _, second = worker.submit(("a",), COUNT, {})
        worker.leave(job, first)
        assert (await finished(second))[0] == "result"
        worker.stop()

    asyncio.run(visit())


def test_a_queue_has_an_end(anatomy, counted):
    async def visit():
        worker = Worker("tiny", Source(anatomy, {}, live=True))
        refused = []
        for number in range(WAITING + 2):
            try:
                worker.submit((number,), COUNT, {})
            except BusyError as error:
                refused.append(str(error))
        # One may be at work already.
        assert 1 <= len(refused) <= 2
        assert "try again" in refused[0]
        worker.stop()

    asyncio.run(visit())


def test_a_model_that_cannot_be_loaded_says_why():
    async def visit():
        worker = Worker("nothing", Source("/nowhere/at/all", {}))
        _, queue = worker.submit(("a",), ("sphere", "path", False), {})
        return await finished(queue)

    kind, text = asyncio.run(visit())
    assert kind == "refused"
    assert "/nowhere/at/all" in text


LOCKED = """
import multiprocessing, os, signal
from armillary.serve import model_process

class Gone:
    def send(self, message): raise BrokenPipeError

def work():
    model_process.serve_process(Gone(), None, None)
    lock = multiprocessing.RLock()  # as numba does, when UMAP is imported
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
    print(process.exitcode)
"""


def test_a_killed_process_leaves_no_lock_behind(tmp_path):
    (tmp_path / "locked.py").write_text(LOCKED)
    ended = subprocess.run([sys.executable, tmp_path / "locked.py"], capture_output=True, text=True, timeout=60)
    assert (ended.stdout.strip(), ended.stderr) == (str(-signal.SIGKILL), "")


@pytest.mark.slow
def test_a_worker_killed_at_work_is_started_again_and_says_so():
    async def visit():
        worker = Worker("builtin:gpt", Source("builtin:gpt", {}))
        ask = {"statistic": "entropy", "layer": 0, "head": 0, "narrow": False}
        _, queue = worker.submit(("atlas",), ("heads", "atlas", False), ask)
        events = []
        while True:
            event = await asyncio.wait_for(queue.get(), 180)
            events.append(event[0])
            if event[0] == "progress" and "restarted" not in events and worker.process_id:
                os.kill(worker.process_id, signal.SIGKILL)
                while (await asyncio.wait_for(queue.get(), 180))[0] != "restarted":
                    pass
                events.append("restarted")
            if event[0] in ("result", "refused"):
                break
        worker.stop()
        return events, worker.restarts

    events, restarts = asyncio.run(visit())
    assert events[-1] == "result"
    assert "restarted" in events
    assert restarts == 1
