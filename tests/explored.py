"""`armillary explore` in a process of its own, and a page of a real browser that notes everything it says and asks."""

import os
import re
import signal
import subprocess
import sys
from typing import Any

import psutil

IDLE = {"selector": ".shown[aria-busy=true]", "state": "detached", "timeout": 120_000}


class Running:
    """`armillary explore` in a process of its own."""

    def __init__(self, *args: Any) -> None:
        command = [sys.executable, "-m", "armillary", "explore", "--no-browser", "--port", "0", *map(str, args)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.address = re.search(r"http\S+", self.process.stdout.readline())[0]  # type: ignore[index]

    def children(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


class Watched:
    """A page with everything it said and asked for."""

    def __init__(self, browser: Any, address: str, room: str = "", more: str = "", **options: Any) -> None:
        options = {"viewport": {"width": 1200, "height": 900}, **options}
        self.context = browser.new_context(**options)
        self.problems: list[str] = []
        self.page = self.tab(address + (f"&room={room}" if room else "") + more)

    def tab(self, address: str) -> Any:
        page = self.context.new_page()
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        page.goto(address)
        return page

    def _asked(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.problems.append(f"a request left this machine: {url}")

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: Any) -> None:
        self.context.close()

    def settle(self, page: Any = None) -> None:
        """Until every part is shown."""
        page = page or self.page
        page.wait_for_selector(".part:not([hidden]) .shown > *", timeout=120_000)
        page.wait_for_selector(**IDLE)
        page.wait_for_timeout(250)

    def refused(self) -> list[str]:
        return self.page.eval_on_selector_all(".refused", "all => all.map(one => one.textContent)")
