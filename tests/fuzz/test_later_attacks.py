"""What a later attacker found: two writers, pipes, media that are cut or change their size, texts that grow."""

import errno
import gzip
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import folders
import numpy as np
import pytest
from command import check_sentence, refused, run, works
from fuzz.shelf import copied

import armillary
from armillary.errors import OutputError, TextError
from armillary.flow.documents import from_any, from_path
from armillary.flow.media.sources import read_image, read_wave
from armillary.flow.sources.columns import parquet_rows
from armillary.lab import data
from armillary.results.disk import turns
from armillary.results.disk.folder_swap import JOURNAL, LOCK
from armillary.results.disk.lock import HELD, locked

CLAIMS = ("--claims", "sphere.radius", "--tokens", 150, "--jobs", 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, a text and a survey."""
    root = tmp_path_factory.mktemp("later")
    folders.model_folder("gpt2", root / "gpt2")
    folders.text_file(root / "text.txt")
    works("survey", root / "gpt2", "--text", root / "text.txt", *CLAIMS, "--out", root / "out")
    return root


# Two writers.


TRAIN = ("--vocabulary", 300, "--batch", 2, "--steps", 1)


@pytest.mark.parametrize("what", ["report", "save", "train", "run", "calibrate"])
def test_whoever_writes_to_a_folder_waits_for_its_holder(home: Path, tmp_path: Path, what: str) -> None:
    folder, text = copied(home / "out", tmp_path / "out"), home / "text.txt"
    commands: dict[str, tuple[object, ...]] = {
        "report": ("report", folder),
        "train": ("lab", "train", "--text", text, *TRAIN, "--out", tmp_path / "new"),
        "run": ("lab", "run", "gate", "--text", text, "--out", tmp_path / "new"),
        "calibrate": ("calibrate", "--untrained", 1, "--claims", "sphere.radius", "--out", tmp_path / "new"),
    }
    held = folder if what in ("report", "save") else tmp_path / "new"
    held.mkdir(exist_ok=True)
    with locked(held):
        before = {path: path.read_bytes() for path in held.rglob("*") if path.is_file()}
        message = f"process {os.getpid()} has written to .* since .*; wait for it or choose another folder"
        if what == "save":
            with pytest.raises(OutputError, match=message):
                armillary.read(folder).save(folder)
        else:
            refused(message, *commands[what])
        assert {path: path.read_bytes() for path in held.rglob("*") if path.is_file()} == before
    if what in ("report", "train"):
        works(*commands[what])
    assert not (held / LOCK).exists()


def test_a_report_is_that_of_the_survey_beside_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process puts another survey in its place while the page is drawn."""
    from armillary.views.report import report

    folder, other = copied(home / "out", tmp_path / "out"), ("--text", home / "text.txt", "--claims", "rank.nullspace")
    drawn = report.report_html

    def slow(*given: Any) -> str:
        monkeypatch.undo()
        works("survey", home / "gpt2", *other, "--tokens", 150, "--jobs", 1, "--out", folder)
        return drawn(*given)

    monkeypatch.setattr(report, "report_html", slow)
    refused("holds another survey than the one that was drawn; draw it again", "report", folder)
    assert "sphere.radius" not in (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("age", [0.0, turns.OLD + 5])
def test_a_name_that_a_killed_process_left_ends_by_its_age(tmp_path: Path, age: float) -> None:
    """Where the kernel has no locks, whoever begins puts down its name first."""
    path, left = tmp_path / LOCK, tmp_path / f"{LOCK}.0123456789abcdef"
    left.touch()
    os.utime(left, (time.time() - age,) * 2)
    with turns.a_turn(path) as alone:
        assert alone == (age > 0)
    assert left.exists() == (age == 0)
    assert len(list(tmp_path.iterdir())) == left.exists()


def test_a_child_that_is_forked_before_a_lock_is_taken_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of the file and the kernel's lock as well."""
    from armillary.results.disk import lock

    real, known = lock._flock, []

    def flock(handle: int) -> bool | None:
        known.append(handle in HELD)
        return real(handle)

    monkeypatch.setattr(lock, "_flock", flock)
    with locked(tmp_path):
        assert known == [True]
        with pytest.raises(OutputError), locked(tmp_path):
            pass
    assert not HELD


# What stands in a folder's place.


@pytest.mark.parametrize("name", ["pass", "shard"])
def test_a_pipe_where_a_folder_of_a_survey_would_be(home: Path, tmp_path: Path, name: str) -> None:
    """The standard library opens what it removes, and waits."""
    folder = copied(home / "out", tmp_path / "out")
    os.mkfifo(folder / name)
    works("survey", "--resume", folder)
    arguments = ("survey", home / "gpt2", "--text", home / "text.txt", *CLAIMS, "--out", folder)
    if name == "pass":
        refused("a file stands where a folder should be", *arguments)
    else:
        works(*arguments)


@pytest.mark.parametrize(
    "part", [".a\0b.01234567.part", "./../survey.json.01234567.part", f".{'a' * 5000}.01234567.part"]
)
def test_a_journal_of_other_names_than_ours_is_none(home: Path, tmp_path: Path, part: str) -> None:
    folder = copied(home / "out", tmp_path / "out")
    (folder / JOURNAL).write_text(json.dumps({"files": {"survey.json": part}, "gone": []}))
    works("show", folder)
    works("report", folder)


def test_a_damaged_manifest_is_said_once(home: Path, tmp_path: Path) -> None:
    folder = copied(home / "out", tmp_path / "out")
    (folder / "manifest.json").write_text("")
    output = refused("or delete that file if you trust the others.\n$", "survey", "--resume", folder)
    assert output.count("manifest.json") == 1


# Sound and images.


def clip(path: Path, rate: int = 16_000, samples: int = 8_000, declared: int | None = None) -> Path:
    content = (np.sin(np.arange(samples)) * 20_000).astype("<i2").tobytes()
    size = len(content) if declared is None else declared
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2 & 0xFFFFFFFF, 2, 16)
    head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size)
    path.write_bytes(head + content)
    return path


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"declared": 40_000}, "is cut short or empty: 16,000 of 40,000 bytes"),
        ({"declared": 0}, "is cut short or empty: 0 of 0 bytes"),
        ({"rate": 1}, "is said to have 1 samples per second, and sound has 1,000 to 1,000,000"),
        ({"rate": 2**32 - 1}, "is said to have 4,294,967,295 samples"),
    ],
)
def test_a_clip_that_is_not_what_its_header_says(tmp_path: Path, how: dict[str, int], message: str) -> None:
    """One sample per second took 16,000 numbers for each."""
    assert len(read_wave(clip(tmp_path / "whole.wav"))) == 8_000
    with pytest.raises(TextError, match=message):
        read_wave(clip(tmp_path / "clip.wav", **how))


def test_no_other_program_is_started_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PIL hands PostScript to Ghostscript, whatever the file is called."""
    image, subprocess = pytest.importorskip("PIL.Image"), pytest.importorskip("subprocess")
    eps = pytest.importorskip("PIL.EpsImagePlugin")
    image.new("RGB", (8, 8), (128, 9, 3)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    started: list[Any] = []
    monkeypatch.setattr(eps, "gs_binary", "gs")
    monkeypatch.setattr(subprocess, "check_call", lambda *given, **more: started.append(given))
    with pytest.raises(TextError, match="is not an image that can be read"):
        read_image(tmp_path / "a.png")
    assert not started


def test_pictures_that_are_several_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    first, second = (image.new("RGB", (8, 8), colour) for colour in ((9, 9, 9), (200, 9, 9)))
    for name in ("a.png", "a.webp"):
        first.save(tmp_path / name, save_all=True, append_images=[second])
        with pytest.raises(TextError, match="holds 2 pictures; save the one that is meant"):
            read_image(tmp_path / name)
    with (tmp_path / "a.npy").open("wb") as file:
        for value in (1, 2):
            np.save(file, np.full((8, 8), value, np.uint8))
    with pytest.raises(TextError, match="holds more than one array"):
        read_image(tmp_path / "a.npy")
    first.save(tmp_path / "large.png")
    assert read_image(tmp_path / "large.png").shape == (8, 8, 3)
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 50)
    with pytest.raises(TextError, match="64 pixels"):
        read_image(tmp_path / "large.png")


# Texts.


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    arrays = [pyarrow.array(["one", "two"]), pyarrow.array(["three", "four"])]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(TextError, match="has two columns 'text', so it is not clear which is meant"):
        from_path(tmp_path / "a.parquet")
    with pytest.raises(TextError, match="the DataFrame has two columns 'text'"):
        from_any(pandas.DataFrame([["one", "three"]], columns=["text", "text"]))


def test_rows_of_a_table_are_unpacked_one_by_one(tmp_path: Path) -> None:
    """A word of its dictionary stands in every row, and the file is small; a hundred rows were unpacked at once."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    resource = pytest.importorskip("resource")
    long = "word " * 2_000_000
    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(400, np.int32)), pyarrow.array([long]))
    parquet.write_table(pyarrow.table({"text": words}), tmp_path / "a.parquet", compression="zstd")
    rows = {"text": ["a", None, "b"] * 70, "n": [1, None, 3] * 70}
    parquet.write_table(pyarrow.table(rows), tmp_path / "b.parquet")
    assert list(parquet_rows(tmp_path / "b.parquet")) == pyarrow.table(rows).to_pylist()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    texts = from_path(tmp_path / "a.parquet").texts
    assert [len(text) for text, _ in zip(texts, range(300), strict=False)] == [len(long)] * 300
    unit = 1 if sys.platform == "darwin" else 1024
    # 300 rows of 10 MB; the dictionary and a row or two are in memory at one time.
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 300e6


def test_a_line_without_end_in_the_laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "text.txt.gz", "wb") as file:
        file.write(b"a short line\n" + b"a" * 5000)
    assert len(list(data.lines(tmp_path / "text.txt.gz"))) == 3
    monkeypatch.setattr(data, "LONGEST", 4000)
    with pytest.raises(TextError, match=r"line 2 of .*text.txt.gz is longer than 4000 bytes; split it"):
        list(data.lines(tmp_path / "text.txt.gz"))


def test_health_of_hardly_any_text(home: Path) -> None:
    """One token predicts nothing, so the loss was 0, 'ok'; half of all units were 'always on'."""
    message = "gives 1 tokens, on which a sound model looks broken; give at least 32"
    refused(message, "health", home / "gpt2", "--text", home / "text.txt", "--tokens", 1)


def test_a_loss_of_no_prediction_is_none() -> None:
    from armillary.readouts.health import vitals

    bench: Any = SimpleNamespace(anatomy=SimpleNamespace(tokenizer=None))
    with pytest.MonkeyPatch.context() as patch:
        nothing = SimpleNamespace(nats=(0.0,), bytes=(0,), tokens=(0,))
        patch.setattr(vitals, "text_loss", lambda bench: nothing)
        assert np.isnan(vitals._losses(bench).text)


# Models.


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Prepend", "prepend": "x" * 2000},
        {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 10}] * 9},
    ],
)
def test_a_tokenizer_that_lengthens_every_text(home: Path, tmp_path: Path, normalizer: dict[str, Any]) -> None:
    """It filled all memory, and the library then ended the process."""
    model = copied(home / "gpt2", tmp_path / "model")
    record = json.loads((model / "tokenizer.json").read_text("utf-8"))

    def normalized(steps: dict[str, Any]) -> None:
        (model / "tokenizer.json").write_text(json.dumps({**record, "normalizer": steps}))

    normalized({"type": "Replace", "pattern": {"String": "e"}, "content": "ee"})
    works("anatomy", model)
    normalized(normalizer)
    refused("makes a text up to [0-9,]+ times as long before it is cut into tokens", "anatomy", model)


def test_a_config_of_a_billion_labels(home: Path, tmp_path: Path) -> None:
    model = folders.change_config(copied(home / "gpt2", tmp_path / "model"), num_labels=10**9)
    refused(r"asks for 1e\+09 num_labels, and the library makes a name for each", "anatomy", model)


# A visitor who never ends what it begins.


@pytest.mark.parametrize(
    ("request_of", "answer"),
    [
        (lambda port, token: "", b""),
        (lambda port, token: f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX: ", b""),
        (
            lambda port, token: (
                f"POST /api/export HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Armillary-Token: {token}"
                "\r\nContent-Length: 9\r\n\r\n{"
            ),
            b"did not arrive whole within 0.3 seconds; send it again",
        ),
    ],
)
def test_a_request_that_never_ends_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, request_of: Callable[[int, str], str], answer: bytes
) -> None:
    import threading

    pytest.importorskip("uvicorn")
    from armillary.serve import patience
    from armillary.serve.library import Library
    from armillary.serve.start import make_site

    monkeypatch.setattr(patience, "SECONDS", 0.3)
    site = make_site(Library(models={}, surveys={}), port=0, token="secret", announce=lambda line: None)
    site.server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=site.run, daemon=True)
    thread.start()
    try:
        port = site.listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as visitor:
            visitor.sendall(request_of(port, "secret").encode())
            received = b""
            while not (answer and answer in received) and (more := visitor.recv(65536)):
                received += more
            assert answer in received
    finally:
        site.server.should_exit = True
        thread.join(20)


def test_where_no_kernel_holds_locks_of_several_one_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of one process begin at once; the disk has no locks."""
    import threading

    from armillary.results.disk import lock

    monkeypatch.setattr(lock.fcntl, "flock", lambda *rest: (_ for _ in ()).throw(OSError(errno.ENOLCK, "no locks")))
    monkeypatch.setattr(turns, "PAUSE", 0.01)
    for attempt in range(8):
        folder, holding, most = tmp_path / str(attempt), list[int](), list[int]()
        folder.mkdir()
        start = threading.Barrier(4)

        def hold(
            folder: Path = folder, holding: list[int] = holding, most: list[int] = most, start: Any = start
        ) -> None:
            start.wait()
            try:
                with locked(folder):
                    holding.append(1)
                    time.sleep(0.02)
                    most.append(len(holding))
                    holding.pop()
            except OutputError:
                pass

        threads = [threading.Thread(target=hold) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most and set(most) == {1}
        assert not list(folder.iterdir())


# Parts of a text.


@pytest.mark.parametrize("what", ["state", "facts"])
def test_a_flipped_bit_in_a_part_is_noticed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Of forty flips of one bit twelve gave other numbers, and nothing was said."""
    monkeypatch.setattr("armillary.flow.tokens.SEGMENT_TOKENS", 600)
    words = ("survey", home / "gpt2", "--text", home / "text.txt", "--claims", "sphere.radius", "--tokens", 1400)
    parts = [tmp_path / "1", tmp_path / "2"]
    for number, part in enumerate(parts, 1):
        works(*words, "--shard", f"{number}/2", "--out", part)
    works("merge", *parts, "--jobs", 1, "--out", tmp_path / "out")
    if what == "state":
        changed, message = parts[1] / "shard" / "model.safetensors", "it is not what was written: its SHA-256 differs"
        content = bytearray(changed.read_bytes())
        content[-3] ^= 1
        changed.write_bytes(content)
    else:
        changed, message = parts[1] / "shard" / "shard.json", "beside it are not of one reading"
        record = json.loads(changed.read_text("utf-8"))
        changed.write_text(json.dumps({**record, "about": {**record["about"], "note": "x"}}))
    output = run("merge", *parts, "--jobs", 1, "--out", tmp_path / "again")
    assert output.exit_code == 2
    check_sentence(output.stderr, rf"{message}.*; read that shard again")
