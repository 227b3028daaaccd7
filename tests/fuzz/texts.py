"""Spoilt texts: plain, packed, .jsonl and .parquet, folders, pipes; read from a path or from standard input."""

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

from fuzz.case import Case, own_identity
from fuzz.models import READ
from fuzz.mutate import NASTY, spelt, spoil_bytes, spoil_entry
from fuzz.shelf import Shelf

PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
ODD = (
    "\x1b[31m",
    "\u202e",
    "\x00",
    "\ufeff",
    "\r\n",
    "\f",
    "---\n",
    "\ud83d",
    "a" * 5000,
    "\u0300" * 50,
    "<|endoftext|>",
)


def text(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    plain = shelf.text.read_text("utf-8")
    make = rng.choice((_plain, _plain, _lines, _packed, _parquet, _folder, _entry, _standard_input))
    path, what, given = make(rng, place, plain)
    column = ("--column", rng.choice(("text", "", "\x1b[31m", "other"))) if rng.random() < 0.2 else ()
    model, out = shelf.model("gpt2"), place / "out"
    return Case(
        f"{make.__name__}: {what}", ("survey", model, "--text", path, *column, *READ, "--out", out),
        ("survey", model, "--text", shelf.text, *READ, "--out", shelf.root / "sound"), own_identity, given, out,
    )  # fmt: skip


Made = tuple[Path | str, str, str | None]


def _spoilt(rng: random.Random, plain: str) -> tuple[bytes, str]:
    if rng.random() < 0.5:
        return spoil_bytes(rng, plain.encode())
    at, odd = rng.randrange(len(plain)), rng.choice(ODD)
    encoding = rng.choice(("utf-8", "utf-8", "utf-16", "utf-32", "latin-1"))
    return (plain[:at] + odd + plain[at:]).encode(encoding, "replace"), f"{odd[:9]!r} at {at}, {encoding}"


def _plain(rng: random.Random, place: Path, plain: str) -> Made:
    data, what = _spoilt(rng, plain)
    path = place / rng.choice(("text.txt", "text", "text.md", "a b\u202e.txt", "text.unknown"))
    path.write_bytes(data)
    return path, what, None


def _lines(rng: random.Random, place: Path, plain: str) -> Made:
    rows = [spelt({"text": part}) for part in plain.split("\n---\n")]
    at = rng.randrange(len(rows))
    rows[at] = rng.choice((
        spelt({"text": rng.choice(NASTY)}), spelt(rng.choice(NASTY)), rows[at][:-2], "", '{"text": "\\ud800"}',
        json.dumps({"text": rng.choice(ODD), "other": "x"}), "[" * 100_000, '{"text": "a", "text": "b"}',
    ))  # fmt: skip
    (place / "text.jsonl").write_text("\n".join(rows), "utf-8")
    return place / "text.jsonl", f"row {at}: {rows[at][:60]}", None


def _packed(rng: random.Random, place: Path, plain: str) -> Made:
    ending, pack = rng.choice(list(PACK.items()))
    data, what = spoil_bytes(rng, pack(plain.encode()))
    path = place / f"text.txt{rng.choice((ending, ending, *PACK, '.zst'))}"
    path.write_bytes(data)
    return path, f"{path.suffix} {what}", None


def _parquet(rng: random.Random, place: Path, plain: str) -> Made:
    import pyarrow
    from pyarrow import parquet

    path = place / "text.parquet"
    parquet.write_table(pyarrow.table({"text": plain.split("\n---\n")}), path)
    data, what = spoil_bytes(rng, path.read_bytes())
    path.write_bytes(data)
    return path, what, None


def _folder(rng: random.Random, place: Path, plain: str) -> Made:
    folder = place / "texts"
    folder.mkdir()
    for number, part in enumerate(plain.split("\n---\n")):
        (folder / f"{number}.txt").write_text(part, "utf-8")
    odd = folder / rng.choice(("3.txt", "more.txt", "more.jsonl", ".hidden", "more.gz"))
    if rng.random() < 0.6:
        return folder, spoil_entry(rng, odd), None
    data, what = _spoilt(rng, plain)
    odd.write_bytes(data)
    return folder, f"{odd.name}: {what}", None


def _entry(rng: random.Random, place: Path, plain: str) -> Made:
    path = place / "text.txt"
    path.write_text(plain, "utf-8")
    return path, spoil_entry(rng, path), None


def _standard_input(rng: random.Random, place: Path, plain: str) -> Made:
    data, what = _spoilt(rng, plain)
    return "-", what, data.decode("utf-8", "replace")
