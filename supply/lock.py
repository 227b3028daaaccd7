"""Write requirements.lock: every package that the tests need, in the version of constraints.txt, with its SHA-256.

`make lock` runs this. pip says what it would install, and which hash each file has; nothing is installed. Where the
index lists files of several platforms, only the one for this platform is named: the lock is for the machine that runs
the tests. `make test LOCKED=1` installs from it, and refuses a file with another hash.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
OWN = "armillary"
HEAD = "# Written by supply/lock.py; install with pip install --require-hashes --no-deps -r requirements.lock.\n"
LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})")


def normal(name: str) -> str:
    """A package's name as indexes spell it.

    >>> normal("Huggingface_Hub")
    'huggingface-hub'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def report() -> dict[str, Any]:
    """What pip would install for developers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        how = ["--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check", "--report", str(path)]
        asked = ["-c", "constraints.txt", "-e", ".[dev]"]
        subprocess.run([sys.executable, "-m", "pip", "install", *how, *asked], cwd=ROOT, check=True)
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return report


def lock(report: dict[str, Any]) -> str:
    lines = []
    for entry in report["install"]:
        name, version = normal(entry["metadata"]["name"]), entry["metadata"]["version"]
        if name == OWN:
            continue
        digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return HEAD + "".join(sorted(lines))


def read_lock(text: str) -> dict[str, tuple[str, str]]:
    """Name → version and SHA-256."""
    packages = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = LINE.fullmatch(line)
            if match is None:
                raise ValueError(f"a line of {LOCK.name} is not a version with a hash: {line}")
            packages[match["name"]] = (match["version"], match["sha256"])
    return packages


if __name__ == "__main__":
    LOCK.write_text(lock(report()), "utf-8")
