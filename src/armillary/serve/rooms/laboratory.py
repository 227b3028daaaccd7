"""Laboratory: a study's verdicts, its forest plot and its curves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.errors import ArmillaryError, nearest
from armillary.serve.blocks import Block, choices_block, figure_block, html_block
from armillary.serve.fields import Field
from armillary.serve.library import Library
from armillary.serve.room import Ask, Room, RoomPart

if TYPE_CHECKING:
    from armillary.lab.study.conclusions.outcome import StudyOutcome

FIELDS = (Field("study", "choice", "Study"),)


def study(library: Library, ask: Ask) -> Sequence[Block]:
    from armillary.results.store import table_csv
    from armillary.views.figures.lab.study import caption, headline, study_figure
    from armillary.views.report.study import arms_html, verdicts_html
    from armillary.views.text.lab.study import study_table

    if not library.studies:
        return [html_block(_shipped(), "No study was given; these are the verdicts that come with the package")]
    outcome = _chosen(library, ask["study"])
    csv = table_csv(study_table(outcome))
    arms = {**html_block(arms_html(outcome), "Arms"), "kind": "ledger"}
    return [
        choices_block("study", [(name, name) for name in library.studies]),
        figure_block(
            study_figure(outcome, ask["narrow"]), f"study-{outcome.name}", headline(outcome), caption(outcome), csv
        ),
        html_block(verdicts_html(outcome)),
        arms,
    ]


def _chosen(library: Library, name: str) -> "StudyOutcome":
    if name and name not in library.studies:
        raise ArmillaryError(f"there is no study {name!r} here; {nearest(name, library.studies)}")
    return library.studies[name or next(iter(library.studies))]


def _shipped() -> str:
    """The verdicts of the studies that the package was built with."""
    from armillary.lab.study.conclusions.stored_verdicts import stored
    from armillary.results import Column, Table
    from armillary.views.figures.marks import MARKS
    from armillary.views.report.notebook import table_html

    columns = (Column("claim", "of the laboratory"), Column("verdict", "of its study"), Column("study", "its folder"),
               Column("runs", "trained models"), Column("reading", "what was found"))  # fmt: skip
    rows = tuple((v.claim, f"{MARKS[v.verdict]} {v.verdict}", v.folder, v.runs, v.reading) for v in stored())
    how = (
        "<p>A study trains many small models: <code>armillary lab run NAME --out DIR</code>, then <code>armillary "
        "explore --study DIR</code> shows its curves.</p>"
    )
    return how + table_html(Table(columns, rows))


LABORATORY = Room(
    "laboratory",
    "Laboratory",
    "Models trained to try what the papers propose: differences to the reference, learning rates and curves.",
    FIELDS,
    (RoomPart("study", "", ("study",), study, by="library"),),
)
