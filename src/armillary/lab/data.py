"""Turn a text into batches of tokens that are the same at every step of every run.

Text is read line by line, never as a whole. A blank line ends a document, and so does a line that separates documents
in a survey (---, ===, a form feed). Tokens are stored on disk in shards, two bytes each, and read through memory maps.
The windows of a batch depend only on the seed and the step, so a resumed run needs no state.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.flow.documents import SEPARATOR
from armillary.flow.sources.text_files import LONGEST, files_in, opened
from armillary.lab.forms import PREPARED, TOKENS, read_form
from armillary.lab.recipe import Recipe
from armillary.lab.required_words import NOUNS
from armillary.results.disk.files import is_readable, read_bytes, sha256, why_not, write_whole

END = "<|endoftext|>"
SHARD = 1 << 24
LINES = 2000
VALIDATION = 0.05
# Each noun is added to the tokenizer's text this often, as if it were among the thousand most frequent words.
NOUN_WEIGHT = 4000

Tick = Callable[[str, int, int], None]
Encode = Callable[[list[str]], list[list[int]]]


def lines(source: Path) -> Iterator[str]:
    """Every line of a file, or of a folder's .txt and .md files (packed ones are unpacked), as strict UTF-8.

    Each line ends in a newline; an empty line separates documents.
    """
    for path in _files(source):
        with opened(path) as file:
            number = 0
            while raw := file.readline(LONGEST + 1):
                number += 1
                if len(raw) > LONGEST:
                    raise TextError(f"line {number} of {path} is longer than {LONGEST} bytes; split it.")
                yield _line(raw, path, number)
        yield "\n"


def _files(source: Path) -> list[Path]:
    if os.path.isdir(source):  # Path would raise an error for a name that is too long
        files = files_in(source, (".txt", ".md"))
        if not files:
            raise TextError(f"the folder {source} contains no text (.txt, .md, packed or not); pass one that does.")
        return files
    if not os.path.exists(source):
        raise TextError(f"there is no text at {source}; pass a file or a folder of text files.")
    if not is_readable(source):
        raise TextError(f"{source} is a stream, but the text is read more than once; save it to a file first.")
    return [source]


def _line(raw: bytes, path: Path, number: int) -> str:
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"line {number} of {path} is not UTF-8 (byte {error.start}: 0x{raw[error.start]:02x}); convert the file, "
            "for example with iconv -t UTF-8."
        ) from None
    line = line.replace("\x00", "").strip("\r\n\ufeff")
    return "\n" if not line.strip() or SEPARATOR.fullmatch(line) else line + "\n"


@dataclass(frozen=True)
class Text:
    """A training text and its held-out part: a separate file, or the last twentieth of the text by bytes."""

    source: Path
    heldout: Path | None
    size: int
    """Bytes of `source` in UTF-8."""
    sha256: str

    @classmethod
    def of(cls, source: str | Path, heldout: str | Path | None = None) -> "Text":
        digest, size, blank = hashlib.sha256(), 0, True
        paths = [Path(path) for path in (source, heldout) if path is not None]
        for path in (source, heldout):
            if path is not None:
                check_source(str(path))
        for path in paths:
            # The separator distinguishes a text with a held-out file from one file with the same lines.
            digest.update(b"" if path is paths[0] else b"\x00")
            for line in lines(path):
                encoded = line.encode()
                digest.update(encoded)
                if path is paths[0]:
                    size, blank = size + len(encoded), blank and line == "\n"
        if blank:
            raise TextError(f"{source} contains no text; pass a file with some words in it.")
        return cls(paths[0], paths[1] if len(paths) > 1 else None, size, digest.hexdigest())

    def part(self, name: str) -> Iterator[str]:
        """The lines of 'train' or of 'valid'."""
        if self.heldout is not None:
            yield from lines(self.source if name == "train" else self.heldout)
            return
        bound, read = self.size * (1 - VALIDATION), 0
        for line in lines(self.source):
            if (read < bound) == (name == "train"):
                yield line
            read += len(line.encode())


def train_tokenizer(text: Text, vocabulary: int) -> Any:
    """Train a byte-level BPE on the training lines, with frequent nouns added so that each becomes one token."""
    import tokenizers as tk
    from tokenizers.pre_tokenizers import ByteLevel

    bpe = tk.Tokenizer(tk.models.BPE())
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    bpe.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    # The weight is proportional to the text, so that nouns do not dominate a small vocabulary.
    weight = min(NOUN_WEIGHT, text.size // 25_000)
    nouns = (" " + " ".join(NOUNS) + "\n" for _ in range(weight))
    bpe.train_from_iterator(chunks(text.part("train"), nouns), trainer)
    size = bpe.get_vocab_size()
    if size < vocabulary:
        raise ArmillaryError(
            f"a vocabulary of {vocabulary} was asked for, but the text supports only {size} tokens; pass more text, "
            f"or ask for a vocabulary of {size} or less."
        )
    return bpe


def chunks(*parts: Iterable[str]) -> Iterator[list[str]]:
    for part in parts:
        stream = iter(part)
        while chunk := list(islice(stream, LINES)):
            yield chunk


class Stream:
    """A long sequence of tokens on disk, in shards."""

    def __init__(self, folder: Path, name: str) -> None:
        index = read_form(folder / f"{name}.json", TOKENS, "delete that folder and try again")
        self.tokens, self.bytes, self.documents = index["tokens"], index["bytes"], index["documents"]
        try:
            # Copied, not mapped: a file that shrinks while it is read would end the process.
            contents = [read_bytes(folder / Path(shard).name, most=None) for shard in index["shards"]]
            self._shards = [np.frombuffer(content, dtype=np.uint16) for content in contents]
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise TextError(f"{folder} is damaged ({why}); delete that folder and try again.") from error
        hashes = {name: sha256(content) for name, content in zip(index["shards"], contents, strict=True)}
        if sum(map(len, self._shards)) != self.tokens or index.get("sha256", hashes) != hashes:
            raise TextError(
                f"{folder} is damaged: {name} should contain {self.tokens} tokens; delete that folder and try again."
            )

    def __len__(self) -> int:
        return int(self.tokens)

    def window(self, start: int, length: int) -> np.ndarray:
        """`length` tokens from `start`, across shards if necessary; fewer at the end."""
        pieces = []
        while length > 0 and start < self.tokens:
            shard, place = divmod(start, SHARD)
            piece = self._shards[shard][place : place + length]
            pieces.append(piece)
            start, length = start + len(piece), length - len(piece)
        return np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)

    def batch(self, recipe: Recipe, step: int) -> np.ndarray:
        """The windows of one step [batch, context + 1]; an epoch contains every window once, in its own order."""
        n = self.windows(recipe.context)
        rows = []
        for j in range(step * recipe.batch, (step + 1) * recipe.batch):
            order, offset = _epoch(recipe.seed, j // n, n, recipe.context)
            rows.append(self.window(int(order[j % n]) * recipe.context + offset, recipe.context + 1))
        return np.stack(rows)

    def windows(self, context: int) -> int:
        """Windows per epoch; one less than fit, so that each epoch can start at its own offset."""
        return max(0, (len(self) - 1) // context - 1)


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, windows: int, context: int) -> tuple[np.ndarray, int]:
    draw = np.random.Generator(np.random.PCG64([seed, epoch]))
    return draw.permutation(windows), int(draw.integers(context))


def prepare(recipe: Recipe, text: Text, folder: Path, tick: Tick = lambda what, done, total: None) -> Any:
    """Write the tokenizer and the shards of both parts to `folder`, unless they exist; returns the tokenizer."""

    done, key = folder / "done.json", {"sha256": text.sha256, "vocabulary": recipe.vocabulary}
    if os.path.lexists(done):
        known = read_form(done, PREPARED, "delete that folder and try again")
        if {name: known[name] for name in key} == key:
            return _prepared(folder, known.get("files", {}))
    tick("training the tokenizer", 0, 0)
    bpe = train_tokenizer(text, recipe.vocabulary)
    try:
        # Files of an earlier preparation must not be taken for this one if this one is killed.
        for old in (done, *folder.glob("*.u16")):
            old.unlink(missing_ok=True)
        write_whole({folder / "bpe.json": bpe.to_str()})
        for name in ("train", "valid"):
            _encode(bpe, text.part(name), folder, name, text.size if name == "train" else 0, tick)
    except OSError as error:
        raise OutputError(why_not(folder, error)) from error
    files = {name: sha256(read_bytes(folder / name)) for name in ("bpe.json", "train.json", "valid.json")}
    write_whole({done: json.dumps({**key, "files": files})})
    return bpe


def _prepared(folder: Path, hashes: Mapping[str, str]) -> Any:
    """The tokenizer that a text was prepared with, once its files are what was written."""
    import tokenizers as tk

    path = folder
    try:
        for name, digest in hashes.items():
            path = folder / Path(name).name
            if sha256(read_bytes(path, most=None)) != digest:
                raise ValueError("its SHA-256 differs")
        path = folder / "bpe.json"
        return tk.Tokenizer.from_buffer(read_bytes(path))
    except Exception as error:  # the library raises plain ones
        why = getattr(error, "strerror", None) or error
        raise TextError(f"{path} is damaged ({why}); delete its folder and try again.") from error


def encoded(part: Iterable[str], encode: Encode, end: int | None) -> Iterator[tuple[list[int], int, int]]:
    """Lines as tokens with `end` before each document, in chunks, each with its numbers of bytes and documents.

    Training and exam both read text here, so that their bits per byte are comparable.
    """
    fresh = True
    for chunk in chunks(part):
        ids: list[int] = []
        read, documents = 0, 0
        for line, row in zip(chunk, encode(chunk), strict=True):
            if line == "\n":
                fresh = True
                continue
            if fresh:
                ids += [] if end is None else [end]
                documents, fresh = documents + 1, False
            ids += row
            read += len(line.encode())
        yield ids, read, documents


def _encode(bpe: Any, part: Iterator[str], folder: Path, name: str, size: int, tick: Tick) -> None:
    def encode(lines: list[str]) -> list[list[int]]:
        return [row.ids for row in bpe.encode_batch_fast(lines)]

    read, documents = 0, 0
    with _Shards(folder, name) as shards:
        for ids, more, begun in encoded(part, encode, bpe.token_to_id(END)):
            shards.write(np.asarray(ids, dtype=np.uint16))
            read, documents = read + more, documents + begun
            tick("reading the text", read, size)
    index = {"tokens": shards.tokens, "bytes": read, "documents": documents, "shards": shards.names}
    index["sha256"] = {shard: sha256(read_bytes(folder / shard, most=None)) for shard in shards.names}
    write_whole({folder / f"{name}.json": json.dumps(index)})


class _Shards:
    """Files of SHARD tokens each, written one after another."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.tokens = 0
        self.names: list[str] = []
        self._file: BinaryIO | None = None

    def write(self, row: np.ndarray) -> None:
        while len(row):
            room = SHARD - self.tokens % SHARD
            if self._file is None or room == SHARD:
                self.close()
                self.names.append(f"{self.name}-{len(self.names):03d}.u16")
                self._file = (self.folder / self.names[-1]).open("wb")
            self._file.write(row[:room].tobytes())
            self.tokens, row = self.tokens + len(row[:room]), row[room:]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "_Shards":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_size(recipe: Recipe, train: Stream, valid: Stream) -> None:
    if train.windows(recipe.context) < recipe.batch:
        need = (recipe.batch + 1) * recipe.context + 1
        raise TextError(
            f"the text is too small for one batch: {recipe.batch} windows of {recipe.context} tokens need {need} "
            f"tokens, and it has {len(train)}; pass more text or a smaller --batch."
        )
    if len(valid) < 2:
        raise TextError("no text is left for validation; pass more text, or another text with --heldout.")


def check_source(source: str) -> None:
    """Refuse a path without text, before anything slow is imported."""
    if not source:
        raise TextError("the path is empty; pass a file or a folder of text files.")
    _files(Path(source))
