"""Any number of surveys as one matrix: claims by models."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.results.claim import CHAPTERS, VERDICTS, Claim, Finding, Verdict, Why
from armillary.results.survey import Survey
from armillary.results.table import Column, Table

_NUMBERED = re.compile(r"(.+)-\d+")


@dataclass(frozen=True)
class Matrix:
    """Findings by claim and column. Surveys of one model trained several times (NAME-0, NAME-1 …) share a column."""

    columns: tuple[str, ...]
    claims: tuple[Claim, ...]
    cells: tuple[tuple[tuple[Finding | None, ...], ...], ...]
    """[claim][column]: one finding per survey of the column; None where a survey did not ask for the claim."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, surveys: Sequence[Survey], names: Sequence[str], notes: Sequence[str] = ()) -> "Matrix":
        """The claims of all surveys, in the order of the chapters and of the surveys."""
        columns = _columns(names)
        by_claim = [{finding.id: finding for finding in survey} for survey in surveys]
        claims: dict[str, Claim] = {}
        for findings in by_claim:
            claims |= {name: finding.claim for name, finding in findings.items() if name not in claims}
        ordered = sorted(claims.values(), key=lambda claim: _chapter(claim))
        cells = tuple(
            tuple(tuple(by_claim[i].get(claim.id) for i in numbers) for numbers in columns.values())
            for claim in ordered
        )
        rules = sorted({survey.provenance.rules_version or "not recorded" for survey in surveys})
        mixed = [f"the surveys follow different rules ({', '.join(rules)})"] if len(rules) > 1 else []
        return cls(tuple(columns), tuple(ordered), cells, (*notes, *mixed))

    def table(self) -> Table:
        """One row per claim: its kind, and the verdicts of every column in words."""
        columns = (Column("claim", "the claim's id"), Column("kind", "by definition, behaviour or learned"))
        rows = [
            (claim.id, claim.kind, *(verdicts(cell) for cell in row))
            for claim, row in zip(self.claims, self.cells, strict=True)
        ]
        more = tuple(Column(name, "the verdict, or one per survey of the column") for name in self.columns)
        return Table((*columns, *more), tuple(rows))

    def tally(self, column: int) -> dict[str, int]:
        """How many findings of a column have which verdict; 'does not apply' is counted apart."""
        counted = Counter(word(finding) for row in self.cells for finding in row[column] if finding is not None)
        return {name: counted[name] for name in (*VERDICTS, NOT_APPLICABLE) if counted[name]}


NOT_APPLICABLE = "does not apply"


def word(finding: Finding) -> str:
    """The verdict, or that the claim does not apply to the model."""
    return NOT_APPLICABLE if finding.why is Why.NOT_APPLICABLE else finding.verdict


def verdict_of(finding: Finding | None) -> Verdict | None:
    """None where there is nothing to decide."""
    return None if finding is None or finding.why is Why.NOT_APPLICABLE else finding.verdict


def verdicts(cell: Sequence[Finding | None]) -> str:
    """The verdicts of a cell in words: one where all surveys agree."""
    words = ["not measured" if finding is None else word(finding) for finding in cell]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def _columns(names: Sequence[str]) -> dict[str, list[int]]:
    """Column name → the surveys in it.

    >>> _columns(["vit-0", "vit-1", "gpt", "mamba-2"])
    {'vit': [0, 1], 'gpt': [2], 'mamba-2': [3]}
    """
    stems = [match[1] if (match := _NUMBERED.fullmatch(name)) else name for name in names]
    often = Counter(stems)
    columns: dict[str, list[int]] = {}
    for i, (name, stem) in enumerate(zip(names, stems, strict=True)):
        columns.setdefault(stem if often[stem] > 1 else name, []).append(i)
    return columns


def _chapter(claim: Claim) -> int:
    order = list(CHAPTERS)
    return order.index(claim.chapter) if claim.chapter in order else len(order)
