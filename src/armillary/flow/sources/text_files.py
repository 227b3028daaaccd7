"""How is a text file read, whatever it is packed in and however long it is?

A file that unpacks to at most `WHOLE` bytes is read at once. A longer one is read in pieces, and only as far as
somebody asks for documents.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from armillary.errors import TextError
from armillary.results.disk.files import in_kernel, is_readable

Item = TypeVar("Item")
WHOLE = 32 << 20
PIECE = 1 << 20
LONGEST = 16 << 20
"""Characters of one document in a file that is read in pieces; what follows up to the next document is left out."""


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise TextError(f"{path} needs the zstandard package: pip install 'armillary[zstd]'.") from None
    return io.BufferedReader(_Frames(path.open("rb"), zstandard.ZstdDecompressor()), PIECE)


class _Frames(io.RawIOBase):
    """The unpacked bytes of zstandard frames. The package's own reader takes a file that breaks off for a whole one."""

    def __init__(self, file: BinaryIO, unpacker: Any) -> None:
        self._file, self._unpacker = file, unpacker
        self._frame, self._ready = unpacker.decompressobj(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while not self._ready:
            if self._frame.eof and (rest := self._frame.unused_data or self._file.read(PIECE)):
                self._frame = self._unpacker.decompressobj()
                self._ready = self._frame.decompress(rest)
            elif self._frame.eof:
                return 0
            elif data := self._file.read(PIECE):
                self._ready = self._frame.decompress(data)
            else:
                raise EOFError("it ends in the middle of a frame")
        taken, self._ready = self._ready[: len(room)], self._ready[len(room) :]
        room[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._file.close()
        super().close()


def _plain(path: Path) -> Any:
    return path.open("rb")


PACKED: Mapping[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _zstandard,
}


def files_in(folder: Path, endings: Iterable[str]) -> list[Path]:
    """All files of a folder with these endings, in the order of their names; nothing is left out unsaid.

    What is not a regular file is refused, and so is a folder that cannot be read, or one of the kernel's.
    """
    if in_kernel(folder):
        raise TextError(f"{folder} is a system folder, whose files may never end; pass another folder.")

    def refuse(error: OSError) -> None:
        raise TextError(f"{error.filename} cannot be read ({error.strerror}); check its permissions.") from error

    paths, known = [], tuple(endings)
    for home, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not in_kernel(os.path.join(home, name))]
        paths += [path for name in names if kind(path := Path(home, name)) in known]
    if strange := [path for path in sorted(paths) if not is_readable(path)]:
        raise TextError(f"{strange[0]} is not a regular file, or a link that leads nowhere; move it elsewhere.")
    return sorted(paths)


def kind(path: Path) -> str:
    """The ending that says what is inside.

    >>> kind(Path("rows.JSONL.gz"))
    '.jsonl'
    """
    return Path(path.stem if path.suffix.lower() in PACKED else path).suffix.lower()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's unpacked bytes; what goes wrong while they are read is said in a sentence."""
    with readable(path):
        # Files of /proc call themselves regular and empty, and some never end.
        empty = not path.stat().st_size
        with io.BytesIO() if empty else PACKED.get(path.suffix.lower(), _plain)(path) as file:
            yield file


UNREADABLE = (OSError, lzma.LZMAError, zlib.error, EOFError)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not isinstance(error, UNREADABLE) and type(error).__name__ != "ZstdError":
            raise
        why = " ".join(str(error).split())
        raise TextError(f"{path} cannot be read ({why}); check the file.") from error


@dataclass(frozen=True)
class Lazy(Generic[Item]):
    """Texts, images or clips that are read anew each time somebody asks for them."""

    start: Callable[[], Iterator[Item]]

    def __iter__(self) -> Iterator[Item]:
        return self.start()


def pieces(file: BinaryIO, source: str) -> Iterator[str]:
    """Text in pieces of a million characters; a piece that is not text is refused."""
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace") as text:
        while piece := text.read(PIECE):
            yield clean(piece, source)


def text_lines(file: BinaryIO, source: str) -> Iterator[str]:
    """Line by line, none of them endless."""
    number = 0
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace") as text:
        while line := text.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                raise TextError(f"{source} line {number} is longer than {LONGEST} characters; split it.")
            yield line


def clean(text: str, source: str) -> str:
    """Without byte-order mark, NUL and Windows line ends; refused if it is not text."""
    strange = sum(text.count(c) for c in ("\x00", "\ufffd"))
    if strange > max(8, len(text) // 100):
        raise TextError(
            f"{source} is not text: {strange} of its {len(text)} characters are NUL or not UTF-8; pass a text file."
        )
    return text.replace("\x00", "").removeprefix("\ufeff").replace("\r\n", "\n")


def whole_characters(text: str, where: str) -> str:
    """The text, unless it holds half of a character (a lone surrogate), which no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise TextError(f"{where} holds half of a character ({half}, a lone surrogate); repair the text.") from None
    return text


def split_pieces(text: Iterable[str], separator: re.Pattern[str]) -> Iterator[str]:
    """What lies between separators, none of which spans more than whole lines.

    >>> list(split_pieces(["one\\n-", "--\\ntwo"], re.compile("^---$", re.MULTILINE)))
    ['one\\n', '\\ntwo']
    """
    rest, skipping = "", False
    for piece in text:
        rest += piece
        # Whether a line is a separator is known when it has ended.
        end = rest.rfind("\n") + 1
        *pieces, last = separator.split(rest[:end])
        if skipping and not pieces:
            rest = rest[end:][-PIECE:]
            continue
        yield from pieces[skipping:]
        rest, skipping = last + rest[end:], False
        if len(rest) > LONGEST:
            yield rest[:LONGEST]
            rest, skipping = rest[rest.rfind("\n") + 1 :][-PIECE:], True
    yield from separator.split(rest)[skipping:]


def standard_input() -> BinaryIO:
    """Its bytes; a program may be started without one."""
    # None in such a program, whatever its type says.
    stream: Any = sys.stdin
    if stream is None:
        raise TextError("standard input is closed; give a file, or what is to be read, in place of -.")
    file: BinaryIO = stream.buffer
    return file
