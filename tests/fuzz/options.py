"""Spoilt commands: unknown options, values of other types, paths that cannot be."""

import random
from pathlib import Path
from typing import Any

from fuzz.case import Case
from fuzz.shelf import Shelf

VALUES = (
    "", "0", "1", "-1", "2", "7", "1.5", "nan", "inf", "1e9", "9" * 40, "9" * 5000, "x", "all", "A", "A,B", ",",
    "sphere.radius", "sphere.radios", "../..", "/", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem",
    "./nowhere", "a" * 5000, "a\x00b", "\x1b[31mred", "\u202etxt", "\ud800", "~", "~nobody/x", "-", "--", "2/3",
    "/proc", "/sys", "/dev", "/proc/self", "/dev/shm",
    "3/2", "0/0", "1/0", "cpu", "cuda:99", "mps", "float64", "bfloat16", "local:0", "tcp://", "x.html", "x.csv",
    "x.tex", "x.xyz", "first,last", "L0H0", "0,1", "=1+1", "%s%n", "{0.__class__}", "$(id)", "`id`", "C:\\x", "con",
)  # fmt: skip
# Commands that read what is on the shelf in well under a second; a case changes one or two of their words.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("survey", "MODEL", "--text", "TEXT", "--tokens", "150", "--claims", "sphere.radius", "--jobs", "1", "--out",
     "OUT"),
    ("survey", "MODEL", "--text", "TEXT", "--tokens", "150", "--claims", "sphere.radius", "--jobs", "1", "--out", "OUT",
     "--shard", "1/1"),
    ("survey", "--resume", "SURVEY"),
    ("merge", "SURVEY", "--out", "OUT", "--jobs", "1"),
    ("show", "SURVEY", "sphere.radius", "--format", "csv"),
    ("show", "SURVEY", "--json"),
    ("report", "SURVEY", "--out", "OUT.html"),
    ("compare", "SURVEY", "SURVEY", "--out", "OUT.html", "--tokens", "150"),
    ("figures", "SURVEY", "sphere.radius", "--out", "OUT.svg", "--columns", "1"),
    ("matrix", "SURVEY", "SURVEY", "--format", "csv"),
    ("health", "MODEL", "--text", "TEXT", "--tokens", "150", "--out", "OUT.html"),
    ("paper", "MODEL", "--text", "TEXT", "--layers", "0", "--top", "2", "--out", "OUT"),
    ("patches", "MODEL", "--images", "TEXT", "--out", "OUT.html"),
    ("lab", "exam", "RUN", "--text", "TEXT"),
    ("claims", "sphere.radius"),
    ("models",),
    ("anatomy", "MODEL", "--device", "cpu", "--dtype", "float32", "--json"),
    ("edits",),
    ("heads", "MODEL", "--layer", "0", "--head", "0", "--top", "3", "--matrix", "qk", "--ranking", "dot", "--out",
     "OUT"),
    ("travel", "MODEL", "the other", "--top", "3", "--seed", "0", "--out", "OUT.html"),
    ("lab", "card", "RUN", "--title", "T", "--about", "x"),
    ("lab", "plot", "RUN", "--out", "OUT.csv"),
    ("lab", "show", "STUDY", "--out", "OUT.csv"),
    ("lab", "train", "--text", "TEXT", "--steps", "2", "--vocabulary", "260", "--batch", "2", "--rate", "0.001",
     "--seed", "0", "--architecture", "gpt", "--device", "cpu", "--out", "OUT"),
    ("lab", "run", "gate", "--preset", "nowhere", "--seeds", "1", "--jobs", "1", "--arms", "x", "--out", "OUT"),
)  # fmt: skip
FLAGS = (
    "--json",
    "--brief",
    "--full",
    "--quick",
    "--steps",
    "--debug",
    "--nowhere",
    "--help",
    "--methods",
    "--version",
)
# What a value may ask for that takes long or never ends, rightly: the whole built-in survey, a long training.
SLOW = {("--claims", "all"), ("--claims", "A"), ("--claims", "A,B"), ("--tokens", "9" * 40), ("--tokens", "9" * 5000)}


def options(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    places: dict[str, Any] = {
        "MODEL": shelf.model("gpt2"), "TEXT": shelf.text, "SURVEY": shelf.survey, "RUN": shelf.run,
        "STUDY": shelf.study, "OUT": place / "out", "OUT.html": place / "out.html", "OUT.csv": place / "out.csv",
        "OUT.svg": place / "out.svg",
    }  # fmt: skip
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.choice((1, 1, 2))):
        _spoil(rng, words)
    if words[0] == "survey" and "--resume" not in words and "--claims" not in words:
        # Everything about the default model takes a minute, rightly.
        words += ["--claims", "sphere.radius", "--tokens", "50"]
    args = tuple(places.get(word, word) for word in words)
    return Case(" ".join(word[:40] for word in words).encode("unicode_escape").decode(), args, (), out=place)


def _spoil(rng: random.Random, words: list[str]) -> None:
    at, start = rng.randrange(1, max(2, len(words))), 2 if words[0] == "lab" else 1
    at = max(at, start)
    match rng.choice(("value", "value", "value", "drop", "flag", "double", "more")):
        case "value" if at < len(words) and not words[at].startswith("--"):
            value = rng.choice(VALUES)
            # A bare word that names nothing here would ask the hub.
            fits = (words[at - 1], value) not in SLOW and not (words[at] == "MODEL" and value in ("", "x", "cpu", "A"))
            words[at] = value if fits else "./nowhere"
        case "drop" if at < len(words) and words[at - 1] not in ("--claims", "--tokens", "--text", "--steps"):
            # Without its option, a survey would be of everything.
            del words[at]
        case "double" if at < len(words):
            words.insert(at, words[at])
        case "more":
            words.append(rng.choice(VALUES[8:]))
        case _:
            words.insert(rng.randrange(start, len(words) + 1), rng.choice(FLAGS))
