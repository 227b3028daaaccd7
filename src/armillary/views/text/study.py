"""A study of the laboratory as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from armillary.lab.study.verdicts import compare
from armillary.results.numbers import interval, say
from armillary.results.table import Column, Table
from armillary.views.text.survey import as_text, print_lines, table_lines


def study_text(rows: Sequence[Mapping[str, Any]], reference: str, width: int | None = None) -> str:
    """Every arm's paired difference in loss against the reference."""
    cells = tuple(
        (c.arm, c.seeds, interval(c.difference, c.low, c.high), say(c.p, ".2g"), c.diverged, c.outcome, c.seeds_needed)
        for c in compare(rows, reference)
    )
    columns = (
        Column("arm", "what was changed"),
        Column("seeds", "paired runs"),
        Column("difference", f"loss less that of {reference}", "nats/token"),
        Column("p", "paired t test, before correction"),
        Column("diverged", "runs whose loss became NaN or infinite"),
        Column("outcome", "after Holm's correction"),
        Column("needed", "seeds that would decide"),
    )
    return as_text(lambda console: print_lines(table_lines(Table(columns, cells), console.width), console), width)
