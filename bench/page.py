"""How long does one wait for the page of `armillary explore`? By the clock and in processor time, in a real browser.

    python bench/page.py SURVEY [--rounds N]

SURVEY is a stored survey. Prints medians: first paint (the page alone, then the ledger of the survey), the first
sentence of a fresh server on builtin:gpt (from the start of its process; the model is loaded on the way) and each next
one. On a busy machine the clock lies, and processor time lies less.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
SENTENCES = (
    "The cat sat on the mat",
    "Nobody knew why the clock had stopped",
    "One two three four five",
    "She sells sea shells",
    "It was a dark and stormy night",
)


class Server:
    """`armillary explore` in a process of its own."""

    def __init__(self, survey: str) -> None:
        command = [sys.executable, "-m", "armillary", "explore", "builtin:gpt", "--survey", survey, "--no-browser"]
        self.process = subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        address = re.search(r"http\S+", self.process.stdout.readline())
        assert address is not None
        self.address = address[0]

    def cpu(self) -> float:
        """Processor seconds of the server and its children."""
        whole = psutil.Process(self.process.pid)
        return sum(sum(process.cpu_times()[:2]) for process in [whole, *whole.children(recursive=True)])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


def waited(server: Server, act: Any, until: Any) -> tuple[float, float]:
    """(seconds by the clock, processor seconds of the server) from an act until something is shown."""
    start, used = time.perf_counter(), server.cpu()
    act()
    until()
    return time.perf_counter() - start, server.cpu() - used


def one_round(browser: Any, survey: str) -> dict[str, list[tuple[float, float]]]:
    """A server with its ledger, then a fresh one with a sentence at once, then further sentences."""
    times: dict[str, list[tuple[float, float]]] = {}
    server = Server(survey)
    try:
        page = browser.new_page()
        shown = "table.ledger tbody tr"
        times["ledger shown"] = [
            waited(server, lambda: page.goto(server.address + "&room=ledger"), lambda: page.wait_for_selector(shown))
        ]
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
        times["first paint"] = [(paint, float("nan"))]
        server.stop()
        start = time.perf_counter()
        server = Server(survey)
        page.goto(server.address + "&room=sphere")
        page.wait_for_selector(".travel canvas", timeout=120_000)
        times["first sentence"] = [(time.perf_counter() - start, server.cpu())]
        page.wait_for_selector(".shown[aria-busy=true]", state="detached")
        times["next sentence"] = []
        for sentence in SENTENCES:
            selector = f".travel p.soft:has-text('{sentence[:20]}')"
            times["next sentence"].append(
                waited(
                    server,
                    lambda sentence=sentence: page.fill("#field-sentence", sentence),
                    lambda selector=selector: page.wait_for_selector(selector, timeout=60_000),
                )
            )
        page.close()
    finally:
        server.stop()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("survey")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"load before: {' '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
    gathered: dict[str, list[tuple[float, float]]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(given.rounds):
            for name, measured in one_round(browser, given.survey).items():
                gathered.setdefault(name, []).extend(measured)
        browser.close()
    for name, measured in gathered.items():
        clock, used = (sorted(column) for column in zip(*measured, strict=True))
        print(f"{name:16} clock {statistics.median(clock):.2f} s [{clock[0]:.2f}, {clock[-1]:.2f}]   "
              f"processor {statistics.median(used):.2f} s   n {len(measured)}")  # fmt: skip
    print(f"load after: {' '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
