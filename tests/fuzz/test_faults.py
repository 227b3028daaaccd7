"""Kills, interrupts, full disks and other processes: a folder holds one whole result, the old one or the new one."""

import errno
import json
import os
import platform
import random
import runpy
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import folders
import psutil
import pytest
from command import blank_figures, run

import armillary
from armillary.errors import ModelError, OutputError
from armillary.results import Survey
from armillary.results.disk import files as writing
from armillary.results.disk import lock
from armillary.results.disk.folder_swap import JOURNAL, LOCK, tidy
from armillary.results.disk.lock import locked
from armillary.results.store import read_survey

SYNTHETIC = runpy.run_path(str(Path(__file__).parents[1] / "browser" / "synthetic.py"))
READ = {"tokens": 150, "claims": "sphere.radius", "progress": False}


@pytest.fixture(scope="module", autouse=True)
def short_pages() -> Iterator[None]:
    """Without the drawing library and without drawing, which are all that a save would spend its time on."""
    with pytest.MonkeyPatch.context() as patch:
        blank_figures(patch)
        for place in ("page", "report.report"):
            patch.setattr(f"armillary.views.{place}.library_script", lambda: "")
        yield


@pytest.fixture(scope="module")
def surveys() -> tuple[Survey, Survey]:
    """Two surveys of different claims, numbers and names; drawn once."""
    first: Survey = SYNTHETIC["synthetic_survey"]()
    model = replace(first.model, name="another-model")
    second = replace(first, findings=tuple(replace(f, caption="another") for f in first.findings[2:5]), model=model)
    return replace(first, findings=first.findings[:4], model=replace(first.model, name="one-model")), second


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.model_folder("gpt2", tmp_path_factory.mktemp("model") / "gpt2")


def child(work: Callable[[], None]) -> int:
    """The work in a process of its own, forked, so that nothing need be imported anew."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
    finally:
        os._exit(0)


def one_of(folder: Path, surveys: tuple[Survey, Survey]) -> Survey:
    """The one survey that a folder holds: what is read, and what lies there for others to open."""
    read = read_survey(folder)
    (same,) = [survey for survey in surveys if survey.model.name == read.model.name]
    assert [f.id for f in read] == [f.id for f in same]
    report, stored = folder / "report.html", folder / "survey.json"
    if report.exists() and stored.exists():
        names = {survey.model.name for survey in surveys if survey.model.name in report.read_text("utf-8")}
        assert names == {survey.model.name for survey in surveys if survey.model.name in stored.read_text("utf-8")}
    return same


def test_killed_at_every_step_of_a_save(surveys: tuple[Survey, Survey], tmp_path: Path) -> None:
    """SIGKILL before each rename, each sync and each removal in turn."""
    seen, before = set(), tmp_path / "before"
    surveys[0].save(before)
    for operation in ("replace", "fsync", "unlink"):
        for calls in range(200):
            folder = tmp_path / f"{operation}{calls}"
            shutil.copytree(before, folder)

            def save(operation: str = operation, calls: int = calls, folder: Path = folder) -> None:
                real, left = getattr(os, operation), [calls]

                def killing(*args: object, **more: object) -> object:
                    left[0] -= 1
                    if left[0] < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*args, **more)

                setattr(os, operation, killing)
                surveys[1].save(folder)

            _, status = os.waitpid(child(save), 0)
            held = one_of(folder, surveys)
            seen.add((operation, held.model.name))
            tidy(folder)
            assert one_of(folder, surveys) is held
            assert not [p for p in folder.rglob("*") if p.name.endswith((".part", JOURNAL))]
            shutil.rmtree(folder)
            if not os.WIFSIGNALED(status):
                break
        assert calls > (2 if operation == "unlink" else 10)
    names = [survey.model.name for survey in surveys]
    # What is removed is removed after the moment of the swap.
    assert seen == {*((how, name) for how in ("replace", "fsync") for name in names), ("unlink", names[1])}


def signalled(moments: int, surveys: tuple[Survey, Survey], folder: Path) -> None:
    draw = random.Random(0)
    surveys[0].save(folder)

    def forever() -> None:
        while True:
            for survey in surveys[::-1]:
                survey.save(folder)

    for moment in range(moments):
        pid = child(forever)
        time.sleep(draw.uniform(0, 0.2))
        os.kill(pid, (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[moment % 3])
        os.waitpid(pid, 0)
        held = one_of(folder, surveys)
        tidy(folder)
        assert one_of(folder, surveys) is held
        assert not list(folder.rglob("*.part"))


def test_killed_interrupted_and_ended_at_random_moments(surveys: tuple[Survey, Survey], tmp_path: Path) -> None:
    signalled(12, surveys, tmp_path / "out")


@pytest.mark.slow
def test_a_hundred_random_moments(surveys: tuple[Survey, Survey], tmp_path: Path) -> None:
    signalled(100, surveys, tmp_path / "out")


def test_whoever_reads_while_another_writes_sees_one_survey(surveys: tuple[Survey, Survey], tmp_path: Path) -> None:
    surveys[0].save(tmp_path)

    def forever() -> None:
        while True:
            for survey in surveys:
                survey.save(tmp_path)

    pid, seen = child(forever), set()
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until and len(seen) < 2:
            seen.update(survey.model.name for survey in (read_survey(tmp_path) for _ in range(25)))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert seen == {survey.model.name for survey in surveys}


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_the_disk_is_full_at_every_write(
    surveys: tuple[Survey, Survey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    surveys[0].save(tmp_path)
    real, failures = getattr(os, operation), 0
    for calls in range(200):
        left = [calls]

        def full(*args: object, left: list[int] = left, **more: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **more)

        message = ""
        with monkeypatch.context() as patch:
            patch.setattr(os, operation, full)
            try:
                surveys[1].save(tmp_path)
            except OutputError as error:
                message = str(error)
        if not message:
            break
        failures += 1
        assert "the disk is full; free some space" in message
        one_of(tmp_path, surveys)
        tidy(tmp_path)
        surveys[0].save(tmp_path)
    assert failures > 8
    assert one_of(tmp_path, surveys) is surveys[1]


def test_a_full_disk_keeps_the_survey_first(
    surveys: tuple[Survey, Survey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures are made from survey.json, not the other way round."""
    real = writing.stage

    def full(target: Path, content: str | bytes) -> Path:
        if target.suffix == ".html":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(target, content)

    monkeypatch.setattr("armillary.results.disk.folder_swap.stage", full)
    with pytest.raises(OutputError, match="the disk is full"):
        surveys[1].save(tmp_path / "out")
    assert one_of(tmp_path / "out", surveys) is surveys[1]
    assert not (tmp_path / "out" / "report.html").exists()


# Folders that change under a running survey.


def test_a_folder_that_is_removed_is_made_again(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    survey = armillary.survey(str(model), out=out, tell=lambda so_far: shutil.rmtree(out, ignore_errors=True), **READ)
    assert [f.id for f in read_survey(out)] == [f.id for f in survey]


def test_a_folder_of_the_system_is_refused(model: Path) -> None:
    result = run("survey", model, "--claims", "sphere.radius", "--tokens", 150, "--out", "/proc/armillary")
    assert result.exit_code == 2
    assert "/proc/armillary cannot be written" in result.stderr


def test_what_a_killed_run_left_goes_with_the_next(model: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    left = [tmp_path / ".survey.json.0123abcd.part", tmp_path / "tables" / ".sphere.radius.csv.0123abcd.part"]
    mine = tmp_path / ".thesis.tex.0123abcd.part"
    for path in (*left, mine):
        path.write_text("half")
    armillary.survey(str(model), out=tmp_path, **READ)
    assert [path.exists() for path in (*left, mine)] == [False, False, True]


@pytest.mark.parametrize("nested", ["out", "deep/er/out"])
def test_a_survey_that_never_began_leaves_no_folder(model: Path, tmp_path: Path, nested: str) -> None:
    result = run("survey", tmp_path / "nowhere", "--claims", "sphere.radius", "--out", tmp_path / nested)
    assert result.exit_code == 2
    assert not any(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    run("survey", tmp_path / "nowhere", "--claims", "sphere.radius", "--out", tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()


@pytest.mark.parametrize("stale", [False, True])
def test_of_several_that_begin_at_once_one_writes(tmp_path: Path, stale: bool) -> None:
    """Also where the lock of a process that is gone lies there, which all of them find."""
    for attempt in range(8):
        folder, holders = tmp_path / f"out{attempt}", tmp_path / f"holders{attempt}"
        folder.mkdir()
        holders.mkdir()
        if stale:
            gone = {"pid": 2**22 + 1, "born": 1.0, "host": platform.node(), "since": "2026"}
            (folder / LOCK).write_text(json.dumps(gone))
        start = time.monotonic() + 0.05

        def hold(folder: Path = folder, holders: Path = holders, start: float = start) -> None:
            while time.monotonic() < start:
                pass
            with suppress(OutputError), locked(folder):
                mine = holders / str(os.getpid())
                mine.touch()
                time.sleep(0.01)
                alone = len(list(holders.iterdir())) == 1
                mine.unlink()
                os._exit(11 if alone else 12)

        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [child(hold) for _ in range(6)]]
        assert set(codes) <= {0, 11} and 11 in codes


def test_a_lock_that_is_removed_while_another_opens_it_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder ends, and a third process takes the folder, between a second one's opening the lock and taking it."""
    real, (ready, over) = lock._flock, (os.pipe(), os.pipe())

    def hold() -> None:
        with locked(tmp_path):
            os.write(ready[1], b"x")
            os.read(over[0], 1)

    def flock(handle: int) -> bool | None:
        monkeypatch.undo()
        (tmp_path / LOCK).unlink()
        third.append(child(hold))
        os.read(ready[0], 1)
        return real(handle)

    third: list[int] = []
    monkeypatch.setattr(lock, "_flock", flock)
    with pytest.raises(OutputError, match="wait for it"), locked(tmp_path):
        pass
    os.write(over[1], b"x")
    assert os.waitpid(third[0], 0)[1] == 0
    with locked(tmp_path):
        pass


def test_a_forked_child_holds_nothing_and_frees_nothing(tmp_path: Path) -> None:
    """A worker that outlives a killed run does not keep its folder, and one that ends does not give it away."""
    ready, over = os.pipe(), os.pipe()

    def outlive() -> None:
        os.write(ready[1], b"x")
        os.read(over[0], 1)

    def begin() -> None:
        with locked(tmp_path):
            child(outlive)
            os.read(ready[0], 1)
            os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(child(begin), 0)
    with locked(tmp_path):
        os.waitpid(child(lambda: None), 0)
        with pytest.raises(OutputError, match="wait for it"), locked(tmp_path):
            pass
    os.write(over[1], b"x")


@pytest.mark.parametrize(("alive", "seconds"), [(False, 0), (True, 0), (True, -86400), (True, 3600)])
def test_where_no_kernel_holds_locks_the_name_of_the_holder_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool, seconds: float
) -> None:
    """Also where the clock is set meanwhile, from which the times of the day of all beginnings are computed."""
    monkeypatch.setattr(lock.fcntl, "flock", lambda *rest: (_ for _ in ()).throw(OSError(errno.ENOLCK, "no locks")))
    owner = {"pid": os.getpid() if alive else 2**22 + 1, "born": lock._born(os.getpid()), "host": platform.node()}
    (tmp_path / LOCK).write_text(json.dumps(owner | {"since": "2026"}))
    began, booted = psutil.Process.create_time, psutil.boot_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: began(process) + seconds)
    monkeypatch.setattr(psutil, "boot_time", lambda: booted() + seconds)
    with pytest.raises(OutputError, match="wait for it") if alive else nullcontext(), locked(tmp_path):
        pass
    assert (tmp_path / LOCK).exists() == alive


def test_a_lock_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *rest: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OutputError, match="the disk is full"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_that_is_no_file_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with locked(tmp_path):
        assert (tmp_path / LOCK).is_file()
    assert not list(tmp_path.iterdir())


# Weights that change under a running survey.


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_weights_that_are_rewritten_or_cut_change_nothing(model: Path, tmp_path: Path, kind: str) -> None:
    from armillary.anatomy.loading.identity import checksum

    if kind == "gguf":
        folders.gguf_file(tmp_path / "tiny.gguf")
        source = path = tmp_path / "tiny.gguf"
    else:
        source = folders.spoilt(model, tmp_path / "model")
        path = source / "model.safetensors"

    def read() -> None:
        anatomy = armillary.load(str(source), progress=False)
        before = checksum(anatomy.model)
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            assert checksum(anatomy.model) == before
            file.truncate(10)
        os._exit(7 if checksum(anatomy.model) == before else 8)

    # In a process of its own: a mapped file that is cut ends it by SIGBUS.
    _, status = os.waitpid(child(read), 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7


def test_weights_that_change_while_they_are_read_are_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    source = folders.spoilt(model, tmp_path / "model")
    real = transformers.GPT2LMHeadModel.from_pretrained

    def slow(*args: object, **more: object) -> object:
        loaded = real(*args, **more)
        os.utime(source / "model.safetensors", (1, 1))
        return loaded

    armillary.load(str(source), progress=False)
    monkeypatch.setattr(transformers.GPT2LMHeadModel, "from_pretrained", slow)
    with pytest.raises(ModelError, match="changed while they were read"):
        armillary.load(str(source), progress=False)
