"""Text in, batches out: nothing lost, nothing twice, the same at every step; and what is no text is refused."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import fill_disk, prose, small

from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.lab import data
from armillary.lab.required_words import NOUNS


@pytest.fixture
def text(tmp_path):
    return prose(tmp_path / "prose.txt")


def stream(folder: Path, tokens: np.ndarray, shard: int = data.SHARD) -> data.Stream:
    """A stream of these very tokens."""
    folder.mkdir(exist_ok=True)
    names = []
    for i in range(0, len(tokens), shard):
        names.append(f"train-{len(names):03d}.u16")
        tokens[i : i + shard].astype(np.uint16).tofile(folder / names[-1])
    index = {"tokens": len(tokens), "bytes": len(tokens), "documents": 1, "shards": names}
    (folder / "train.json").write_text(json.dumps(index))
    return data.Stream(folder, "train")


# Windows and batches.


@settings(max_examples=40, deadline=None)
@given(length=st.integers(60, 400), context=st.integers(2, 9), batch=st.integers(1, 5), seed=st.integers(0, 2**63 - 1))
def test_every_window_of_an_epoch_comes_once_and_none_passes_the_end(tmp_path_factory, length, context, batch, seed):
    # Tokens that count upwards: a window's first token is its place.
    row = stream(tmp_path_factory.mktemp("count"), np.arange(length))
    plan, n = small(context=context, batch=batch, seed=seed), row.windows(context)
    steps = -(-3 * n // batch)
    rows = np.concatenate([row.batch(plan, step) for step in range(steps)])
    assert rows.shape == (steps * batch, context + 1)
    assert (rows == rows[:, :1] + np.arange(context + 1)).all(), "each window is one unbroken run of the text"
    assert rows.max() < length
    for epoch in range(3):
        starts = np.sort(rows[epoch * n : (epoch + 1) * n, 0])
        assert (starts == starts[0] + context * np.arange(n)).all(), "all windows, side by side, once each"
        assert 0 <= starts[0] < context
    # What an epoch leaves out at either end is less than two windows.
    assert length - n * context <= 2 * context


def test_epochs_differ_in_order_and_offset(tmp_path):
    row, plan = stream(tmp_path, np.arange(1000)), small(context=8, batch=1)
    n = row.windows(8)
    epochs = [np.concatenate([row.batch(plan, e * n + i)[:, 0] for i in range(n)]) for e in range(6)]
    assert len({int(starts.min()) for starts in epochs}) > 1, "not always the same cuts"
    assert all((starts != np.sort(starts)).any() for starts in epochs)
    assert len({tuple(starts // 8) for starts in epochs}) == 6


def test_a_batch_follows_from_seed_and_step_alone(tmp_path):
    row = stream(tmp_path, np.random.default_rng(0).integers(300, size=5000))
    plan = small()
    first = [row.batch(plan, step) for step in range(8)]
    data._epoch.cache_clear()
    np.random.seed(3)
    again = {step: data.Stream(tmp_path, "train").batch(plan, step) for step in (7, 2, 5, 0)}
    assert all((first[step] == ids).all() for step, ids in again.items())
    longer = small(steps=99, rate=1e-5)
    assert (row.batch(longer, 5) == first[5]).all(), "how long the run is or how fast it learns does not matter"
    assert (row.batch(small(seed=1), 5) != first[5]).any()


def test_shards_are_one_long_row(tmp_path, text, monkeypatch):
    whole = data.Text.of(text)
    data.prepare(small(), whole, tmp_path / "one")
    monkeypatch.setattr(data, "SHARD", 100)
    data.prepare(small(), whole, tmp_path / "many")
    many = data.Stream(tmp_path / "many", "train")
    files = sorted((tmp_path / "many").glob("train-*.u16"))
    assert len(files) == -(-len(many) // 100) > 20
    assert {path.stat().st_size for path in files[:-1]} == {200}
    monkeypatch.undo()
    stream = data.Stream(tmp_path / "one", "train")
    expected = stream.window(0, len(stream))
    assert len(stream) == len(many) == len(expected)
    monkeypatch.setattr(data, "SHARD", 100)
    assert (many.window(0, len(many)) == expected).all()
    for start, length in ((0, 100), (95, 10), (99, 1), (100, 250), (len(stream) - 3, 10), (len(stream), 5)):
        assert (many.window(start, length) == expected[start : start + length]).all()
    assert (many.batch(small(), 7) == np.stack([expected[s : s + 17] for s in _starts(len(stream), 7)])).all()


def _starts(tokens: int, step: int) -> list[int]:
    n = (tokens - 1) // 16 - 1
    order, offset = data._epoch(0, 0, n, 16)
    return [int(order[j]) * 16 + offset for j in range(4 * step, 4 * step + 4)]


# Documents and parts.


def tokens_of(folder: Path, text: Path, **more: Path) -> tuple[list[int], list[int], object]:
    bpe = data.prepare(small(vocabulary=257), data.Text.of(text, **more), folder)
    streams = (data.Stream(folder, name) for name in ("train", "valid"))
    train, valid = (stream.window(0, len(stream)).tolist() for stream in streams)
    return train, valid, bpe


@pytest.mark.parametrize(
    "between", ["\n\n", "\n \t\n\n\n", "\n---\n", "\n-----  \n", "\n\f\n", "\n===\n", "\n<|endoftext|>\n"]
)
def test_each_document_begins_with_its_mark(tmp_path, between):
    (tmp_path / "t.txt").write_text(between.join(["one\ntwo", "three", "- -"]) + "\n", "utf-8")
    (tmp_path / "h.txt").write_text("held out")
    train, valid, bpe = tokens_of(tmp_path / "tokens", tmp_path / "t.txt", heldout=tmp_path / "h.txt")
    end = bpe.token_to_id(data.END)
    parts = "".join(chr(0) if token == end else bpe.decode([token]) for token in train).split("\0")
    assert parts == ["", "one\ntwo\n", "three\n", "- -\n"]
    assert bpe.decode(valid, skip_special_tokens=True) == "held out\n"
    index = json.loads((tmp_path / "tokens" / "train.json").read_text())
    assert (index["documents"], index["tokens"]) == (3, len(train))
    assert index["bytes"] == sum(len(part) for part in parts)


@pytest.mark.parametrize("line", ["-", "--", "a --- b", "==", "—"])
def test_what_is_no_boundary_stays(tmp_path, line):
    (tmp_path / "t.txt").write_text(f"one\n{line}\ntwo", "utf-8")
    assert list(data.lines(tmp_path / "t.txt")) == ["one\n", f"{line}\n", "two\n", "\n"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("aé \n", max_size=30), min_size=2, max_size=60))
def test_the_parts_are_apart_and_complete(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("parts") / "t.txt"
    path.write_text("words\n" + "\n".join(written), "utf-8")
    whole = list(data.lines(path))
    assert data.Text.of(path).size == sum(len(line.encode()) for line in whole)
    train, valid = (list(data.Text.of(path).part(name)) for name in ("train", "valid"))
    assert train + valid == whole
    size = sum(len(line.encode()) for line in whole)
    train_size = sum(len(line.encode()) for line in train)
    assert train_size >= 0.95 * size > train_size - len(train[-1].encode())


def test_a_text_of_its_own_is_held_out_whole(tmp_path):
    (tmp_path / "a.txt").write_text("first\n")
    (tmp_path / "b.txt").write_text("second\n")
    split = data.Text.of(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (list(split.part("train")), list(split.part("valid"))) == (["first\n", "\n"], ["second\n", "\n"])
    assert split.sha256 != data.Text.of(tmp_path).sha256, "the same lines, cut elsewhere, are another text"
    assert split.sha256 != data.Text.of(tmp_path / "b.txt", tmp_path / "a.txt").sha256


def test_packed_files_and_folders(tmp_path):
    plain = "first line\nzweite Zeile: ä\n"
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.txt").write_text(plain, "utf-8")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(plain.encode()))
    (tmp_path / "deep" / "c.txt.gz").write_bytes(gzip.compress(plain.encode()))
    (tmp_path / "deep" / "d.md").write_text(plain, "utf-8")
    (tmp_path / "deep" / "not.bin").write_bytes(b"\xff\xfe")
    expected = ["first line\n", "zweite Zeile: ä\n", "\n"]
    assert list(data.lines(tmp_path / "a.txt")) == expected
    assert list(data.lines(tmp_path / "b.txt.xz")) == expected
    assert list(data.lines(tmp_path)) == 4 * expected


def test_marks_nulls_and_carriage_returns_are_not_text(tmp_path):
    (tmp_path / "t.txt").write_bytes("\ufeffone\r\ntw\x00o\r\n\r\nthree".encode())
    assert list(data.lines(tmp_path / "t.txt")) == ["one\n", "two\n", "\n", "three\n", "\n"]


def test_what_is_no_text(tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes("good\nalso göod\n".encode() + b"ba\xe4d\n")
    with pytest.raises(TextError, match=r"line 3 of .*bad.txt is not UTF-8 \(byte 2: 0xe4\); convert the file"):
        data.Text.of(bad)
    (tmp_path / "bad.txt.xz").write_bytes(lzma.compress(b"words " * 1000)[:-20])
    (tmp_path / "bad.txt.gz").write_bytes(gzip.compress(b"words " * 1000)[:10] + b"\xff" * 40)
    for name in ("bad.txt.xz", "bad.txt.gz"):
        with pytest.raises(TextError, match=rf"{name} cannot be read \(.*\); check the file"):
            data.Text.of(tmp_path / name)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.txt").write_bytes(b" \n\n---\n\n")
    (tmp_path / "none").mkdir()
    for source, message in (
        (tmp_path / "empty.txt", "empty.txt contains no text; pass a file with some words"),
        (tmp_path / "blank.txt", "blank.txt contains no text"),
        (tmp_path / "none", r"the folder .*none contains no text \(.txt, .md"),
        (tmp_path / "nowhere", "there is no text at .*nowhere; pass a file or a folder"),
        ("x" * 300, "there is no text at x{300}; pass a file or a folder"),
        ("", "the path is empty; pass a file or a folder"),
    ):
        with pytest.raises(TextError, match=message):
            data.Text.of(source)


# Preparing, once.


def test_a_text_is_prepared_once(tmp_path, text, monkeypatch):
    data.prepare(small(), data.Text.of(text), tmp_path / "tokens")
    monkeypatch.setattr(data, "train_tokenizer", lambda *args: pytest.fail("prepared again"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "tokens").iterdir()}
    again = data.prepare(small(seed=3, steps=5), data.Text.of(text), tmp_path / "tokens")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tokens").iterdir()} == before
    assert again.get_vocab_size() == 280


def test_another_text_or_vocabulary_is_prepared_anew(tmp_path, text, monkeypatch):
    monkeypatch.setattr(data, "SHARD", 2000)
    folder, other = tmp_path / "tokens", prose(tmp_path / "other.txt", 3)
    data.prepare(small(), data.Text.of(text), folder)
    assert data.prepare(small(vocabulary=300), data.Text.of(text), folder).get_vocab_size() == 300
    data.prepare(small(), data.Text.of(other), folder)
    data.prepare(small(), data.Text.of(other), tmp_path / "fresh")
    assert contents(folder) == contents(tmp_path / "fresh"), "no shard of the longer text is left"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("broken", ["train", "valid", ".bpe", ".train", ".done"])
def test_an_interrupted_preparation_is_done_over(tmp_path, text, monkeypatch, broken):
    """Also over a finished one of another text, which must not be taken for finished afterwards."""
    folder, other = tmp_path / "tokens", prose(tmp_path / "other.txt", 3)
    data.prepare(small(), data.Text.of(other), folder)
    with monkeypatch.context() as patch:
        fill_disk(patch, broken)
        with pytest.raises(OutputError, match="cannot be written: the disk is full"):
            data.prepare(small(), data.Text.of(text), folder)
    for source in (other, text):
        data.prepare(small(), data.Text.of(source), folder)
        data.prepare(small(), data.Text.of(source), tmp_path / source.stem)
        assert contents(folder) == contents(tmp_path / source.stem)


# The vocabulary.


def test_the_nouns_are_weighed_in(tmp_path, monkeypatch):
    """Prose that knows few of them: with the weight all hundred are single tokens, and without it most are not."""
    path = tmp_path / "t.txt"
    path.write_text((prose(tmp_path / "p.txt", 68).read_text("utf-8") + "\n") * 12, "utf-8")

    def single() -> int:
        bpe = data.train_tokenizer(data.Text.of(path), 3000)
        return sum(len(bpe.encode(" " + noun).ids) == 1 for noun in NOUNS)

    assert len(NOUNS) == len(set(NOUNS)) == 100
    assert single() == 100
    monkeypatch.setattr(data, "NOUN_WEIGHT", 0)
    assert single() < 80


def test_a_vocabulary_that_the_text_cannot_fill(tmp_path):
    (tmp_path / "t.txt").write_text("some words and some more words\n" * 5)
    with pytest.raises(
        ArmillaryError, match=r"a vocabulary of 5000 .* supports only (2[67][0-9]) tokens; .*ask for a vocabulary"
    ) as caught:
        data.train_tokenizer(data.Text.of(tmp_path / "t.txt"), 5000)
    most = int(str(caught.value).split("only ")[1].split()[0])
    assert data.train_tokenizer(data.Text.of(tmp_path / "t.txt"), most).get_vocab_size() == most


@pytest.mark.parametrize(("tokens", "enough"), [(80, False), (81, True)])
def test_a_text_too_small_for_a_batch(tmp_path, tokens, enough):
    """Four windows of sixteen, one more to begin anywhere in, and the token after the last."""
    train = stream(tmp_path, np.arange(tokens))
    if enough:
        data.check_size(small(), train, train)
        assert train.batch(small(), 0).shape == (4, 17)
        return
    with pytest.raises(
        TextError, match="4 windows of 16 tokens need 81 tokens, and it has 80; pass more text or a smaller"
    ):
        data.check_size(small(), train, train)
    assert train.windows(16) == 3


def test_nothing_to_validate_on(tmp_path):
    (tmp_path / "v").mkdir()
    with pytest.raises(
        TextError, match="no text is left for validation; pass more text, or another text with --heldout"
    ):
        data.check_size(small(), stream(tmp_path, np.arange(200)), stream(tmp_path / "v", np.arange(1)))
