"""Text in: documents stay documents, padding never counts, and everything that is cut or dropped is noted."""

import bz2
import gzip
import io
import json
import lzma
import sys
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.errors import ModelError, TextError
from armillary.flow.capture import run, still, watching
from armillary.flow.documents import SEPARATOR, Documents, from_any, from_dataset, from_path, sample
from armillary.flow.glimpse import FIRST, ORDINARY, OUTLIER, Glimpse, Tokens
from armillary.flow.media.sources import media_of
from armillary.flow.sources.text_files import split_pieces
from armillary.flow.tokens import Corpus, collate, encode
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.lengths import ALL_KINDS, LENGTHS
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.shared_pass import observe
from armillary.specimens.models.texts import corpus

INSTRUMENTS = (LENGTHS, COVARIANCES, SAMPLES)


class Letters:
    """A tokenizer of single characters, with or without special tokens around."""

    def __init__(self, before=(), after=()):
        self.before, self.after = list(before), list(after)

    def __call__(self, text, add_special_tokens=True):
        ids = [3 + ord(c) % 90 for c in text]
        return {"input_ids": [*self.before, *ids, *self.after] if add_special_tokens else ids}


def test_the_sample_is_what_it_promises():
    texts = list(sample().texts)
    assert len(texts) >= 60
    assert sum(len(text.split()) for text in texts) >= 12_000
    assert len({text[:80] for text in texts}) == len(texts)


def test_a_folder_holds_one_document_per_file(tmp_path):
    (tmp_path / "b.txt").write_text("two\n\nparagraphs")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "three"}) + "\n\n" + json.dumps({"text": "four"}))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    assert list(from_path(tmp_path).texts) == ["one", "two\n\nparagraphs", "three", "four"]


@pytest.mark.parametrize("mark", ["\f", "\n---\n", "\n<|endoftext|>\n", "\n=====\n"])
def test_separators_make_documents(tmp_path, mark):
    path = tmp_path / "t.txt"
    path.write_text(f"first{mark}second{mark}third")
    documents = from_path(path)
    assert [text.strip() for text in documents.texts] == ["first", "second", "third"]
    assert "3 documents between separators" in documents.notes[0]


def test_a_long_plain_file_is_cut_at_blank_lines_and_says_so(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("\n\n".join(" ".join(["word"] * 150) for _ in range(8)))
    documents = from_path(path)
    assert len(list(documents.texts)) == 4
    assert "cut at blank lines into 4 passages" in documents.notes[0]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n---\nworld")))
    assert [text.strip() for text in from_path("-").texts] == ["hello", "world"]


def test_texts_given_in_python():
    assert list(from_any(["a b", "c"]).texts) == ["a b", "c"]
    assert list(from_any("just a sentence").texts) == ["just a sentence"]
    with pytest.raises(TextError, match="one per document"):
        from_any([1, 2])


def test_a_local_dataset_is_streamed(tmp_path):
    pytest.importorskip("datasets")
    rows = [{"text": f"document {i}", "label": i} for i in range(5)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documents = from_dataset(str(tmp_path))
    assert documents.ordered
    assert list(documents.texts) == [row["text"] for row in rows]


def test_an_unknown_dataset_is_one_sentence(tmp_path):
    pytest.importorskip("datasets")
    with pytest.raises(TextError, match=r"could not be opened .* check its name and the network"):
        from_dataset(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n\n ", "is empty"),
        (bytes(range(256)) * 40, "is not text"),
        (b"\x00" * 500, "is not text"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(TextError, match=message):
        from_path(path)


def test_bad_json_lines_name_the_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "fine"}\n{"text": 3}\n')
    with pytest.raises(TextError, match="line 2 has no string under 'text'"):
        from_path(path)
    path.write_text('{"text": "fine"}\n{broken\n')
    with pytest.raises(TextError, match="line 2 is not JSON"):
        from_path(path)


def test_missing_text_and_empty_folder(tmp_path):
    with pytest.raises(TextError, match="there is no text at"):
        from_path(tmp_path / "nowhere.txt")
    with pytest.raises(TextError, match="contains no text file"):
        from_path(tmp_path)


def packed(path, data):
    """Bytes in a file, packed as its ending says."""
    import zstandard

    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}
    path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2", ".zst"])
def test_packed_files_read_as_plain_ones(tmp_path, ending):
    text = packed(tmp_path / f"t.txt{ending}", b"one\n---\ntwo")
    assert [t.strip() for t in from_any(str(text)).texts] == ["one", "two"]
    rows = packed(tmp_path / f"t.jsonl{ending}", b'{"body": "three"}\n{"body": "four"}\n')
    assert list(from_path(rows, column="body").texts) == ["three", "four"]
    assert sorted(t.strip() for t in from_path(tmp_path, column="body").texts) == ["four", "one\n---\ntwo", "three"]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst"])
def test_a_damaged_archive_is_one_sentence(tmp_path, ending):
    path = packed(tmp_path / f"t.txt{ending}", b"words and more words\n" * 999)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(TextError, match=r"t\.txt.* cannot be read"):
        list(from_path(path).texts)
    path.write_bytes(b"not packed at all")
    with pytest.raises(TextError, match=r"t\.txt.* cannot be read"):
        list(from_path(path).texts)


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10**6])
def test_a_long_file_gives_the_documents_that_a_short_one_gives(tmp_path, monkeypatch, size):
    texts = {
        "marks.txt": "first\n---\n\nsecond, with -- inside\n--- not a mark\n\n====\nthird",
        "plain.txt": "\n\n".join(" ".join(["word"] * 150) for _ in range(9)),
        "rows.jsonl": "\n".join(json.dumps({"text": f"row {i}"}) for i in range(40)),
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        whole = from_path(path)
        with monkeypatch.context() as patch:
            patch.setattr("armillary.flow.documents.WHOLE", 16)
            patch.setattr("armillary.flow.sources.text_files.PIECE", size)
            if name == "marks.txt" and size < 64:
                # Whether a file has separators is seen in its first piece.
                patch.setattr("armillary.flow.documents.BLANK", SEPARATOR)
                patch.setattr("armillary.flow.documents._passages", iter)
            streamed = from_path(path)
            assert streamed.ordered and not whole.ordered
            assert [t.strip() for t in streamed.texts] == [t.strip() for t in whole.texts]
            assert list(streamed.texts) == list(streamed.texts)


def test_a_long_file_is_read_as_far_as_needed(tmp_path, monkeypatch):
    monkeypatch.setattr("armillary.flow.documents.WHOLE", 1000)
    path = tmp_path / "long.txt"
    path.write_bytes(b"some words here\n\n---\n" * 200_000 + b"\xff" * 3_000_000)
    stream = iter(from_path(path).texts)
    assert [next(stream).strip() for _ in range(3)] == ["some words here"] * 3
    with pytest.raises(TextError, match="is not text"):
        list(stream)


def test_one_endless_document_is_cut_and_the_next_is_found(monkeypatch):
    monkeypatch.setattr("armillary.flow.sources.text_files.LONGEST", 100)
    text = ["a" * 60] * 5 + ["\n---\nb", "\n", "-" * 3, "\nc"]
    parts = [part.strip() for part in split_pieces(text, SEPARATOR)]
    assert parts == ["a" * 100, "b", "c"]


def test_a_large_folder_is_read_in_turn(tmp_path, monkeypatch):
    for shard in range(40):
        rows = [json.dumps({"text": f"{shard} {row}"}) for row in range(5)]
        packed(tmp_path / f"{shard:02d}.jsonl.gz", "\n".join(rows).encode())
    everything = set(from_path(tmp_path).texts)
    monkeypatch.setattr("armillary.flow.documents.WHOLE", 100)
    documents = from_path(tmp_path)
    texts = list(documents.texts)
    assert len(texts) == 200 and set(texts) == everything
    assert len({text.split()[0] for text in texts[:16]}) == 16
    assert "40 files in turn" in documents.notes[0]


def test_tables_of_every_kind(tmp_path):
    import datasets
    import pandas as pd

    frame = pd.DataFrame({"title": ["t", "u", "v"], "body": ["one", None, "two"], "n": [1, 2, 3]})
    frame.to_parquet(tmp_path / "t.parquet")
    dataset = datasets.Dataset.from_pandas(frame)
    split = datasets.DatasetDict({"train": dataset, "test": dataset})
    for table in (frame, dataset, dataset.to_iterable_dataset(), split, str(tmp_path / "t.parquet"), tmp_path):
        documents = from_any(table, "body")
        assert list(documents.texts) == ["one", "two"] == list(documents.texts)
        with pytest.raises(TextError, match=r"several columns of text; name one of 'title', 'body'"):
            from_any(table)
        with pytest.raises(TextError, match=r"column 'n' of .* contains no text"):
            from_any(table, "n")
        with pytest.raises(TextError, match=r"column 'x' of .* does not exist; its columns are 'title', 'body', 'n'"):
            from_any(table, "x")
    assert from_any(split, "body").source == "split 'train' of a Hugging Face dataset"
    assert from_any(frame, "body").notes[1] == "1 of the first 3 rows have no text; rows without text are left out"
    for column in (frame["title"], dataset["title"]):
        assert list(from_any(column).texts) == ["t", "u", "v"]
        assert media_of(column) is None
    for missing in (None, float("nan"), pd.NA):
        holed = from_any(pd.Series([missing, "one", missing], dtype=object))
        assert list(holed.texts) == ["one"] and "2 of the first 3 rows" in holed.notes[1]
    assert from_any(["a b", " ", "c"]).notes == ("1 of them are empty and left out",)
    with pytest.raises(TextError, match="a Series of 3 rows holds no text but values of type int"):
        from_any(frame["n"])
    with pytest.raises(TextError, match=r"splits 'a', 'b' and no 'train'"):
        from_any(datasets.DatasetDict({"a": dataset, "b": dataset}), "body")
    with pytest.raises(TextError, match="has no rows"):
        from_any(frame.iloc[:0])
    with pytest.raises(TextError, match="a dict is none of these"):
        from_any({"text": ["a"]})
    with pytest.raises(TextError, match="a int is none of these"):
        from_any(3)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(TextError, match=r"broken\.parquet is not a parquet file"):
        from_path(tmp_path / "broken.parquet")


def test_a_very_long_document_is_tokenized_as_far_as_the_budget_reaches():
    class Counting(Letters):
        seen = 0

        def __call__(self, text, add_special_tokens=True):
            self.seen += len(text)
            return super().__call__(text, add_special_tokens)

    tokenizer = Counting()
    text = encode(Documents("t", ("ab " * 3_000_000,), ordered=True), tokenizer, context=128, budget=60)
    assert text.tokens == 60 and text.longer == 1
    assert tokenizer.seen < 20_000
    whole = encode(Documents("t", ("ab " * 30,), ordered=True), Letters(), context=128, budget=60)
    assert whole.windows[0].ids == text.windows[0].ids

    # A tokenizer that joins a thousand characters into one token is asked again, with more text.
    class Long(Letters):
        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [3] * (len(text) // 1000)}

    assert encode(Documents("t", ("a" * 10**6,), ordered=True), Long(), context=128, budget=60).tokens == 60


def test_windows_stay_in_their_document_and_the_budget_holds():
    documents = Documents("t", ("a" * 150, "b", "c" * 20), ordered=True)
    text = encode(documents, Letters(before=[1], after=[2]), context=64, budget=1000)
    assert [(w.document, len(w.ids)) for w in text.windows] == [(0, 64), (0, 64), (0, 28), (1, 3), (2, 22)]
    assert all(w.ids[0] == 1 and w.ids[-1] == 2 for w in text.windows)
    assert text.one_token == 1
    assert text.longer == 1
    assert any("1 document of one token" in note for note in text.notes)
    assert any("1 document longer than the context of 64 tokens" in note for note in text.notes)
    assert any("1 document read in windows of 62 tokens" in note for note in text.notes)
    short = encode(documents, Letters(), context=64, budget=100)
    assert short.tokens == 100


def test_no_budget_is_refused():
    with pytest.raises(TextError, match="--tokens 0 leaves nothing"):
        encode(Documents("t", ("abc",)), Letters(), 64, 0)


def test_batches_never_mix_halves_and_cover_every_token_once():
    text = corpus(documents=9, length=50)
    seen = []
    for batch in text.batches():
        assert {int(d) % 2 for d in batch.documents} == {batch.fold}
        for row, document in enumerate(batch.documents.tolist()):
            ids = batch.ids[row][batch.mask[row]].tolist()
            seen.append((document, tuple(ids)))
            assert batch.following[row][batch.mask[row]].tolist()[:-1] == ids[1:]
    assert sorted(seen) == sorted((w.document, w.ids) for w in text.windows)


def test_shuffling_keeps_documents_and_special_tokens():
    documents = Documents("t", ("abcdefghij" * 12, "klmnop"), ordered=True)
    text = encode(documents, Letters(before=[1], after=[2]), context=64, budget=1000)
    shuffled = text.shuffled(0)
    assert shuffled.windows != text.windows
    for document in (0, 1):
        tokens = [sorted(t for w in c.windows if w.document == document for t in w.ids) for c in (text, shuffled)]
        assert tokens[0] == tokens[1]
    assert all(w.ids[0] == 1 and w.ids[-1] == 2 for w in shuffled.windows)
    assert text.shuffled(0).windows == shuffled.windows


def test_padding_never_counts():
    """The same documents, batched together with padding or one by one without, give the same states."""
    anatomy = read(tiny("llama"))
    documents = Documents("t", tuple("abcdefgh" * n for n in (1, 2, 3, 4, 5, 7)), ordered=True)
    padded = encode(documents, Letters(), context=64, budget=1000)
    singles = [Corpus((window,), "t", padded.documents, len(window.ids), ()) for window in padded.windows]
    together = observe(anatomy, padded, INSTRUMENTS)
    apart = [observe(anatomy, single, INSTRUMENTS) for single in singles]
    lengths, covariances, samples = (
        (together[instrument], reduce(add, (states[instrument] for states in apart))) for instrument in INSTRUMENTS
    )
    assert (lengths[0].sums("length").sum(1)[:, 0] == padded.tokens).all()
    for kind in ALL_KINDS:
        ours, theirs = (state.sums("length", [kind]) for state in lengths)
        assert np.array_equal(ours[:, :, 0], theirs[:, :, 0])
        assert np.allclose(ours, theirs, rtol=1e-5)
    for site in anatomy.norms:
        for ours, theirs in zip(*(state.halves(site) for state in covariances), strict=True):
            assert ours.count == theirs.count
            assert torch.allclose(ours.covariance(), theirs.covariance(), atol=1e-4)
        ours, theirs = (state.rows[site].sample() for state in samples)
        assert torch.equal(ours.payload, theirs.payload)
        assert torch.allclose(ours.rows, theirs.rows, atol=1e-5)


def test_kinds_of_token():
    anatomy = read(tiny("llama"))
    batch = collate(corpus(documents=2, length=8, vocabulary=97).windows, 0)
    tokens = Tokens.of(batch, 2, torch.device("cpu"))
    x = torch.randn(2, 8, 32)
    x[1, 3, 5] = 5000.0
    norm = anatomy.norms["L0.ln1"]
    glimpse = Glimpse(norm, x, norm(x), tokens)
    kind = glimpse.kind.reshape(2, 8)
    assert (kind[:, 0] == FIRST).all()
    assert kind[1, 3] == OUTLIER
    assert (kind == ORDINARY).sum() == 13


def test_a_site_that_is_never_passed_is_an_error():
    anatomy = read(tiny("gpt2"))
    with (
        pytest.raises(ModelError, match=r"never passed \['L0.ln1'\]"),
        watching(anatomy, {"L0.ln1": lambda x, y: None}),
    ):
        pass


def test_watching_changes_nothing():
    anatomy = read(tiny("gpt2"))
    ids = torch.randint(0, 97, (2, 10))
    with still(anatomy.model):
        before = run(anatomy, ids)
        # A pattern is written out by another implementation of attention, which rounds differently.
        sites = [name for name, site in anatomy.sites.items() if site.side != "pattern"]
        with watching(anatomy, {site: lambda x, y: None for site in sites}):
            during = run(anatomy, ids)
    assert torch.equal(before, during)
    assert not any(module._forward_hooks for module in anatomy.model.modules())


def test_the_radius_of_a_constant_vector_is_what_epsilon_leaves():
    """A large mean with next to no variance: the variance must not be lost in the mean."""
    norm = read(tiny("gpt2")).norms["L0.ln1"]
    x = torch.full((1, 3, 32), 50.0)
    x[0, :, 4] += torch.tensor([0.0, 4e-4, 1.0])
    batch = collate(corpus(documents=1, length=3, vocabulary=97).windows, 0)
    glimpse = Glimpse(norm, x, norm(x), Tokens.of(batch, 1, torch.device("cpu")))
    assert float((glimpse.radius - glimpse.theory).abs().max()) < 1e-5


def test_a_long_document_alarms_nobody(caplog):
    import logging

    logger = logging.getLogger("transformers.tokenization_utils_base")
    level = logger.level

    class Alarming(Letters):
        def __call__(self, text, add_special_tokens=True):
            logger.warning("Token indices sequence length is longer than the specified maximum")
            return super().__call__(text, add_special_tokens)

    with caplog.at_level(logging.WARNING):
        logger.setLevel(level)
        encode(Documents("t", ("a" * 500,), ordered=True), Alarming(), context=64, budget=100)
        alarms = [record for record in caplog.records if "longer than" in record.message]
    # Finding out which special tokens there are takes two short texts.
    assert len(alarms) <= 2
    assert logger.level == level
