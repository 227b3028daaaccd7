"""What did surveys of the default model say when they were last looked at, and by how much may they differ?

    python tests/golden/make.py

runs `armillary survey` as a new user would (claims that make experiments with `--quick`, so that a test can afford them), on
one thread and on two, and with the instruction sets that older processors have; writes the numbers of the first run to
survey.json beside this file, and for each the largest difference among the runs. Run it, and read the difference, when a
measurement is meant to change.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOLDEN = HERE / "survey.json"
PARTS: tuple[Mapping[str, Any], ...] = ({"claims": "A,B,C"}, {"claims": "D,E,F", "quick": True})
# Projections that are measured where they are installed.
OPTIONAL = ("pacmap", "umap")
RUNS: tuple[Mapping[str, str], ...] = (
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "2"},
    {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"OMP_NUM_THREADS": "2", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
)


def numbers(findings: Iterable[Any]) -> dict[str, float]:
    """Every number that a reader of the ledger or of a table would see."""
    found: dict[str, float] = {}
    for finding in findings:
        for end in ("value", "low", "high"):
            found[f"{finding.id}/statistic/{end}"] = getattr(finding.statistic, end)
        for control in finding.controls:
            found[f"{finding.id}/control/{control.name}"] = control.value
        for row in finding.table.rows:
            if row[0] in OPTIONAL:
                continue
            for column, cell in zip(finding.table.columns[1:], row[1:], strict=True):
                if isinstance(cell, int | float):
                    found[f"{finding.id}/{_named(row)}/{column.name}"] = float(cell)
    return found


def _named(row: Sequence[Any]) -> str:
    """A row by what stands before its first measured number, three cells at most."""
    names = itertools.takewhile(lambda cell: not isinstance(cell, float), row[1:3])
    return " ".join(map(str, (row[0], *names)))


def verdicts(findings: Iterable[Any]) -> dict[str, str]:
    return {finding.id: finding.verdict for finding in findings}


def main() -> None:
    import armillary

    surveys = []
    for settings in RUNS:
        findings: list[Any] = []
        for part in PARTS:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "armillary", "survey", "--device", "cpu", "--out", folder]
                command += ["--claims", part["claims"], *["--quick"] * part.get("quick", False)]
                subprocess.run(command, env={**os.environ, **settings}, check=True, stdout=subprocess.DEVNULL)
                made = armillary.read(folder)
            findings += made.findings
        surveys.append(findings)
    said = [numbers(survey) for survey in surveys]
    for survey in surveys[1:]:
        assert verdicts(survey) == verdicts(surveys[0]), "a verdict that depends on the processor is none"
    rows = {}
    for name, value in said[0].items():
        others = [run[name] for run in said]
        if value != value:
            rows[name] = [None, 0.0]
            continue
        spread = max(others) - min(others)
        # What rounding alone decides (a variance that should be zero) has no digit to compare.
        if spread < 0.01 * abs(value) or value == spread == 0:
            rows[name] = [value, spread]
    record = {"model": dict(made.model)["fingerprint"], "verdicts": verdicts(surveys[0]), "numbers": rows}
    GOLDEN.write_text(json.dumps(record, indent=0, ensure_ascii=False) + "\n", "utf-8")
    widest = max((spread / abs(value), name) for name, (value, spread) in rows.items() if value)
    print(f"{len(rows)} numbers of {len(said[0])}; the widest relative spread is {widest[0]:.3g} at {widest[1]}")


if __name__ == "__main__":
    main()
