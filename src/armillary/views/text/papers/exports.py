"""A survey's ledger, or a claim's table, in the formats of papers and spreadsheets: CSV, Markdown, LaTeX."""

from collections.abc import Callable
from typing import Literal

from armillary.results.claim import Finding
from armillary.results.numbers import interval, interval_of
from armillary.results.store import table_csv
from armillary.results.survey import Survey
from armillary.results.table import Column, Table
from armillary.views.sheets.latex import table_latex
from armillary.views.text.quoting import show_cell, show_text
from armillary.views.text.summary import model_line, text_line

Format = Literal["csv", "markdown", "latex"]
_MARKDOWN = str.maketrans({char: f"\\{char}" for char in r"\`*_{}[]()<>#+!|~$"})


def ledger_export(survey: Survey, kind: Format) -> str:
    """One row per claim; CSV has every number in full precision, the others have them as they are read."""
    if kind == "csv":
        return table_csv(_numbers(survey))
    caption = f"{model_line(survey)}; {text_line(survey)}; rules {survey.provenance.rules_version or 'not recorded'}."
    return EXPORTS[kind](_readable(survey), f"Verdicts. {caption}")


def table_export(finding: Finding, kind: Format) -> str:
    """A claim's table: one row per site, head or layer."""
    caption = f"{finding.id}, {finding.verdict}: {finding.headline}."
    return table_csv(finding.table) if kind == "csv" else EXPORTS[kind](finding.table, caption)


def markdown_table(table: Table, caption: str) -> str:
    """A pipe table under its caption; marks of Markdown in foreign text are escaped."""
    head = [_cell(show_text(column.heading)) for column in table.columns]
    rows = [[_cell(show_cell(cell, name)) for cell, name in zip(row, table.names, strict=True)] for row in table.rows]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join([_cell(show_text(caption)), "", *(f"| {' | '.join(line)} |" for line in lines), ""])


EXPORTS: dict[str, Callable[[Table, str], str]] = {"markdown": markdown_table, "latex": table_latex}


def _cell(text: str) -> str:
    return text.translate(_MARKDOWN)


def _readable(survey: Survey) -> Table:
    columns = (
        Column("claim", "the claim's id"),
        Column("kind", "by definition, behaviour or learned"),
        Column("verdict", "what the rule decided"),
        Column("statistic", "what was measured"),
        Column("value", "with its 95 % interval over documents"),
        Column("control", "the first control, and the same statistic there"),
    )
    rows = []
    for finding in survey:
        statistic, first = finding.statistic, finding.controls[:1]
        unit = f" {statistic.unit}" if statistic.unit else ""
        rows.append(
            (
                finding.id,
                finding.claim.kind,
                finding.verdict,
                statistic.name,
                interval(statistic.value, statistic.low, statistic.high) + unit,
                "".join(f"{control.name}: {interval_of(control)}" for control in first),
            )
        )
    return Table(columns, tuple(rows))


def _numbers(survey: Survey) -> Table:
    most = max((len(finding.controls) for finding in survey), default=0)
    columns = [
        Column(name, name)
        for name in "claim chapter kind verdict why statistic value low high unit n statement headline reading".split()
    ]
    for i in range(1, most + 1):
        columns += [Column(f"control_{i}{end}", "a control") for end in ("", "_value", "_low", "_high")]
    rows = []
    for finding in survey:
        claim, statistic = finding.claim, finding.statistic
        why = finding.why.value if finding.why else ""
        numbers = (statistic.value, statistic.low, statistic.high, statistic.unit, finding.n)
        row: list[str | int | float | None] = [finding.id, claim.chapter, claim.kind, finding.verdict, why]
        row += [statistic.name, *numbers, claim.statement, finding.headline, finding.reading]
        for control in finding.controls:
            row += [control.name, control.value, control.low, control.high]
        rows.append(tuple(row) + (None,) * (len(columns) - len(row)))
    return Table(tuple(columns), tuple(rows))
