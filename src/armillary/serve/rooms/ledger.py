"""Ledger: the claims of a stored survey with their verdicts; the evidence of each is one click away."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.errors import ArmillaryError, nearest
from armillary.serve.blocks import Block, choices_block, html_block
from armillary.serve.fields import Field
from armillary.serve.library import Library
from armillary.serve.room import Ask, Room, RoomPart

if TYPE_CHECKING:
    from armillary.results import Survey

FIELDS = (
    Field("survey", "choice", "Survey"),
    Field("claim", "choice", "Evidence of", about="or choose a claim in the ledger"),
)


def ledger(library: Library, ask: Ask) -> Sequence[Block]:
    from armillary.views.report.claims import survey_ledger
    from armillary.views.text.summary import model_line, text_line

    if not library.surveys:
        return [html_block(_without())]
    survey = _survey(library, ask["survey"])
    surveys = choices_block("survey", [(name, name) for name in library.surveys])
    claims = choices_block("claim", [("", "no claim"), *((finding.id, finding.id) for finding in survey)])
    line = f"{model_line(survey)} · {text_line(survey)}"
    return [
        surveys,
        claims,
        {**html_block(survey_ledger(survey), f"Verdicts on {survey.model.name}", line), "kind": "ledger"},
    ]


def claim(library: Library, ask: Ask) -> Sequence[Block]:
    """One claim in full, as the report has it: figure, facts and tables."""
    from armillary.views.report.claims import finding_article
    from armillary.views.report.payload import finding_part, part_record

    survey = _survey(library, ask["survey"])
    try:
        finding = survey[ask["claim"]]
    except KeyError:
        known = [finding.id for finding in survey]
        raise ArmillaryError(f"this survey has no claim {ask['claim']!r}; {nearest(ask['claim'], known)}") from None
    part = finding_part(finding)
    return [{"kind": "article", "html": finding_article(finding, 0, part), "part": part_record(part)}]


def _survey(library: Library, name: str) -> "Survey":
    if not library.surveys:
        raise ArmillaryError("no survey was given; start armillary explore with --survey DIR.")
    if name and name not in library.surveys:
        raise ArmillaryError(f"there is no survey {name!r} here; {nearest(name, library.surveys)}")
    return library.surveys[name or next(iter(library.surveys))]


def _without() -> str:
    """The claims that a survey would decide, where none was given."""
    from armillary.probes import claims
    from armillary.results import Column, Table
    from armillary.views.report.notebook import table_html

    columns = (Column("claim", "its id"), Column("statement", "what is claimed"), Column("kind", "what support means"))
    table = Table(columns, tuple((entry.id, entry.statement, entry.kind) for entry in claims()))
    how = (
        "<p>No survey was given, so there are no verdicts to show. Make one with <code>armillary survey MODEL --out "
        "DIR</code>, then start <code>armillary explore MODEL --survey DIR</code>. These are the claims.</p>"
    )
    return how + table_html(table)


LEDGER = Room(
    "ledger",
    "Ledger",
    "What is claimed about transformers, and what was measured on this model. Choose a claim to see its evidence.",
    FIELDS,
    (
        RoomPart("claim", "", ("survey", "claim"), claim, by="library", needs=("claim",)),
        RoomPart("ledger", "", ("survey",), ledger, by="library"),
    ),
)
