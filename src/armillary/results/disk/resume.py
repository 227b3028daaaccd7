"""How does a survey go on where another one stopped? From its folder: settings, decided claims, states of the pass."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.errors import OutputError
from armillary.results.claim import Claim, Finding
from armillary.results.disk.files import read_bytes, remove_tree, sha256, strict_json
from armillary.results.disk.folder_swap import PASS as PASS
from armillary.results.disk.folder_swap import SETTINGS, listed, write_result
from armillary.results.disk.schema import Check, record
from armillary.results.store import json_text, read_survey, write_whole
from armillary.results.survey import Survey


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """What `armillary survey --resume` needs to run the same survey again.

    It becomes part of the folder's result with the first claim: until then the result is that of an earlier survey.
    """
    write_whole({Path(folder) / PASS / SETTINGS: json_text(settings)})


def keep_settings(folder: Path) -> None:
    """The settings of a part, which decides no claim, as the folder's result."""
    begun = Path(folder) / PASS / SETTINGS
    if begun.exists():
        write_result(folder, {SETTINGS: read_bytes(begun)}, {})


def read_settings(folder: Path, known: Mapping[str, Check]) -> dict[str, Any]:
    """Those of the survey that was begun last; `known` has a check for each."""
    begun = Path(folder) / PASS / SETTINGS
    path = begun if os.path.lexists(begun) else Path(folder) / SETTINGS
    try:
        content = read_bytes(path)
        settings = strict_json(content)
        if path != begun and listed(folder).get(SETTINGS, digest := sha256(content)) != digest:
            raise ValueError("it does not match manifest.json: its SHA-256 differs")
    except OutputError:
        raise
    except FileNotFoundError:
        raise OutputError(f"{folder} contains no survey to resume ({SETTINGS} is missing); start one there.") from None
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read ({error}); start the survey again.") from error
    if not isinstance(settings, dict) or set(settings) != set(known):
        raise OutputError(f"{path} was written by another version; start the survey again.")
    try:
        record(known)(settings, "")
    except ValueError as error:
        raise OutputError(f"{path} is damaged ({error}); start the survey again.") from error
    return settings


def forget_pass(folder: Path) -> None:
    """States of a pass are of no use once all claims are decided, or if a survey begins anew."""
    remove_tree(Path(folder) / PASS)


def _is_of_another(folder: Path) -> bool:
    """Is the folder's result that of a survey before the one that was begun last?"""
    begun, stored = Path(folder) / PASS / SETTINGS, Path(folder) / SETTINGS
    return begun.exists() and (not stored.exists() or read_bytes(begun) != read_bytes(stored))


def decided(folder: Path, now: Survey, claims: Mapping[str, Claim]) -> tuple[dict[str, Finding], Mapping[str, float]]:
    """The findings in `folder` that a survey like `now` need not measure again, and how long each had taken."""
    if not (Path(folder) / "survey.json").exists() or _is_of_another(folder):
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
            f"the survey in {folder} cannot be resumed: it has another {', '.join(other)}; survey into another folder."
        )
    findings = {f.id: f for f in before if f.verdict != "failed" and claims.get(f.id) == f.claim}
    return findings, before.times.claims
