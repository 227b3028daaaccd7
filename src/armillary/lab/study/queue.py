"""A study is a folder: a manifest, the tokens, and one line per finished run. A killed study goes on where it was."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from armillary.errors import ArmillaryError, OutputError
from armillary.lab import data
from armillary.lab.study.arms import arms_of
from armillary.lab.study.design import EFFECT, RATES, SIZES, TUNING_SEEDS, Arm, Run, paired_runs, tuning_runs
from armillary.results.store import check_writable, write_whole

MANIFEST, RUNS = "manifest.json", "runs.jsonl"
Report = Callable[[str], None]


@dataclass
class Study:
    """One study at one size in one folder."""

    name: str
    size: str
    text: data.Text
    out: Path
    seeds: int
    device: str
    report: Report = lambda line: None

    def run(self, arms: Iterable[str] = (), jobs: int = 1) -> list[dict[str, Any]]:
        """All runs that are not done yet, of `jobs` arms side by side: an arm's tuning runs, then its paired runs."""
        from armillary.lab.study.training import recipe_of

        check_writable(self.out)
        self._claim()
        data.prepare(recipe_of(SIZES[self.size], 0), self.text, self.out / "tokens")
        wanted = set(arms) or {arm.name for arm in arms_of(self.name)}
        chosen = [arm for arm in arms_of(self.name) if arm.name in wanted]
        # An arm that takes over a rate waits until that rate is known.
        for stage in ([arm for arm in chosen if not arm.tuned_as], [arm for arm in chosen if arm.tuned_as]):
            if jobs > 1 and len(stage) > 1:
                self._side_by_side(stage, jobs)
            else:
                for arm in stage:
                    self.run_arm(arm)
        return read_runs(self.out, self.report)

    def run_arm(self, arm: Arm) -> None:
        """One arm's missing runs, in this process: the model is compiled once."""
        from armillary.lab.study.training import ArmTrainer, Corpus

        done = {row["key"]: row for row in read_runs(self.out, self.report)}
        trainer: ArmTrainer | None = None
        for runs in (self._tuning, self._paired):
            for run in runs(arm, done):
                if run.key in done:
                    continue
                if trainer is None:
                    trainer = ArmTrainer(arm, SIZES[self.size], Corpus(self.out / "tokens", self.device), self.device)
                row = trainer.run(run)
                append(self.out / RUNS, row)
                done[run.key] = row
                self.report(f"{run.key}: loss {row['loss']}, {row['seconds']} s")

    def _side_by_side(self, arms: list[Arm], jobs: int) -> None:
        """Arms in processes of their own, which append to the same file; an arm that fails ends the study."""
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        # A process can be sent a function of this module, not a caller's.
        loud = replace(self, report=_to_stderr)
        with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
            pending = {pool.submit(loud.run_arm, arm): arm.name for arm in arms}
            try:
                for future in as_completed(pending):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(getattr(pool, "_processes", {}).values()):
                    process.terminate()
                raise

    def _tuning(self, arm: Arm, done: dict[str, Any]) -> Iterable[Run]:
        return tuning_runs(self.name, self.size, arm)

    def _paired(self, arm: Arm, done: dict[str, Any]) -> Iterable[Run]:
        tuned = next(other for other in arms_of(self.name) if other.name == (arm.tuned_as or arm.name))
        known = [done[run.key] for run in tuning_runs(self.name, self.size, tuned) if run.key in done]
        if not known:
            raise ArmillaryError(
                f"{arm.name!r} takes over the learning rate of {tuned.name!r}, whose tuning runs are missing; run both."
            )
        if all(row["diverged"] for row in known):
            self.report(f"{self.name}/{self.size}/{arm.name}: every learning rate diverged; no paired runs")
            return ()
        return paired_runs(self.name, self.size, arm, best_rate(known), self.seeds)

    def _claim(self) -> None:
        """The folder's manifest must be this study's; seeds and arms may be added."""
        arms = {arm.name: asdict(arm) for arm in arms_of(self.name)}
        wanted = {
            "study": self.name,
            "size": asdict(SIZES[self.size]),
            "text": self.text.sha256,
            "device": self.device.split(":")[0],
            "arms": arms,
            "rates": list(RATES),
            "tuning_seeds": list(TUNING_SEEDS),
            "smallest_effect": EFFECT,
        }
        wanted = json.loads(json.dumps(wanted))
        path = self.out / MANIFEST
        if path.exists():
            stored = json.loads(path.read_text("utf-8"))
            # Arms may be added to a study; those it has stay what they are.
            known = stored.pop("arms", {})
            other = [key for key in wanted if key != "arms" and stored.get(key) != wanted[key]]
            other += [f"arm {name}" for name in known if known[name] != wanted["arms"].get(name)]
            if other:
                raise ArmillaryError(
                    f"{self.out} holds another study: {', '.join(other)} differ; give another --out or the same "
                    "settings."
                )
            wanted["arms"] = known | wanted["arms"]
        write_whole({path: json.dumps(wanted, indent=1) + "\n"})


def best_rate(tuning: Iterable[dict[str, Any]]) -> float:
    """The smallest rate whose worst tuning seed is within two smallest effects of the best one's.

    Rates near the edge of stability are as good as half of them in two seeds, and fail in one of ten (LOG.md).
    """
    losses: dict[float, float] = {}
    for row in tuning:
        loss = float("inf") if row["diverged"] else row["loss"]
        losses[row["rate"]] = max(loss, losses.get(row["rate"], loss))
    best = min(losses.values())
    return min(rate for rate, loss in losses.items() if loss <= best + 2 * EFFECT)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def append(path: Path, row: dict[str, Any]) -> None:
    """One line, on disk before this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_runs(folder: Path, report: Report = lambda line: None) -> list[dict[str, Any]]:
    """The finished runs; a damaged line is named and left out, so that its run is made again."""
    path, rows = folder / RUNS, []
    if not path.exists():
        return []
    try:
        lines = path.read_text("utf-8", "replace").split("\n")
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            row["key"], row["rate"], row["diverged"], row["loss"], row["seed"], row["arm"]
        except (ValueError, KeyError, TypeError):
            report(f"line {number} of {path} is damaged; its run is made again")
            continue
        rows.append(row)
    return rows
