"""Where are the end states of a study's arms, and what did their survey find?"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from armillary.lab import forms
from armillary.lab.forms import read_form
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


def write_geometry(folder: Path, states: Mapping[str, EndState]) -> None:
    record = {arm: vars(state) for arm, state in states.items()}
    write_whole({folder / GEOMETRY: json.dumps(record, indent=1, ensure_ascii=False) + "\n"})


def read_geometry(folder: Path) -> dict[str, EndState]:
    """Arm → its surveyed end state; empty where none was surveyed."""
    path = folder / GEOMETRY
    if not os.path.lexists(path):
        return {}
    record = read_form(path, forms.geometry, "delete it, and run show --survey")
    return {
        arm: EndState(
            state["numbers"],
            {claim: (verdict, number) for claim, (verdict, number) in state["claims"].items()},
            state["refused"],
        )
        for arm, state in record.items()
    }
