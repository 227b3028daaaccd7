"""How does a survey go on where another one stopped? From its folder: settings, decided claims, states of the pass."""

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.claim import Claim, Finding
from armillary.results.disk.files import read_bytes, strict_json
from armillary.results.store import json_text, read_survey, write_whole
from armillary.results.survey import Survey

SETTINGS, PASS = "settings.json", "pass"


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """What `armillary survey --resume` needs to run the same survey again."""
    write_whole({Path(folder) / SETTINGS: json_text(settings)})


def read_settings(folder: Path, known: Collection[str]) -> dict[str, Any]:
    path = Path(folder) / SETTINGS
    try:
        settings = strict_json(read_bytes(path))
    except FileNotFoundError:
        raise OutputError(
            f"{folder} contains no survey that was begun ({SETTINGS} is missing); start one there."
        ) from None
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read ({error}); start the survey again.") from error
    if not isinstance(settings, dict) or set(settings) != set(known):
        raise OutputError(f"{path} was written by another version; start the survey again.")
    return settings


def forget_pass(folder: Path) -> None:
    """States of a pass are of no use once all claims are decided, or if a survey begins anew."""
    shutil.rmtree(Path(folder) / PASS, ignore_errors=True)


def decided(folder: Path, now: Survey, claims: Mapping[str, Claim]) -> tuple[dict[str, Finding], Mapping[str, float]]:
    """The findings in `folder` that a survey like `now` need not measure again, and how long each had taken."""
    if not (Path(folder) / "survey.json").exists():
        return {}, {}
    before = read_survey(folder)
    facts = {
        "model": tuple((s.model.fingerprint, s.model.checksum) for s in (before, now)),
        # Another seed draws other documents.
        "seed": (before.provenance.seed, now.provenance.seed),
        "text": (before.text, now.text),
        "device or dtype": tuple((s.provenance.device, s.provenance.dtype) for s in (before, now)),
        "rules": (before.provenance.rules_version, now.provenance.rules_version),
        "versions": (dict(before.provenance.versions), dict(now.provenance.versions)),
    }
    if other := [name for name, (then, today) in facts.items() if then != today]:
        raise OutputError(
            f"the survey in {folder} cannot be resumed: it had another {', '.join(other)}; survey into another folder."
        )
    findings = {f.id: f for f in before if f.verdict != "failed" and claims.get(f.id) == f.claim}
    return findings, before.times.claims
