"""Ways to spoil a file: as JSON, as bytes, and as an entry of a folder. Each says what it did."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

DEEP, LONG = "@deep@", "@long@"
# What JSON can spell and Python's writer cannot: nesting beyond any stack, integers beyond any type.
SPELT = {f'"{DEEP}"': "[" * 100_000 + "]" * 100_000, f'"{LONG}"': "9" * 5_000}
NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e308, 1e-320, float("nan"),
    float("inf"), "", "x", "x" * 3000, "NaN", "-1", "\x1b[31mred\x1b[0m", "a\u202eb", "\ud800", "../../../etc/passwd",
    "a\x00b", "=1+1", "<script>alert(1)</script>", "\\input{x}", [], {}, [[]], [None], {"": None}, [1, 2, 3],
    DEEP, LONG,
)  # fmt: skip


def spelt(record: Any) -> str:
    """JSON with what only a hostile writer writes."""
    text = json.dumps(record, ensure_ascii=True)
    for mark, spelling in SPELT.items():
        text = text.replace(mark, spelling)
    return text


def nodes(record: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a record."""
    places: list[tuple[Any, Any]] = []
    entries = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    for key, value in entries:
        places.append((record, key))
        places += nodes(value)
    return places


def spoil_json(rng: random.Random, record: Any) -> tuple[Any, str]:
    """One change of a record; records of millions of nodes would be slow, ours are small."""
    places = nodes(record)
    if not places:
        return rng.choice(NASTY), "replaced"
    top = [place for place in places if place[0] is record]
    # Deep places are many: half of the changes are made at the top.
    home, key = rng.choice(top if rng.random() < 0.5 else places)
    what = rng.choice(("nasty", "nasty", "nasty", "drop", "rename", "double", "nudge", "swap", "wrap"))
    old = home[key]
    if what == "drop":
        del home[key]
    elif what == "rename" and isinstance(home, dict):
        home[misspelt(rng, str(key))] = home.pop(key)
    elif what == "double" and isinstance(old, list) and old:
        old.insert(rng.randrange(len(old) + 1), rng.choice(old))
    elif what == "nudge" and isinstance(old, int | float) and not isinstance(old, bool):
        home[key] = old + rng.choice((1, -1, 0.5, old))
    elif what == "swap":
        other, there = rng.choice(places)
        home[key] = json.loads(json.dumps(other[there]))
    elif what == "wrap":
        home[key] = rng.choice(([old], {"value": old}, str(old)))
    else:
        what, home[key] = "nasty", rng.choice(NASTY)
    return record, f"{what} {str(key)[:40]!r}: {str(old)[:30]!r} → {str(home[key])[:30] if _has(home, key) else '∅'!r}"


def _has(home: Any, key: Any) -> bool:
    return key in home if isinstance(home, dict) else key < len(home)


def misspelt(rng: random.Random, word: str) -> str:
    at = rng.randrange(max(1, len(word)))
    return rng.choice((word[:at] + word[at + 1 :], word + "s", word[:at] + "_" + word[at:], word.upper(), "n_" + word))


def spoil_bytes(rng: random.Random, data: bytes, within: int | None = None) -> tuple[bytes, str]:
    """One change of some bytes, in the first `within` of them."""
    end = min(len(data), within or len(data))
    at = rng.randrange(end) if end else 0
    match rng.choice(("flip", "flip", "number", "cut", "grow", "zero", "repeat", "insert", "empty")):
        case "flip" if data:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :], f"bit of byte {at}"
        case "number":
            size = rng.choice((1, 2, 4, 8))
            value = rng.choice((0, 1, -1, 2 ** (8 * size - 1) - 1, 255, 4, 64)) % (1 << (8 * size))
            return data[:at] + value.to_bytes(size, "little") + data[at + size :], f"{value} at byte {at}"
        case "cut":
            return data[:at], f"cut at {at}"
        case "grow":
            return data + rng.randbytes(rng.choice((1, 8, 1000))), "longer"
        case "zero":
            return data[:at] + bytes(min(64, len(data) - at)) + data[at + 64 :], f"zeros at {at}"
        case "repeat":
            return data[:at] + data[max(0, at - 100) : at] + data[at:], f"repeated at {at}"
        case "insert":
            junk = rng.choice((b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"\xed\xa0\x80", b"\n", b'"'))
            return data[:at] + junk + data[at:], f"{junk!r} at {at}"
        case _:
            return b"", "emptied"


def spoil_entry(rng: random.Random, path: Path) -> str:
    """What a file should not be: missing, a folder, a link, a pipe, a device."""
    what = rng.choice(("missing", "folder", "dangling link", "loop", "pipe", "endless device", "random device"))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    match what:
        case "folder":
            path.mkdir()
        case "dangling link":
            path.symlink_to(path.with_name("nowhere"))
        case "loop":
            path.symlink_to(path)
        case "pipe":
            os.mkfifo(path)
        case "endless device":
            path.symlink_to("/dev/zero")
        case "random device":
            path.symlink_to("/dev/random")
    return f"{path.name} is {what}"


def spoil_json_file(rng: random.Random, path: Path) -> str:
    """A JSON file with one to three changes, or changed as bytes."""
    if rng.random() < 0.2:
        data, what = spoil_bytes(rng, path.read_bytes())
        path.write_bytes(data)
        return f"{path.name}: {what}"
    record, changes = json.loads(path.read_text("utf-8")), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        record, what = spoil_json(rng, record)
        changes.append(what)
        if not isinstance(record, dict | list):
            break
    path.write_text(spelt(record), "utf-8")
    return f"{path.name}: {'; '.join(changes)}"
