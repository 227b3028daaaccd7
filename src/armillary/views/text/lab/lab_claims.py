"""Claims that the laboratory decides, as text: what is claimed, what would decide it, and what studies said so far."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from armillary.lab.study.conclusions.lab_claims import LabClaim
from armillary.lab.study.conclusions.stored_verdicts import StoredVerdict, stored
from armillary.views.figures.marks import MARKS
from armillary.views.text.summary import changed_rules, chapter_title, sources
from armillary.views.text.survey import explained_text, hanging, new_console, print_lines, printed


def lab_list_text(claims: Iterable[LabClaim], width: int | None = None) -> str:
    """The id, statement and present verdicts of every claim."""
    console = new_console(width)
    claims = tuple(claims)
    indent = max((len(claim.id) for claim in claims), default=0) + 4
    title = f"{chapter_title('G')}: decided by training models (armillary lab run), no part of a survey"
    lines = [Text(title, "bold")]
    for claim in claims:
        now = [f"{MARKS[entry.verdict]} {entry.verdict} ({_where(entry)})" for entry in _stored(claim)]
        lines += hanging(claim.id, f"{claim.claim.statement} {', '.join(now) or 'Not run yet.'}", console.width, indent)
    print_lines(lines, console)
    return printed(console)


def lab_claim_text(claim: LabClaim, width: int | None = None) -> str:
    """One claim: definition, control, rule, the command that decides it, and every stored verdict."""
    explained: list[tuple[str, Sequence[str]]] = [
        ("chapter", [chapter_title(claim.claim.chapter)]),
        ("source", sources(claim.claim)),
        ("question", [claim.claim.question] if claim.claim.question else []),
        ("definition", claim.claim.definition.split("\n")),
        ("control", claim.claim.control.split("\n")),
        ("rule", claim.claim.rule.split("\n")),
        ("changed", changed_rules(claim.claim)),
        ("command", [claim.command]),
        ("verdict", verdict_lines(claim)),
    ]
    return explained_text(claim.claim, explained, new_console(width))


def verdict_lines(claim: LabClaim) -> list[str]:
    """'✕ refuted (norms at size xs, 162 runs): Better: sphere (…).'"""
    lines = [f"{MARKS[entry.verdict]} {entry.verdict} ({_where(entry)}): {entry.reading}" for entry in _stored(claim)]
    return lines or ["none yet: no study of it is stored with the package"]


def _where(entry: StoredVerdict) -> str:
    return f"{entry.folder} at size {entry.size}, {entry.runs} runs"


def _stored(claim: LabClaim) -> list[StoredVerdict]:
    return [entry for entry in stored() if entry.claim == claim.id]
