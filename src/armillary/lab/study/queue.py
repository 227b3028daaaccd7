"""A study is a folder: a manifest, the tokens, and one line per finished run. A killed study goes on where it was."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from armillary.errors import ArmillaryError, OutputError
from armillary.lab import data
from armillary.lab.study.design import EFFECT, RATES, SIZES, TUNING_SEEDS, Arm, Run, arms_of, paired_runs, tuning_runs
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

    def run(self, arms: Iterable[str] = ()) -> list[dict[str, Any]]:
        """All runs that are not done yet: of each arm the tuning runs, then the paired ones at its best rate."""
        from armillary.lab.study.training import ArmTrainer, Corpus, recipe_of

        check_writable(self.out)
        self._claim()
        size = SIZES[self.size]
        data.prepare(recipe_of(size, 0), self.text, self.out / "tokens")
        corpus = Corpus(self.out / "tokens", self.device)
        wanted = set(arms) or {arm.name for arm in arms_of(self.name)}
        done = {row["key"]: row for row in read_runs(self.out, self.report)}
        for arm in arms_of(self.name):
            if arm.name not in wanted:
                continue
            trainer: ArmTrainer | None = None
            for stage in (self._tuning, self._paired):
                for run in stage(arm, done):
                    if run.key in done:
                        continue
                    trainer = trainer or ArmTrainer(arm, size, corpus, self.device)
                    row = trainer.run(run)
                    append(self.out / RUNS, row)
                    done[run.key] = row
                    self.report(f"{run.key}: loss {row['loss']}, {row['seconds']} s")
        return list(done.values())

    def _tuning(self, arm: Arm, done: dict[str, Any]) -> Iterable[Run]:
        return tuning_runs(self.name, self.size, arm)

    def _paired(self, arm: Arm, done: dict[str, Any]) -> Iterable[Run]:
        rate = best_rate([done[run.key] for run in tuning_runs(self.name, self.size, arm)])
        return paired_runs(self.name, self.size, arm, rate, self.seeds)

    def _claim(self) -> None:
        """The folder's manifest must be this study's; seeds may be added."""
        arms = [asdict(arm) for arm in arms_of(self.name)]
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
        path = self.out / MANIFEST
        if path.exists():
            stored = json.loads(path.read_text("utf-8"))
            other = [key for key in wanted if stored.get(key) != json.loads(json.dumps(wanted[key]))]
            if other:
                raise ArmillaryError(
                    f"{self.out} holds another study: {', '.join(other)} differ; give another --out or the same "
                    "settings."
                )
        else:
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
    if best == float("inf"):
        raise ArmillaryError("every learning rate diverged in tuning; this arm has no paired runs.")
    return min(rate for rate, loss in losses.items() if loss <= best + 2 * EFFECT)


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
