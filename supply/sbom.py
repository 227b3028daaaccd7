"""Write sbom.json: what a release is made of and needs, as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

`make sbom` runs this. Versions and hashes come from requirements.lock, licences from the metadata of what is installed
here; packages that a user gets are `required`, those for tests `excluded`.
"""

import json
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from lock import LOCK, OWN, ROOT, normal, read_lock

SBOM = ROOT / "sbom.json"
NAME = re.compile(r"^[A-Za-z0-9._-]+")


def requirements(name: str, extras: bool = False) -> list[str]:
    """The packages that a package needs, by their normal names; with all its extras, if asked for."""
    try:
        lines = metadata.distribution(name).requires or []
    except metadata.PackageNotFoundError:
        return []
    needed = []
    for line in lines:
        words, _, marker = line.partition(";")
        match = NAME.match(words.strip())
        if match and (extras or "extra" not in marker):
            needed.append(normal(match[0]))
    return needed


def closure(names: Iterable[str], known: Iterable[str], extras: bool = False) -> set[str]:
    """These packages and all that they need, as far as they are in the lock."""
    known, closed, left = set(known), set[str](), list(names)
    while left:
        name = left.pop()
        if name in known and name not in closed:
            closed.add(name)
            left += requirements(name, extras)
    return closed


def component(name: str, version: str, sha256: str, required: bool) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    entry: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    entry |= {"scope": "required" if required else "excluded", "hashes": [{"alg": "SHA-256", "content": sha256}]}
    if named := licence(name):
        entry["licenses"] = [{"license": {"name": named}}]
    return entry


def licence(name: str) -> str:
    """What a package's metadata says of its licence, in one line; '' where it says nothing."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    terms = about.get("License-Expression") or about.get("License") or ""
    classes = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License")]
    first = terms.strip().splitlines()[0] if terms.strip() else ""
    return first if 0 < len(first) < 80 else ", ".join(classes)


def sbom(version: str, packages: dict[str, tuple[str, str]], direct: Iterable[str]) -> dict[str, Any]:
    """The bill of materials; the same for the same lock, so that a release can be made again."""
    needed = closure(direct, packages)
    own = f"pkg:pypi/{OWN}@{version}"
    parts = [component(name, *packages[name], name in needed) for name in sorted(packages)]
    refs = {part["name"]: part["bom-ref"] for part in parts}
    links = [{"ref": own, "dependsOn": sorted(refs[name] for name in direct if name in refs)}]
    links += [
        {"ref": refs[name], "dependsOn": sorted({refs[other] for other in requirements(name) if other in refs})}
        for name in sorted(packages)
    ]
    about = {"type": "application", "bom-ref": own, "name": OWN, "version": version, "purl": own}
    about["licenses"] = [{"license": {"id": "Apache-2.0"}}]  # type: ignore[assignment]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about, "tools": {"components": [{"type": "application", "name": "supply/sbom.py"}]}},
        "components": parts,
        "dependencies": links,
    }


def main() -> None:
    import tomllib

    import armillary

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    direct = [normal(match[0]) for line in project["dependencies"] if (match := NAME.match(line))]
    bill = sbom(armillary.__version__, read_lock(LOCK.read_text("utf-8")), direct)
    SBOM.write_text(json.dumps(bill, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
