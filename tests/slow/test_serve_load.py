"""Twenty visitors who type for a minute: no error, memory flat, one model in memory. On this machine only."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time

import httpx2
import psutil
import pytest

pytestmark = pytest.mark.slow
VISITORS, SECONDS = 20, float(os.environ.get("ARMILLARY_LOAD_SECONDS", "60"))
WORDS = "the old clock on the wall had stopped years ago and nobody ever thought of it".split()
PARTS = [("sphere", "path"), ("heads", "pattern"), ("norms", "lengths"), ("filter", "words"), ("edits", "words")]


class Typist:
    """Adds a word, waits as a person does, and takes a new sentence when it is long; what is late is given up."""

    def __init__(self, number: int, client: httpx2.AsyncClient, token: str) -> None:
        self.number, self.client, self.token = number, client, token
        self.times: list[float] = []
        self.problems: list[str] = []

    async def type(self, until: float) -> None:
        words: list[str] = []
        turn = self.number
        while time.monotonic() < until:
            turn += 1
            words = [*words, WORDS[(turn * 7 + self.number) % len(WORDS)]] if len(words) < 8 else []
            if words:
                await self.ask(*PARTS[turn % len(PARTS)], " ".join(words))
            await asyncio.sleep(0.6 + 0.05 * (self.number % 7))

    async def ask(self, room: str, part: str, sentence: str) -> None:
        fields = {"model": "builtin:gpt", "sentence": sentence}
        if room == "norms":
            fields["norm"] = "L2.ln1"
        body = json.dumps({"room": room, "part": part, "fields": fields})
        headers = {"x-armillary-token": self.token, "content-type": "application/json"}
        start = time.monotonic()
        answer = await self.client.post("/api/part", content=body, headers=headers)
        last = answer.text.rstrip().split("\n\n")[-1]
        if answer.status_code != 200 or not last.startswith("event: result"):
            self.problems.append(f"{answer.status_code} {last[:200]}")
        self.times.append(time.monotonic() - start)


def memory(process: psutil.Process) -> tuple[float, list[float]]:
    """Megabytes of the server, and of each model's process."""
    models = [child for child in process.children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]
    return process.memory_info().rss / 1e6, [child.memory_info().rss / 1e6 for child in models]


def test_twenty_visitors_type_for_a_minute(record_property):
    command = [sys.executable, "-m", "armillary", "explore", "builtin:gpt", "--no-browser", "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    address = re.search(r"http\S+", server.stdout.readline())[0]
    base, token = address.split("/?token=")
    process = psutil.Process(server.pid)
    seen = []

    async def visit() -> list[Typist]:
        limits = httpx2.Limits(max_connections=2 * VISITORS)
        async with httpx2.AsyncClient(base_url=base, timeout=60, limits=limits) as client:
            typists = [Typist(number, client, token) for number in range(VISITORS)]
            # The model is loaded and every room has been opened once before memory is looked at.
            for room, part in PARTS:
                await typists[0].ask(room, part, "to begin with")
            end = time.monotonic() + SECONDS

            async def look() -> None:
                while time.monotonic() < end:
                    seen.append(memory(process))
                    await asyncio.sleep(SECONDS / 20)

            await asyncio.gather(look(), *(typist.type(end) for typist in typists))
            seen.append(memory(process))
        return typists

    try:
        typists = asyncio.run(visit())
    finally:
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=30)
    problems = [problem for typist in typists for problem in typist.problems]
    times = sorted(second for typist in typists for second in typist.times)
    servers, models = [sample[0] for sample in seen], [sample[1] for sample in seen]
    print(
        f"{len(times)} answers, {len(problems)} problems; median {times[len(times) // 2]:.2f} s, 95 % "
        f"{times[int(len(times) * 0.95)]:.2f} s; server {servers[0]:.0f} → {servers[-1]:.0f} MB, "
        f"model {models[0][0]:.0f} → {models[-1][0]:.0f} MB"
    )
    assert problems == []
    assert all(len(sizes) == 1 for sizes in models), "one model in memory"
    # Remembered results are allowed for: they are bounded at 64 MiB.
    assert servers[-1] - servers[len(servers) // 3] < 80
    assert models[-1][0] - models[len(models) // 3][0] < 50
    assert len(times) > 10 * VISITORS * SECONDS / 60
    assert "Traceback" not in errors
    assert server.returncode == 0
