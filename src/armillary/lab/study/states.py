"""Where are the end states of a study's arms, and what did their survey find?"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.claim import Verdict
from armillary.results.store import file_name, write_whole

STATES, GEOMETRY = "states", "geometry.json"


@dataclass(frozen=True)
class EndState:
    """One arm's end state, surveyed."""

    numbers: Mapping[str, float]
    """Read at its norms, the same for every arm."""
    claims: Mapping[str, tuple[Verdict, str]]
    """Claim → verdict, and the number that it rests on."""
    refused: str = ""
    """Why no claim was surveyed; many arms are models that no table describes."""


def state_path(folder: Path, arm: str) -> Path:
    """The first seed's weights, in float16."""
    return folder / STATES / file_name(arm, ".safetensors")


def write_geometry(folder: Path, found: Mapping[str, EndState]) -> None:
    record = {arm: vars(state) for arm, state in found.items()}
    write_whole({folder / GEOMETRY: json.dumps(record, indent=1, ensure_ascii=False) + "\n"})


def read_geometry(folder: Path) -> dict[str, EndState]:
    """Arm → its surveyed end state; empty where none was surveyed."""
    path = folder / GEOMETRY
    if not path.exists():
        return {}
    try:
        record: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return {
            arm: EndState(
                dict(state["numbers"]),
                {claim: (verdict, number) for claim, (verdict, number) in state["claims"].items()},
                str(state["refused"]),
            )
            for arm, state in record.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise OutputError(f"{path} is damaged ({type(error).__name__}); delete it, and run show --survey.") from error
