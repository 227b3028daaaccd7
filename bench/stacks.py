"""Where is a long run? A second thread looks at the first one's stack twenty times a second and counts.

with Stacks() as stacks: ...
stacks.print(40)
"""

import collections
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType


class Stacks:
    """Counts the innermost line of ours, and the line of other packages that it waits for."""

    def __init__(self, every: float = 0.05, ours: str = "src/armillary/", folder: Path | None = None) -> None:
        """In `folder` the counts are written every few seconds."""
        self._every, self._ours, self._folder = every, ours, folder
        self._watched = threading.get_ident()
        self._stop = threading.Event()
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.by_probe: collections.Counter[str] = collections.Counter()

    def __enter__(self) -> "Stacks":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        looks = 0
        while not self._stop.wait(self._every):
            looks += 1
            if self._folder is not None and looks % 200 == 0:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / "stacks.txt").write_text("\n".join(self.lines(60)))
            frame = sys._current_frames().get(self._watched)
            if frame is None:
                continue
            stack = traceback.extract_stack(frame)
            ours = [f for f in stack if self._ours in f.filename]
            if not ours:
                continue
            at, inner = ours[-1], stack[-1]
            place = f"{at.filename.split(self._ours)[-1]}:{at.lineno} {at.line}"
            below = "" if inner is at else f"{inner.filename.rsplit('/', 1)[-1]}:{inner.name}"
            self.counts[(place, below)] += 1
            probes = [f for f in ours if "probes/" in f.filename and "machinery" not in f.filename]
            if probes:
                self.by_probe[f"{probes[0].filename.split(self._ours)[-1]}:{probes[0].name}"] += 1

    def lines(self, most: int = 40) -> list[str]:
        probes = [f"  {count * self._every:7.1f} s  {name}" for name, count in self.by_probe.most_common(most)]
        places = [
            f"  {count * self._every:7.1f} s  {place[:120]}   {below}"
            for (place, below), count in self.counts.most_common(most)
        ]
        return ["seconds of the main thread, by the first probe's function", *probes, "by our innermost line", *places]

    def print(self, most: int = 40) -> None:
        print("\n".join(self.lines(most)), flush=True)
