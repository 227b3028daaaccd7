"""What have studies said about the laboratory's claims so far? Written by docs/studies.py, shipped with the package."""

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from armillary.results.claim import Verdict

PATH = Path(str(files("armillary") / "builtin" / "studies.json"))


@dataclass(frozen=True)
class StoredVerdict:
    """One claim, as one stored study decides it."""

    claim: str
    verdict: Verdict
    reading: str
    folder: str
    """Of docs/lab."""
    size: str
    runs: int


def stored_json(verdicts: tuple[StoredVerdict, ...]) -> str:
    return json.dumps([asdict(verdict) for verdict in verdicts], indent=1, ensure_ascii=False) + "\n"


@cache
def stored() -> tuple[StoredVerdict, ...]:
    """The verdicts that come with the package."""
    return tuple(StoredVerdict(**record) for record in json.loads(PATH.read_text("utf-8")))
