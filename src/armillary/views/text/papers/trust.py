"""The page docs/trust.md: how often the instrument was wrong, from a calibration."""

from collections.abc import Iterator, Sequence
from textwrap import fill

from armillary.results.calibration import Calibration
from armillary.results.calibration.aims import aims
from armillary.results.claim import Claim
from armillary.results.table import Table
from armillary.views.text.calibration import TITLES, about, agreement_lines, aim_line, error_lines, older_lines, tables
from armillary.views.text.quoting import show_cell, show_text

WIDTH = 120
_INTRODUCTION = """# How far to trust it

How often is a claim *supported* where there is no effect, how often is a planted effect found, and does the verdict
depend on the seed, the budget or the text? `armillary calibrate` measures this with the same rules as any survey, and
wrote this page.

- **Untrained models** are small models of two architectures at Hugging Face's own initialisation, with seeds that no
  survey's twin has. Each reads its own sample of the text. A *learned* claim that is supported there is a false alarm.
  Large weights alone are not learned either: the tests survey such models with all matrices five times as large, and
  fail if a learned claim is supported or qualified.
- **Planted models** have a known answer. Every draw has its own random weights and its own text. At strength 1 the
  planted effect has its full size, at 0.25 a quarter of it. A rule need not detect a small effect.
- **Seeds** choose the documents, the untrained twins and every other draw of a survey. Agreement is the share of
  surveys that give the claim's most frequent verdict. A run that could not have given one (too few documents, too
  little text, a claim that does not apply, no checkpoints) is counted separately, and never as agreement.

Budgets other than the main one have a third of the seeds, on the first text. A claim whose rule has not changed keeps
the runs of an earlier calibration, although the code around its rule may have changed since.

Rates have Wilson's 95 % interval. The command writes all of them to `rates.csv`."""
_COMMANDS = """## Run it

```
armillary calibrate                          # a small study: minutes
armillary calibrate --untrained 120 --seeds 10 --planted 20 --tokens 2500 --tokens 1000 --tokens 6000 \\
    --text sample --text books.txt --text encyclopaedia.txt --out calibration/full     # hours of CPU time
armillary show calibration/full              # its tables
```

Finished runs are kept in `runs.jsonl`: after Ctrl-C the same command continues; larger numbers add runs."""


def trust_page(calibration: Calibration, today: Sequence[Claim] = ()) -> str:
    """The page in Markdown; claims whose rule of today was not calibrated are named."""
    parts = [_INTRODUCTION, fill(f"This page: {about(calibration)}.", WIDTH)]
    results = [aim_line(aim) for aim in aims(calibration)]
    results += [*agreement_lines(calibration), *older_lines(calibration), *error_lines(calibration)]
    parts += ["## Aims", _bullets([*results, *_outdated(calibration, today)])]
    for part, table in tables(calibration).items():
        parts += [f"## {TITLES[part]}", "\n".join(_table(table))]
        if part == "planted" and any(case.size for case in calibration.cases):
            parts += ["What the strength is a share of:", _bullets(_sizes(calibration))]
        if part == "untrained" and calibration.readings:
            parts += ["What the readings of learned claims say on untrained models:", _bullets(_readings(calibration))]
    return "\n\n".join([*parts, _COMMANDS]) + "\n"


def _outdated(calibration: Calibration, today: Sequence[Claim]) -> Iterator[str]:
    changed = [claim.id for claim in today if claim.id in calibration.kinds and not calibration.current(claim)]
    unknown = [claim.id for claim in today if claim.id not in calibration.kinds]
    for words, claims in (
        ("Measured here by an earlier rule, so that these lines do not speak of the rule of today", changed),
        ("Not calibrated yet", unknown),
    ):
        if claims:
            yield f"{words}: {', '.join(f'`{claim}`' for claim in claims)}."


def _sizes(calibration: Calibration) -> list[str]:
    return [f"{_escaped(case.name)}: {_escaped(case.size)}" for case in calibration.cases if case.size]


def _readings(calibration: Calibration) -> list[str]:
    return [
        f"`{entry.claim}`, {entry.verdict} ({entry.subject}, seed {entry.seed}): {_escaped(entry.reading)}"
        for entry in calibration.readings
    ]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(fill(f"- {line}", WIDTH, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.names)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        cells = (show_cell(cell, column.name) for cell, column in zip(row, table.columns, strict=True))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _escaped(text: str) -> str:
    return show_text(text).replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")
