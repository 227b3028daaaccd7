"""A study is a folder: a manifest, the tokens, and one line per finished run. A killed study goes on where it was."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import ArmillaryError, OutputError
from armillary.lab import data, forms
from armillary.lab.study.arms import arms_of
from armillary.lab.study.conclusions.paired_runs import best_rate
from armillary.lab.study.design import EFFECT, RATES, TUNING_SEEDS, Arm, Run, Size, paired_runs, size_of, tuning_runs
from armillary.lab.study.end_states.state_folders import state_path
from armillary.lab.study.finished_runs import KnownRuns
from armillary.lab.study.time_left import Progress
from armillary.results.disk.files import check_writable, read_bytes, strict_json, write_whole
from armillary.results.disk.lock import locked

if TYPE_CHECKING:
    from armillary.lab.study.arm_training import StudyCorpus

MANIFEST, RUNS = "manifest.json", "runs.jsonl"
Report = Callable[[str], None]
Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function with each of some arguments, in other processes."""


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
    known: tuple[Path, ...] = ()
    """Folders of studies whose runs need not be made again."""
    progress: Progress | None = None
    """Of a run of the queue; set by it."""
    shared: bool = False
    """Whether other arms are trained on the same device at the same time; the time of a step then says nothing."""

    @property
    def shape(self) -> Size:
        return size_of(self.name, self.size)

    def run(self, arms: Iterable[str] = (), jobs: int = 1, spread: "Spread | None" = None) -> list[dict[str, Any]]:
        """All runs that are not done yet, of `jobs` arms side by side: an arm's tuning runs, then its paired runs.

        `spread` has the arms trained elsewhere, by processes that write to the same folder.
        """
        with locked(check_writable(self.out)):
            return self._run(arms, jobs, spread)

    def _run(self, arms: Iterable[str], jobs: int, spread: "Spread | None") -> list[dict[str, Any]]:
        from armillary.lab.study.arm_training import recipe_of

        self._claim()
        read_runs(self.out, self.report)
        data.prepare(recipe_of(self.shape, 0), self.text, self.out / "tokens")
        wanted = set(arms) or {arm.name for arm in arms_of(self.name)}
        chosen = [arm for arm in arms_of(self.name) if arm.name in wanted]
        self.progress = Progress.of(self.out / RUNS, self._missing(chosen))
        # An arm that takes over a rate waits until that rate is known.
        for stage in ([arm for arm in chosen if not arm.tuned_as], [arm for arm in chosen if arm.tuned_as]):
            if spread is not None:
                loud = replace(self, report=_to_stderr, out=self.out.resolve())
                for _ in spread(partial(_run_arm, loud, threads=0), stage):
                    pass
            elif jobs > 1 and len(stage) > 1:
                self._side_by_side(stage, jobs)
            else:
                for arm in stage:
                    self.run_arm(arm)
        return read_runs(self.out)

    def run_arm(self, arm: Arm) -> None:
        """One arm's missing runs, in this process: the model is compiled once."""
        from armillary.lab.study.arm_training import ArmTrainer
        from armillary.lab.study.end_states.state_geometry import keep

        done = {row["key"]: row for row in read_runs(self.out)}
        known = KnownRuns.of(self.known, _manifest(self.out / MANIFEST))
        trainer: ArmTrainer | None = None
        for runs in (self._tuning, self._paired):
            for run in runs(arm, done):
                if run.key in done:
                    continue
                row = known.row(arm, run)
                if row is None:
                    if trainer is None:
                        trainer = ArmTrainer(arm, self.shape, self._corpus(), self.device)
                    row = trainer.run(run)
                    if self.shared:
                        row["step_seconds"] = None
                    if not run.tuning and run.seed == 0 and not row["diverged"]:
                        keep(trainer.model, state_path(self.out, arm.name))
                append(self.out / RUNS, row)
                done[run.key] = row
                left = f"; {self.progress.left()}" if self.progress else ""
                self.report(f"{run.key}: {_loss_text(row)}, {row['seconds']} s{left}")

    def _missing(self, arms: Iterable[Arm]) -> int:
        """Runs that these arms still need, if no arm diverges at every rate."""
        done = {row["key"] for row in read_runs(self.out)}
        wanted = 0
        for arm in arms:
            wanted += sum(run.key not in done for run in tuning_runs(self.name, self.size, arm))
            # The rate is not known yet; what is done is counted by its arm and seed.
            paired = [run.seed for run in paired_runs(self.name, self.size, arm, 1.0, self.seeds)]
            start = f"{self.name}/{self.size}/{arm.name}/paired/"
            wanted += max(0, len(paired) - sum(key.startswith(start) for key in done))
        return wanted

    def _side_by_side(self, arms: list[Arm], jobs: int) -> None:
        """Arms in processes of their own, which append to the same file; an arm that fails ends the study."""
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        import torch

        # A process can be sent a function of this module, not a caller's.
        loud = replace(self, report=_to_stderr, shared=True)
        with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
            # With its share of the threads: rounding depends on their number, and too many wait for each other.
            threads = max(1, torch.get_num_threads() // jobs)
            pending = {pool.submit(_run_arm, loud, arm, threads): arm.name for arm in arms}
            try:
                for future in as_completed(pending):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(getattr(pool, "_processes", {}).values()):
                    process.terminate()
                raise

    def _corpus(self) -> "StudyCorpus":
        from armillary.lab.study.arm_training import StudyCorpus

        return StudyCorpus(self.out / "tokens", self.device, self.shape.share)

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
        from armillary.lab.study.arm_training import training

        arms = {arm.name: asdict(arm) for arm in arms_of(self.name)}
        wanted = {
            "study": self.name,
            "size": asdict(self.shape),
            "text": self.text.sha256,
            "device": self.device.split(":")[0],
            "arms": arms,
            "rates": list(RATES),
            "tuning_seeds": list(TUNING_SEEDS),
            "smallest_effect": EFFECT,
            "training": training(),
        }
        wanted = json.loads(json.dumps(wanted))
        path = self.out / MANIFEST
        # A study that was refused before its first run leaves a manifest that binds nobody.
        if path.exists() and (self.out / RUNS).exists():
            stored = _manifest(path)
            # Arms may be added to a study; those it has stay what they are.
            known = stored.pop("arms", {})
            # Earlier studies do not say how they were trained; it was as now.
            stored.setdefault("training", wanted["training"])
            plain = [key for key in wanted if key not in ("arms", "size") and stored.get(key) != wanted[key]]
            shown = ("study", "device")
            other = [f"{key} ({stored.get(key)}, now {wanted[key]})" if key in shown else key for key in plain]
            if "study" not in plain:
                other += ["size"] if differ(stored.get("size", {}), wanted["size"], Size) else []
                other += [f"arm {name}" for name in known if differ(known[name], wanted["arms"].get(name, {}), Arm)]
            if other:
                raise ArmillaryError(
                    f"{self.out} holds another study: {', '.join(other)} differ; give another --out or the same "
                    "settings."
                )
            wanted["arms"] = known | wanted["arms"]
        write_whole({path: json.dumps(wanted, indent=1) + "\n"})


def _manifest(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = strict_json(read_bytes(path))
        forms.MANIFEST(stored, "")
    except (ValueError, OSError) as error:
        raise ArmillaryError(
            f"{path} is damaged ({type(error).__name__}), so its runs cannot be identified; restore it, or give "
            "another --out."
        ) from error
    return stored


def _loss_text(row: Mapping[str, Any]) -> str:
    return "diverged" if row["loss"] is None else f"loss {row['loss']:.4f}"


def differ(stored: Mapping[str, Any], wanted: Mapping[str, Any], kind: type[Arm] | type[Size]) -> bool:
    """Whether two descriptions differ; a field that came later has its default in those that do not have it."""
    later = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    defaults = json.loads(json.dumps(later))
    return {**defaults, **stored} != {**defaults, **wanted}


def _run_arm(study: Study, arm: Arm, threads: int) -> None:
    """In a process of its own; on 0 threads, with as many as it has."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    study.run_arm(arm)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def append(path: Path, row: dict[str, Any]) -> None:
    """One line, on disk before this returns; a line that a kill cut off is ended first."""
    with path.open("ab+") as file:
        file.seek(0, os.SEEK_END)
        cut = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write((b"\n" if cut else b"") + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_runs(folder: Path, report: Report = lambda line: None) -> list[dict[str, Any]]:
    """The finished runs; a damaged line is named and left out, so that its run is made again."""
    path = folder / RUNS
    rows: dict[str, dict[str, Any]] = {}
    if not os.path.lexists(path):
        return []
    try:
        lines = read_bytes(path).decode("utf-8", "replace").split("\n")
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = strict_json(line)
            forms.run(row, "")
        except ValueError:
            report(f"line {number} of {path} is damaged and left out; `lab run` makes its run again if that is missing")
            continue
        rows.setdefault(row["key"], row)
    return list(rows.values())
