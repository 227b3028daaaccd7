"""Does a survey that was stopped go on to the same result, and does nobody write to its folder meanwhile?"""

import errno
import json
import os
import platform
import random
import signal
import subprocess
import sys
import time

import folders
import pytest
from command import blank_figures, check_sentence, run

import armillary
from armillary.errors import ArmillaryError, OutputError
from armillary.flow.documents import sample
from armillary.probes.machinery import conclude
from armillary.probes.machinery.passes import batch_reader
from armillary.probes.machinery.processes import kept_pass
from armillary.results.disk.folder_swap import LOCK
from armillary.results.disk.lock import _born, locked

# Every shared instrument of the sphere, words and heads; one experiment.
CLAIMS = "sphere.radius,spectrum.two-zeros,sphere.direction,attention.cosine,words.travel,stability.reprojection"
TEXT = list(sample().texts)[:24]


@pytest.fixture(scope="module", autouse=True)
def often():
    """Segments of a few batches, each kept at once; two untrained twins, since every arm is resumed alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("armillary.flow.tokens.BATCH_TOKENS", 256)
        patch.setattr("armillary.flow.tokens.SEGMENT_TOKENS", 600)
        patch.setattr("armillary.flow.controls.TWINS", ((float("inf"), 2),))
        patch.setattr(kept_pass.KeptPass.__init__, "__defaults__", (0.0,))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(folders.model_folder("gpt2", tmp_path_factory.mktemp("model") / "gpt2"))


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """What a survey that nobody stops leaves in its folder."""
    out = tmp_path_factory.mktemp("whole")
    survey(model, out)
    return content(out)


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory):
    """The folder of a survey of one claim. Tests leave it as it is."""
    out = tmp_path_factory.mktemp("finished")
    survey(model, out, claims="sphere.radius")
    return out


@pytest.fixture
def without_pictures(monkeypatch):
    blank_figures(monkeypatch)


def survey(model, out, **more):
    settings = {"tokens": 2500, "claims": CLAIMS, "quick": True, "progress": False, "out": out}
    return armillary.survey(model, TEXT, **settings | more)


def content(folder):
    """Everything in a survey's folder but the times, and the manifest with their hash."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    record = json.loads(files.pop("survey.json"))
    del files["manifest.json"]
    return {key: value for key, value in record.items() if key != "times"}, {
        name: data for name, data in files.items() if not name.endswith(".html")
    }


class StopError(BaseException):
    """Like a kill: nothing of ours catches it."""


def stopping(monkeypatch, patch, after):
    """The survey ends when the patched function has been called this often."""
    owner, name = patch
    original, calls = getattr(owner, name), [0]

    def counted(*args, **kwargs):
        calls[0] += 1
        if calls[0] > after:
            raise StopError
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("after", [1, 4, 13])
def test_a_pass_goes_on_to_the_same_bytes(model, whole, tmp_path, monkeypatch, after):
    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stopping(patch, (kept_pass.KeptPass, "keep"), after)
        with pytest.raises(StopError):
            survey(model, out)
    assert list((out / "pass").iterdir())
    survey(model, out, resume=True)
    assert content(out) == whole
    assert not (out / "pass").exists()
    assert not (out / LOCK).exists()


@pytest.mark.usefixtures("without_pictures")
def test_what_was_read_is_not_read_again(model, tmp_path, monkeypatch):
    passes, states = [], []
    forward, keep = batch_reader.run, kept_pass.KeptPass.keep
    monkeypatch.setattr(batch_reader, "run", lambda *a, **k: passes.append(1) or forward(*a, **k))
    monkeypatch.setattr(kept_pass.KeptPass, "keep", lambda *a: states.append(1) or keep(*a))
    survey(model, tmp_path / "whole", claims="sphere.radius,attention.cosine")
    whole, segments, out = len(passes), len(states), tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stopping(patch, (kept_pass.KeptPass, "keep"), segments - 2)
        with pytest.raises(StopError):
            survey(model, out, claims="sphere.radius,attention.cosine")
    passes.clear()
    states.clear()
    survey(model, out, resume=True, claims="sphere.radius,attention.cosine")
    assert segments > 12
    assert len(states) == 2
    assert len(passes) < whole / 4


def test_what_was_decided_is_not_decided_again(model, whole, tmp_path, monkeypatch):
    out, judged = tmp_path / "stopped", []
    with monkeypatch.context() as patch:
        stopping(patch, (conclude, "judge"), 3)
        with pytest.raises(StopError):
            survey(model, out)
    assert len(armillary.read(out)) == 3
    original = conclude.judge
    monkeypatch.setattr(conclude, "judge", lambda probe, *rest: judged.append(probe.claim.id) or original(probe, *rest))
    reports = []
    result = survey(model, out, resume=True, tell=lambda so_far: reports.append(len(so_far)))
    assert len(judged) == 3
    assert reports == [0, 1, 2, 3, 4, 5, 6]
    assert content(out) == whole
    assert set(result.times.claims) == set(CLAIMS.split(","))
    judged.clear()
    assert len(survey(model, out, resume=True)) == 6
    assert not judged
    assert content(out) == whole


@pytest.mark.usefixtures("without_pictures")
def test_a_claim_that_failed_is_measured_again(model, tmp_path, monkeypatch):
    def breaks(probe, *rest):
        raise ValueError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(conclude, "judge", breaks)
        assert survey(model, tmp_path / "out", claims="sphere.radius")["sphere.radius"].verdict == "failed"
    result = survey(model, tmp_path / "out", claims="sphere.radius", resume=True)
    assert result["sphere.radius"].verdict == "supported"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "another seed"),
        ({"tokens": 2000}, "another text"),
        ({"dtype": "bfloat16"}, "another .*device or dtype"),
    ],
)
def test_another_survey_cannot_go_on(model, finished, changed, message):
    before = content(finished)
    with pytest.raises(OutputError, match=f"cannot be resumed: it has {message}"):
        survey(model, finished, claims="sphere.radius", resume=True, **changed)
    assert content(finished) == before


@pytest.mark.usefixtures("without_pictures")
def test_states_of_another_text_or_damaged_ones_are_refused(model, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        stopping(patch, (kept_pass.KeptPass, "keep"), 4)
        with pytest.raises(StopError):
            survey(model, out)
    with pytest.raises(OutputError, match=r"belongs to another model, text, seed or version"):
        survey(model, out, resume=True, seed=1)
    state = next((out / "pass").iterdir())
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(OutputError, match=r"safetensors is damaged .* delete it, and its part is read again"):
        survey(model, out, resume=True)
    state.unlink()
    assert len(survey(model, out, resume=True)) == 6


def test_a_short_pass_is_not_kept(model, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_pass.KeptPass.__init__, "__defaults__", (30.0,))
    monkeypatch.setattr(conclude, "judge", lambda *rest: (_ for _ in ()).throw(StopError()))
    with pytest.raises(StopError):
        survey(model, tmp_path / "out")
    assert not (tmp_path / "out" / "pass").exists()


@pytest.mark.parametrize("picture", ["figures", "report.html"])
def test_a_disk_that_fills_up_costs_pictures_alone(model, finished, tmp_path, monkeypatch, picture):
    real = os.fsync

    def full(handle):
        if picture in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="the disk is full"):
            survey(model, out, claims="sphere.radius")
    (record, files), (expected, others) = content(out), content(finished)
    assert record == expected
    # Pictures appear together or not at all.
    rest = {name: data for name, data in others.items() if "figures" not in name}
    assert {name: data for name, data in files.items() if not name.startswith("pass")} == rest
    # What is missing is made by the same command, which measures nothing again.
    survey(model, out, claims="sphere.radius", resume=True)
    assert (out / "report.html").exists()


def test_resuming_needs_a_folder(model):
    with pytest.raises(ArmillaryError, match="pass the folder as out="):
        survey(model, None, resume=True)


def test_one_process_at_a_time(model, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with locked(out), pytest.raises(OutputError, match=rf"process {os.getpid()} has written to .* wait for it"):
        survey(model, out)
    assert not (out / LOCK).exists()


def test_the_lock_of_another_process_is_left(tmp_path):
    with locked(tmp_path):
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).write_text("another's, after this one was deleted by hand")
    assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize(
    "held",
    [
        {"pid": 2**22 + 5, "born": 1.0, "host": platform.node(), "since": "2026-01-01"},
        {"pid": os.getpid(), "born": 1.0, "host": platform.node(), "since": "2026-01-01"},
        {"pid": os.getppid(), "born": _born(os.getppid()), "host": platform.node(), "since": "2026-01-01"},
        {"pid": "x", "born": 1.0, "host": platform.node(), "since": "2026-01-01"},
        {},
        "half a lo",
    ],
    ids=["dead", "another of that number", "alive, and holds no lock", "no number", "empty", "torn"],
)
def test_a_stale_lock_is_taken_over(tmp_path, held):
    (tmp_path / LOCK).write_text(held if isinstance(held, str) else json.dumps(held))
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK).exists()


def test_a_lock_of_another_machine_is_respected(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({"pid": 1, "born": 1.0, "host": "elsewhere", "since": "2026-01-01"}))
    with (
        pytest.raises(OutputError, match=r"a process on elsewhere .* delete .* if that process is gone"),
        locked(tmp_path),
    ):
        pass


def test_the_command_goes_on(model, tmp_path):
    out = tmp_path / "out"
    begun = run("survey", model, "--claims", "sphere.radius,sphere.plane", "--tokens", 300, "--out", out)
    assert begun.exit_code == 0
    again = run("survey", "--resume", out)
    assert again.exit_code == 0
    assert "sphere.plane" in again.stdout
    for arguments, message in (
        (("--resume", out, "--quick"), "leave out quick"),
        ((model, "--resume", out), "leave out model"),
        (("--resume", out, "--out", tmp_path / "other"), "leave out out"),
        (("--resume", tmp_path / "nothing"), "contains no survey to resume"),
    ):
        result = run("survey", *arguments)
        assert result.exit_code == 2
        check_sentence(result.stderr, message)
    # A folder that somebody else wrote cannot allow that code runs.
    stored = json.loads((out / "settings.json").read_text())
    (out / "manifest.json").unlink()
    (out / "settings.json").write_text(json.dumps(stored | {"trust_remote_code": True}))
    refused = run("survey", "--resume", out)
    assert refused.exit_code == 2
    check_sentence(refused.stderr, "add --trust-remote-code if you trust that code")
    assert run("survey", "--resume", out, "--trust-remote-code").exit_code == 0
    (out / "manifest.json").unlink()
    (out / "settings.json").write_text('{"model": "x"}')
    check_sentence(run("survey", "--resume", out).stderr, "was written by another version")
    (out / "settings.json").write_text("{")
    check_sentence(run("survey", "--resume", out).stderr, "cannot be read")


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """SIGKILL at 50 moments: resumed until nobody kills it, the survey is that of a run that nobody killed."""
    model = str(folders.model_folder("gpt2", tmp_path / "gpt2"))
    text = tmp_path / "text.txt"
    text.write_text("\n---\n".join(TEXT))
    start = [sys.executable, "-c", SLOWED, "survey"]
    asked = [model, "--text", str(text), "--claims", CLAIMS, "--quick", "--tokens", "2500", "--jobs", "1"]
    subprocess.run([*start, *asked, "--out", "whole"], cwd=tmp_path, check=True, capture_output=True)
    draw = random.Random(0)
    command, kills = [*start, *asked, "--out", "killed"], 0
    while kills < 50:
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(draw.uniform(0.5, 12))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        kills += process.returncode == -signal.SIGKILL
        begun = any((tmp_path / "killed" / name).exists() for name in ("settings.json", "pass/settings.json"))
        command = [*start, "--resume", "killed"] if begun else [*start, *asked, "--out", "killed"]
        if process.returncode == 0:
            assert content(tmp_path / "killed") == content(tmp_path / "whole")
            command = [*start, *asked, "--out", "killed"]
    # On a busy machine none of the killed ones may have begun.
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


SLOWED = """
import sys
from armillary.flow import tokens
from armillary.probes.machinery.passes import batch_reader
from armillary.probes.machinery.processes import kept_pass
tokens.BATCH_TOKENS, tokens.SEGMENT_TOKENS = 256, 600
kept_pass.KeptPass.__init__.__defaults__ = (0.0,)
from armillary.cli import main
main()
"""
