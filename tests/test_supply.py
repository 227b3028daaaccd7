"""Every package that the tests need is pinned with a hash, and the bill of materials lists it."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "supply" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


LOCK, SBOM = script("lock"), script("sbom")
LOCKED = LOCK.read_lock((ROOT / "requirements.lock").read_text("utf-8"))
LINES = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
PINNED = dict(line.split("==") for line in LINES if "==" in line and not line.startswith("#"))
PINNED = {LOCK.normal(name): version for name, version in PINNED.items()}


def test_the_lock_has_the_versions_that_were_tested() -> None:
    assert len(LOCKED) > 60
    # A build for the CPU calls itself 2.13.0+cpu.
    plain = {name: version.partition("+")[0] for name, (version, _) in LOCKED.items()}
    assert {name: PINNED.get(name) for name in LOCKED} == plain
    for name, (version, digest) in LOCKED.items():
        assert metadata.version(name) == version, name
        assert re.fullmatch("[0-9a-f]{64}", digest)


def test_the_lock_has_everything_that_developers_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [
        *project["dependencies"],
        *(line for name in ("dev", "docs", "explore", "gguf", "paper") for line in extras[name]),
    ]
    direct = {LOCK.normal(SBOM.NAME.match(line)[0]) for line in asked} - {LOCK.OWN}
    assert direct <= set(LOCKED)
    # Nothing is there that nobody needs. Some packages ask for an extra of another.
    assert SBOM.closure(direct, LOCKED, extras=True) == set(LOCKED)


@pytest.mark.parametrize("line", ["torch==2.13.0", "torch --hash=sha256:" + "0" * 64, "torch==2 --hash=sha256:12"])
def test_a_line_without_version_or_hash_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is not a version with a hash"):
        LOCK.read_lock(line)


def test_the_bill_lists_every_package_once_with_its_hash() -> None:
    bill = json.loads((ROOT / "sbom.json").read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    listed = {name: (part["version"], part["hashes"][0]["content"]) for name, part in parts.items()}
    assert listed == LOCKED
    assert parts["torch"]["scope"] == "required" and parts["pytest"]["scope"] == "excluded"
    refs = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert all({link["ref"], *link["dependsOn"]} <= refs for link in bill["dependencies"])
    assert bill["metadata"]["component"]["version"] == __import__("armillary").__version__


@pytest.mark.slow
def test_every_file_has_the_hash_of_the_lock() -> None:
    """pip fetches each and compares; nothing is installed."""
    how = ["--dry-run", "--ignore-installed", "--no-deps", "--require-hashes", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *how, "-r", "requirements.lock"]
    subprocess.run(command, cwd=ROOT, check=True)
