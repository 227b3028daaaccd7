"""Where does the text come from, and what is one document?

Documents are the unit over which every interval is taken, so they are kept apart from the first byte on: a folder
holds one per file, a .jsonl one per line, a plain file those between its separators. A plain file without
separators is cut at blank lines into passages, and the cut is said.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from armillary.errors import TextError

# A form feed, or a line with nothing but ---, === or <|endoftext|> on it, ends a document.
SEPARATOR = re.compile(r"\f|^(?:-{3,}|={3,}|<\|endoftext\|>)[ \t]*$", re.MULTILINE)
PASSAGE_WORDS = 200
ENDINGS = (".txt", ".md", ".text", ".jsonl", ".rst")


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


def from_path(path: str | Path) -> Documents:
    """Documents from a file, a folder, or standard input (`-`)."""
    if str(path) == "-":
        return _split(_decode(sys.stdin.buffer.read(), "standard input"), "standard input")
    if not str(path):
        raise TextError("an empty path names no text; pass a file, a folder, or - for standard input.")
    path = Path(path)
    if os.path.isdir(path):  # Path would raise of a name too long to be one
        found = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in ENDINGS)
        if not found:
            raise TextError(f"the folder {path} holds no text file ({', '.join(ENDINGS)}); pass a folder that does.")
        texts = [text for file in found for text in _file(file, split=False).texts]
        return Documents(str(path), tuple(_nonempty(texts, str(path))))
    if not os.path.exists(path):
        raise TextError(f"there is no text at {path}; pass a file, a folder, or - for standard input.")
    return _file(path, split=True)


def from_dataset(name: str, split: str = "train", column: str = "") -> Documents:
    """Documents from a Hugging Face dataset, streamed: nothing is downloaded beyond what the budget reads."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise TextError("--dataset needs the datasets package: pip install 'armillary[datasets]'.") from None
    try:
        stream = load_dataset(name, split=split, streaming=True)
        first = next(iter(stream))
    except StopIteration:
        raise TextError(f"the dataset {name!r} has no rows in its split {split!r}; name another.") from None
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise TextError(
            f"the dataset {name!r} could not be opened ({type(error).__name__}: {reason}); check its name and the "
            "network, or pass a local folder of .jsonl files."
        ) from error
    key = column or next((k for k in ("text", "content", "document", *first) if isinstance(first.get(k), str)), "")
    if not isinstance(first.get(key), str):
        raise TextError(f"the dataset {name!r} has no column of text; its columns are {', '.join(first)}.")
    return Documents(
        f"dataset {name}", _rows(stream, key, name), (f"column {key!r} of split {split!r}, streamed",), ordered=True
    )


def _rows(stream: Any, key: str, name: str) -> Iterator[str]:
    try:
        yield from (row[key] for row in stream if row[key] and row[key].strip())
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise TextError(
            f"the dataset {name!r} broke off while it was read ({type(error).__name__}: {first}); try again."
        ) from error


def from_any(text: Any) -> Documents:
    """What `armillary.survey(model, text)` takes: nothing (the sample), a path, or the texts themselves.

    >>> from_any(["one document", "another"]).source
    '2 texts given'
    """
    if text is None:
        return sample()
    if isinstance(text, Documents):
        return text
    if isinstance(text, Path) or (isinstance(text, str) and _is_path(text)):
        return from_path(text)
    texts = [text] if isinstance(text, str) else list(text)
    if any(not isinstance(one, str) for one in texts):
        raise TextError("text must be a path, a string, or a list of strings (one per document).")
    if len(texts) == 1:
        return _split(texts[0], "the text given")
    return Documents(f"{len(texts)} texts given", tuple(_nonempty(texts, "the texts given")))


def _is_path(text: str) -> bool:
    if text == "-":
        return True
    try:
        return "\n" not in text and 0 < len(text) < 4096 and (Path(text).exists() or text.lower().endswith(ENDINGS))
    except OSError:
        return False


def _file(path: Path, split: bool) -> Documents:
    try:
        text = _decode(path.read_bytes(), str(path))
    except OSError as error:
        raise TextError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    if path.suffix.lower() == ".jsonl":
        return Documents(str(path), tuple(_nonempty(list(_json_lines(text, path)), str(path))))
    return _split(text, str(path)) if split else Documents(str(path), (text,))


def _decode(data: bytes, source: str) -> str:
    text = data.decode("utf-8", errors="replace")
    strange = sum(text.count(c) for c in ("\x00", "\ufffd"))
    if strange > max(8, len(text) // 100):
        raise TextError(
            f"{source} is not text: {strange} of its {len(text)} characters are not UTF-8; pass a text file."
        )
    return text.replace("\x00", "").removeprefix("\ufeff").replace("\r\n", "\n")


def _json_lines(text: str, path: Path) -> Iterator[str]:
    for number, line in enumerate(io.StringIO(text), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TextError(f"{path} line {number} is not JSON ({error.msg}); each line must be one object.") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise TextError(f"{path} line {number} has no string under 'text'; each line needs one.")
        yield row["text"]


def _split(text: str, source: str) -> Documents:
    parts = [part for part in SEPARATOR.split(text) if part.strip()]
    if len(parts) > 1:
        return Documents(source, tuple(parts), (f"{len(parts)} documents between separators",))
    passages = _passages(text)
    notes: tuple[str, ...] = ()
    if len(passages) > 1:
        notes = (f"no separators (--- or form feed): cut at blank lines into {len(passages)} passages as documents",)
    return Documents(source, tuple(_nonempty(passages, source)), notes)


def _passages(text: str) -> list[str]:
    """Paragraphs joined until each passage has about 200 words."""
    made: list[str] = []
    words = PASSAGE_WORDS
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.strip():
            continue
        if words >= PASSAGE_WORDS:
            made.append(paragraph)
            words = len(paragraph.split())
        else:
            made[-1] += "\n\n" + paragraph
            words += len(paragraph.split())
    return made


def _nonempty(texts: list[str], source: str) -> list[str]:
    kept = [text for text in texts if text.strip()]
    if not kept:
        raise TextError(f"{source} holds no text: it is empty; pass a file with some words in it.")
    return kept
