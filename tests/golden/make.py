"""Writes the golden survey: the verdicts and numbers of the default model when a person last read them.

    python tests/golden/make.py

runs `armillary survey --quick` (fewer documents in experiments, so that a test can afford them) and writes survey.json
beside this file, one line per row of a table. `rules.py` says how closely each
number is compared. Run it, and read the difference, when a measurement is meant to change.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "survey.json"
SETTINGS: Mapping[str, Any] = {"device": "cpu", "quick": True}
# Projections that are measured where they are installed.
OPTIONAL = ("pacmap", "umap")


def record(findings: Iterable[Any]) -> dict[str, Any]:
    """The verdict and every number that a reader of the ledger or of a table sees, by claim."""
    return {finding.id: _claim(finding) for finding in findings}


def _claim(finding: Any) -> dict[str, Any]:
    columns, rows = finding.table.columns[1:], [row for row in finding.table.rows if row[0] not in OPTIONAL]
    numeric = [i for i in range(len(columns)) if any(isinstance(row[i + 1], bool | int | float) for row in rows)]
    named = {_name(row): [_rounded(row[i + 1]) for i in numeric] for row in rows}
    assert len(named) == len(rows), f"{finding.id} has two rows of one name"
    return {
        "verdict": str(finding.verdict),
        "statistic": _ends(finding.statistic),
        "controls": {control.name: _ends(control) for control in finding.controls},
        "columns": [columns[i].name for i in numeric],
        "rows": named,
    }


def _ends(measured: Any) -> list[float | None]:
    return [_rounded(float(end)) for end in (measured.value, measured.low, measured.high)]


def _rounded(cell: Any) -> Any:
    """Nine digits: two more than float32 has. NaN is an empty cell."""
    if not isinstance(cell, float):
        return cell
    return None if cell != cell else float(f"{cell:.9g}")


def _name(row: Sequence[Any]) -> str:
    """A row by what stands before its first measured number, three cells at most."""
    names = itertools.takewhile(lambda cell: not isinstance(cell, float), row[1:3])
    return " ".join(map(str, (row[0], *names)))


def _lines(claims: Mapping[str, Any]) -> Iterator[str]:
    """JSON with one line per verdict, statistic, control and row."""

    def dumped(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    for i, (claim, parts) in enumerate(claims.items()):
        yield ("," if i else "") + f"{dumped(claim)}: {{"
        for part in ("verdict", "statistic", "columns"):
            yield f"{dumped(part)}: {dumped(parts[part])},"
        for part, end in (("controls", "},"), ("rows", "}}")):
            entries = [f"{dumped(name)}: {dumped(values)}" for name, values in parts[part].items()]
            yield f"{dumped(part)}: {{\n" + ",\n".join(entries) + end


def write(fingerprint: str, claims: Mapping[str, Any]) -> None:
    body = "\n".join(_lines(claims))
    GOLDEN.write_text(f'{{"model": "{fingerprint}",\n"claims": {{\n{body}\n}}}}\n', "utf-8")
    assert json.loads(GOLDEN.read_text("utf-8"))["claims"] == claims


def main() -> None:
    import armillary

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "armillary", "survey", "--device", SETTINGS["device"], "--quick"]
        subprocess.run([*command, "--out", folder], check=True, stdout=subprocess.DEVNULL)
        survey = armillary.read(folder)
    write(survey.model.fingerprint, record(survey))


if __name__ == "__main__":
    main()
