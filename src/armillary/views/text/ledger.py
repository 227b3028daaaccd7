"""The ledger in a terminal: a row per claim, in a brief, a standard and a full form."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from armillary.results.claim import Finding
from armillary.results.numbers import interval_parts, number
from armillary.results.statistic import Control
from armillary.results.survey import Survey
from armillary.views.text.quoting import show_text
from armillary.views.text.strip_scale import comparison
from armillary.views.text.summary import (
    chapter_title,
    kind_counts,
    law_line,
    model_line,
    model_notes,
    note_lines,
    plan_line,
    reason,
    text_line,
)
from armillary.views.text.survey import as_text, finding_lines, identity, paragraphs, print_lines, wrapped

Form = Literal["brief", "standard", "full"]
_NOTES = 2


def ledger_text(
    survey: Survey,
    width: int | None = None,
    colour: bool = False,
    folder: str | Path | None = None,
    form: Form = "standard",
) -> str:
    """The claims by chapter, in one of three forms. `folder` is where the files are."""
    return as_text(lambda console: print_ledger(survey, console, folder, form), width, colour)


def print_ledger(survey: Survey, console: Console, folder: str | Path | None = None, form: Form = "standard") -> None:
    """The same, printed to a console, which knows its width and whether it has colour."""
    ledger = GrowingLedger(console, max((len(finding.id) for finding in survey), default=0), form)
    ledger.grow(survey)
    ledger.end(survey, folder)


class GrowingLedger:
    """The ledger, printed row by row as claims are decided. Nothing is cut: long sentences take another line."""

    def __init__(self, console: Console, id_width: int, form: Form = "standard") -> None:
        self._console, self._id_width, self._form = console, id_width, form
        self._width = min(console.width, 120)
        self._shown = 0
        self._chapter: str | None = None

    def grow(self, survey: Survey) -> None:
        """Print the rows that are new in this survey."""
        lines: list[Text] = []
        if self._chapter is None:
            self._chapter = ""
            lines += wrapped(Text(f"Armillary · {model_line(survey)}", "bold"), self._width, 0)
            lines += wrapped(Text(text_line(survey), "dim"), self._width, 0)
            lines += paragraphs(model_notes(survey), self._width, "yellow")
        for finding in survey.findings[self._shown :]:
            self._shown += 1
            if finding.claim.chapter != self._chapter:
                self._chapter = finding.claim.chapter
                lines += [Text(), Text(chapter_title(self._chapter), "bold")]
            lines += self._row(finding)
        # The plan is printed before the first claim only.
        if plan_line(survey) and not survey.findings:
            lines += wrapped(Text(f"Plan: {plan_line(survey)}", "dim"), self._width, 0)
        print_lines(lines, self._console)

    def end(self, survey: Survey, folder: str | Path | None = None) -> None:
        print_lines(_foot(survey, self._width, folder), self._console)

    def _row(self, finding: Finding) -> Sequence[Text]:
        if self._form == "full":
            return [Text(), *finding_lines(finding, self._width)]
        line, *more = _numbers(finding, self._id_width, self._width)
        if self._form == "brief":
            return [line, *more]
        # Where nothing was measured, only the reading says what is missing, or what the probe raised.
        empty = isnan(finding.statistic.value) and not finding.quantities
        text = Text(show_text(finding.reading if empty else finding.headline), "bold")
        for control in finding.controls[:1]:
            text.append(f" ({_beside(finding, control)})", "not bold dim")
        # What decided comes first; a verdict that was not reached says why.
        why = reason(finding)
        if finding.limits:
            text = Text(f"{why or finding.verdict}: {show_text(comparison(finding))}. ").append_text(text)
        elif why:
            text = Text(f"{why}: ", "dim").append_text(text)
        name = show_text(finding.statistic.name)
        last = (line, *more)[-1]
        if last.cell_len + 2 + cell_len(name) <= self._width:
            last.append(f"  {name}", "dim")
        statement = Text(show_text(finding.claim.statement))
        return [line, *more, *wrapped(statement, self._width, 3), *wrapped(text, self._width, 3)]


def _beside(finding: Finding, control: Control) -> str:
    """The first control; with the statistic, where neither the headline nor what decided is in its unit."""
    own = bool(finding.limits) and finding.limits[0].measured is None
    measured = "" if own else f"measured {number(finding.statistic.value)}; "
    return f"{measured}{show_text(control.name)}: {number(control.value)}"


# The columns of a value and of its interval, and of a claim's kind, each with the space before it.
_NUMBERS, _KIND = 28, 11


def _numbers(finding: Finding, id_width: int, width: int) -> list[Text]:
    """Mark, id, verdict, kind, and the statistic with its interval; its unit where there is room.

    Where the screen is too narrow the kind is left out, and the numbers take a line of their own.
    """
    statistic = finding.statistic
    value, bracket = interval_parts(statistic.value, statistic.low, statistic.high)
    line = identity(finding, Text(" "), id_width)
    room = width - line.cell_len - _NUMBERS
    if room >= _KIND:
        line.append(f" {finding.claim.kind:<10}", "dim")
    lines = [line] if room >= 0 else [line, Text(" ")]
    last = lines[-1].append(f"  {value:<8} {bracket:<17}", "bold")
    if statistic.unit and last.cell_len + 1 + cell_len(show_text(statistic.unit)) <= width:
        last.append(f" {show_text(statistic.unit)}", "dim")
    return lines


def _foot(survey: Survey, width: int, folder: str | Path | None) -> list[Text]:
    foot = [f"Verdicts: {'   '.join(kind_counts(survey))}"] if len(survey) else []
    foot += [f"Laws: {law_line(survey)}"] if law_line(survey) else []
    notes = note_lines(survey)
    foot += [f"Note, {note}" for note in notes[:_NOTES]]
    if more := len(notes[_NOTES:]):
        foot[-1] += f" (and {more} more {'note' if more == 1 else 'notes'}, with their claims)"
    foot += [f"Files: {show_text(str(folder))}"] if folder else []
    return ([Text()] if foot else []) + paragraphs(foot, width)
