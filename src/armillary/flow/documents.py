"""Where does the text come from, and what is one document?

Documents are the unit over which every interval is taken, so they are kept apart from the first byte on: a folder
holds one per file, a .jsonl one per line, a .parquet one per row, a plain file those between its separators. A plain
file without separators is cut at blank lines into passages, and the cut is said; `spread` cuts few long documents.
Files may be packed; long ones are read no further than the budget of tokens needs.
"""

import io
import json
import os
import random
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from armillary.errors import TextError
from armillary.flow.sources.columns import column_texts, parquet_rows, table_rows
from armillary.flow.sources.text_files import (
    PACKED,
    WHOLE,
    Lazy,
    clean,
    files_in,
    kind,
    opened,
    pieces,
    split_pieces,
    standard_input,
    text_lines,
    whole_characters,
)
from armillary.results.disk.files import each_once, is_readable

# A form feed, or a line with nothing but ---, === or <|endoftext|> on it, ends a document.
SEPARATOR = re.compile(r"\f|^(?:-{3,}|={3,}|<\|endoftext\|>)[ \t]*$", re.MULTILINE)
BLANK = re.compile(r"\n\s*\n")
PASSAGE_WORDS = 200
ENDINGS = (".txt", ".md", ".text", ".jsonl", ".rst", ".parquet")
SOURCES = 16
LONG = f"longer than {WHOLE >> 20} MB: read in its own order, as far as the budget needs"
WANTED = "text must be a path, a string, a list of strings (one per document), or a datasets or pandas object"


@dataclass(frozen=True)
class Documents:
    """Texts with the name of where they came from, and what was done to get them."""

    source: str
    texts: Iterable[str]
    notes: tuple[str, ...] = ()
    ordered: bool = False
    """Taken in the order given (a stream); otherwise in a fixed shuffled order, so that a budget samples all."""


def sample() -> Documents:
    """The prose shipped with the package: short documents in many registers."""
    folder = files("armillary.flow") / "sample"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".txt"))
    return Documents("built-in sample", tuple((folder / name).read_text("utf-8") for name in names))


def from_path(path: str | Path, column: str = "") -> Documents:
    """Documents from a file, a folder, or standard input (`-`); `column` names the text in .jsonl and .parquet."""
    if str(path) == "-":
        _check_column("standard input", column)
        return _standard_input()
    if not str(path):
        raise TextError("the path of the text is empty; pass a file, a folder, or - for standard input.")
    path = Path(path)
    if os.path.isdir(path):  # Path would raise of a name too long to be one
        return _folder(path, column)
    if not os.path.exists(path):
        raise TextError(f"there is no text at {path}; pass a file, a folder, or - for standard input.")
    if not is_readable(path):  # a pipe or a device may never end
        raise TextError(f"{path} is not a regular file; pass a file, a folder, or - for standard input.")
    if kind(path) not in (".jsonl", ".parquet"):
        _check_column(str(path), column)
    return _file(path, column)


def _check_column(source: str, column: str) -> None:
    if column:
        raise TextError(f"--column {column} was given, but {source} has no columns; leave it out.")


def from_dataset(name: str, split: str = "train", column: str = "") -> Documents:
    """Documents from a Hugging Face dataset, streamed: nothing is downloaded beyond what the budget reads."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise TextError("--dataset needs the datasets package: pip install 'armillary[datasets]'.") from None
    try:
        stream = load_dataset(name, split=split, streaming=True)
        next(iter(stream))
    except StopIteration:
        raise TextError(f"the dataset {name!r} has no rows in its split {split!r}; name another.") from None
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise TextError(
            f"the dataset {name!r} could not be opened ({type(error).__name__}: {reason}); check its name and the "
            "network, or pass a local folder of .jsonl files."
        ) from error
    texts, key, notes = column_texts(lambda: _unbroken(stream, name), column, f"the dataset {name!r}")
    return Documents(f"dataset {name}", texts, (f"column {key!r} of split {split!r}, streamed", *notes), ordered=True)


def _unbroken(stream: Iterable[Any], name: str) -> Iterator[Any]:
    try:
        yield from stream
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise TextError(
            f"reading the dataset {name!r} failed part-way ({type(error).__name__}: {first}); try again."
        ) from error


def from_any(text: Any, column: str = "") -> Documents:
    """What `armillary.survey(model, text)` takes: nothing (the sample), a path, the texts themselves, or a table.

    >>> from_any(["one document", "another"]).source
    '2 texts given'
    """
    if text is None:
        return sample()
    if isinstance(text, Documents):
        return text
    if isinstance(text, Path) or (isinstance(text, str) and _is_path(text)):
        return from_path(text, column)
    if (table := table_rows(text)) is not None:
        rows, source = table
        texts, name, notes = column_texts(rows, column, source)
        return Documents(source, texts, (f"column {name!r}", *notes), ordered=True)
    if isinstance(text, Mapping) or not isinstance(text, Iterable):
        raise TextError(f"{WANTED}; a {type(text).__name__} is none of these.")
    given = [text] if isinstance(text, str) else list(text)
    if any(not isinstance(item, str) for item in given):
        raise TextError(f"{WANTED}.")
    for number, item in enumerate(given, 1):
        whole_characters(item, f"text {number} of those given")
    if len(given) == 1:
        return _split(given[0], "the text given")
    filled = tuple(_nonempty(given, "the texts given"))
    blank = len(given) - len(filled)
    return Documents(f"{len(given)} texts given", filled, (f"{blank} of them are empty and left out",) if blank else ())


def _is_path(text: str) -> bool:
    if text == "-":
        return True
    try:
        return "\n" not in text and 0 < len(text) < 4096 and (Path(text).exists() or kind(Path(text)) in ENDINGS)
    except OSError:
        return False


def _folder(path: Path, column: str) -> Documents:
    """One document per text file and those inside .jsonl and .parquet; of a large folder, all files in turn."""
    files = files_in(path, ENDINGS)
    if not files:
        endings = f"{', '.join(ENDINGS)}, also packed as {', '.join(PACKED)}"
        raise TextError(f"the folder {path} contains no text file ({endings}); pass a folder that does.")
    if sum(file.stat().st_size for file in files) <= WHOLE:
        parts = [_file(file, column, split=False) for file in files]
        if not any(part.ordered for part in parts):
            return Documents(str(path), tuple(_nonempty([text for part in parts for text in part.texts], str(path))))
    random.Random(0).shuffle(files)
    texts = Lazy(lambda: _in_turn(_file(file, column, split=False).texts for file in files))
    return Documents(str(path), texts, (f"{len(files)} files in turn, as far as the budget needs",), ordered=True)


def _in_turn(sources: Iterable[Iterable[str]]) -> Iterator[str]:
    """One text of each source after another, from a few sources at a time.

    >>> list(_in_turn([["a", "b"], ["c"]]))
    ['a', 'c', 'b']
    """
    waiting = (iter(source) for source in sources)
    reading = deque(islice(waiting, SOURCES))
    while reading:
        source = reading.popleft()
        text = next(source, None)
        if text is None:
            reading.extend(islice(waiting, 1))
        else:
            reading.append(source)
            yield text


def _file(path: Path, column: str, split: bool = True) -> Documents:
    if kind(path) == ".parquet":
        if path.suffix.lower() != ".parquet":
            raise TextError(f"{path} is compressed twice: parquet is compressed already; decompress it first.")
        rows, name, notes = column_texts(lambda: parquet_rows(path), column, str(path))
        return Documents(str(path), rows, (f"column {name!r}", *notes), ordered=True)
    with opened(path) as file:
        head = file.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return _whole(head, str(path), kind(path), column, split)

    def texts() -> Iterator[str]:
        with opened(path) as file:
            yield from _streamed(file, str(path), kind(path), column)

    return Documents(str(path), Lazy(texts), (LONG,), ordered=True)


def _standard_input() -> Documents:
    source, file = "standard input", standard_input()
    head = file.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return _whole(head, source)
    both = cast(BinaryIO, io.BufferedReader(_After(head, file)))
    return Documents(source, _streamed(both, source), (LONG,), ordered=True)


def _whole(data: bytes, source: str, ending: str = ".txt", column: str = "", split: bool = True) -> Documents:
    text = clean(data.decode("utf-8", errors="replace"), source)
    if ending == ".jsonl":
        lines = list(_json_lines(io.StringIO(text), source, column))
        return Documents(source, tuple(_nonempty(lines, source)))
    return _split(text, source) if split else Documents(source, (text,))


class _After(io.RawIOBase):
    """Bytes already read, and what follows them."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = io.BytesIO(head), file

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        data = self._head.read(len(room)) or self._file.read(len(room))
        room[: len(data)] = data
        return len(data)


def _streamed(file: BinaryIO, source: str, ending: str = ".txt", column: str = "") -> Iterator[str]:
    if ending == ".jsonl":
        texts = _json_lines(text_lines(file, source), source, column)
    else:
        text = pieces(file, source)
        first = next(text, "")
        separated = SEPARATOR.search(first) is not None
        parts = split_pieces(chain([first], text), SEPARATOR if separated else BLANK)
        texts = parts if separated else _passages(parts)
    return (text for text in texts if text.strip())


def _json_lines(lines: Iterable[str], source: str, column: str) -> Iterator[str]:
    key = column or "text"
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=each_once)
        except (ValueError, RecursionError) as error:
            reason = _why_no_json(error)
            raise TextError(f"{source} line {number} is not JSON ({reason}); each line must be one object.") from error
        if not isinstance(row, dict) or not isinstance(row.get(key), str):
            raise TextError(f"{source} line {number} has no string under {key!r}; each line needs one.")
        yield whole_characters(row[key], f"{source} line {number}")


def _why_no_json(error: Exception) -> str:
    """In place of what Python says of its own limits."""
    own = isinstance(error, RecursionError) or "integer" in str(error)
    return "nested too deeply, or a number of thousands of digits" if own else getattr(error, "msg", str(error))


def _split(text: str, source: str) -> Documents:
    parts = [part for part in SEPARATOR.split(text) if part.strip()]
    if len(parts) > 1:
        return Documents(source, tuple(parts), (f"{len(parts)} documents between separators",))
    passages = list(_passages(BLANK.split("".join(parts))))
    notes: tuple[str, ...] = ()
    if len(passages) > 1:
        notes = (f"no separators (--- or form feed): cut at blank lines into {len(passages)} passages as documents",)
    return Documents(source, tuple(_nonempty(passages, source)), notes)


def _passages(paragraphs: Iterable[str]) -> Iterator[str]:
    """Paragraphs joined until each passage has about 200 words."""
    passage: list[str] = []
    words = 0
    for paragraph in paragraphs:
        if not paragraph.strip():
            continue
        if passage and words >= PASSAGE_WORDS:
            yield "\n\n".join(passage)
            passage, words = [], 0
        passage.append(paragraph)
        words += len(paragraph.split())
    if passage:
        yield "\n\n".join(passage)


def _nonempty(texts: list[str], source: str) -> list[str]:
    nonempty = [text for text in texts if text.strip()]
    if not nonempty:
        raise TextError(f"{source} holds no text: it is empty; pass a file with some words in it.")
    return nonempty
