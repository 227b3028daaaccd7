"""The parts of a report: a row and an article per claim, the model with its laws, the settings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from armillary.results.claim import VERDICTS, Finding
from armillary.results.numbers import count, interval_of
from armillary.results.survey import Survey
from armillary.results.table import Column, Table
from armillary.views.page import SAVE_AS
from armillary.views.report.ledger import Chip, LedgerRow, expandable, ledger_section, link, soft, sort_key
from armillary.views.report.notebook import decided_html, mark_html, table_html, verdict_html
from armillary.views.report.payload import ClaimData
from armillary.views.report.strip import strip_html
from armillary.views.text.glossary import explained
from armillary.views.text.quoting import html_text as e
from armillary.views.text.strip_scale import comparison
from armillary.views.text.summary import (
    changed_rules,
    chapter_title,
    chapters,
    controls,
    counted,
    kind_counts,
    kind_text,
    limit_lines,
    measured,
    part_lines,
    reason,
    sources,
    verdict_counts,
)

# A figure with more pixels than this does not fit on a sheet of paper.
_SHEET = 1050
# Whether each column sorts by number.
HEADINGS = {"verdict": True, "claim": False, "measured": True, "limits and controls": True, "reading": False}


def survey_ledger(survey: Survey) -> str:
    seen = Counter(finding.verdict for finding in survey)
    chips = [Chip(verdict, mark_html(verdict), seen[verdict]) for verdict in VERDICTS]
    rows = [_row(finding) for findings in chapters(survey).values() for finding in findings]
    # Verdicts sort from supported to failed.
    tally = " · ".join(map(e, kind_counts(survey)))
    return f"<p class='tally'>{tally}</p>{ledger_section(HEADINGS, rows, chips)}"


def _row(finding: Finding) -> LedgerRow:
    statistic = finding.statistic
    unit = f" {e(statistic.unit)}" if statistic.unit else ""
    control = finding.controls[0] if finding.controls else None
    name = explained(e(statistic.name))
    cells = (
        f"{mark_html(finding.verdict)} {finding.verdict}{decided_html(finding)}"
        + soft(finding.claim.kind)
        + soft(reason(finding)),
        f"<b>{link(finding.id)}</b><br><span class='soft'>{explained(e(finding.claim.statement))}</span>",
        f"<b class='value'>{interval_of(statistic)}</b>{unit}<br><span class='soft'>{name}</span>",
        strip_html(finding),
        e(finding.reading) if finding.verdict == "failed" else expandable(finding.headline, finding.reading),
    )
    against_key = "" if control is None else sort_key(control.value)
    keys = (VERDICTS.index(finding.verdict), finding.id, sort_key(statistic.value), against_key, finding.reading)
    return LedgerRow(finding.id, finding.claim.chapter, finding.verdict, cells, keys, finding.claim.kind)


def survey_chapters(survey: Survey, parts: Sequence[ClaimData]) -> str:
    """Every chapter with its claims in full; `parts` are in the survey's order."""
    sections, places = [], {finding.id: i for i, finding in enumerate(survey)}
    for index, (chapter, findings) in enumerate(chapters(survey).items()):
        claims = "".join(finding_article(f, places[f.id], parts[places[f.id]]) for f in findings)
        tally = f"<span class='soft'>{verdict_counts(findings)}</span>"
        sections.append(f'<section id="chapter-{index}"><h2>{e(chapter_title(chapter))} {tally}</h2>{claims}</section>')
    return "".join(sections)


def finding_article(finding: Finding, index: int, part: ClaimData) -> str:
    """A claim in full; `index` names its part in the page's data."""
    caption = f" · {e(finding.caption)}" if finding.caption else ""
    head = f"<p class='kind'>{verdict_html(finding)} · {link(finding.id)}{caption}</p>"
    return article(finding.id, finding.headline, head, index, part, _facts(finding), finding.reading)


def article(claim_id: str, headline: str, head: str, index: int, part: ClaimData, facts: str, reading: str) -> str:
    """A claim's article: headline, figure beside its facts, save buttons, tables."""
    figure = ""
    if part.figure is not None:
        figure = (
            f'<div class="drawing{" tall" if part.height > _SHEET else ""}">'
            '<div class="scroll" tabindex="0" role="group" aria-label="figure">'
            f'<div class="figure" style="{part.heights}" data-part="{index}"></div></div>'
            f'<div class="save" data-part="{index}">{SAVE_AS}</div></div>'
        )
    return (
        f'<article id="{escape(claim_id)}"><h3>{e(headline)}</h3>{head}'
        f'<div class="two">{figure}<div class="facts"><p class="reading">{explained(e(reading))}</p>{facts}</div></div>'
        f"{_tables(part, index)}</article>"
    )


def _tables(part: ClaimData, index: int) -> str:
    return "".join(
        f'<details class="paged" data-part="{index}" data-table="{i}">'
        f"<summary>{e(name) if name else 'Table'}, {counted(len(table.rows), 'row')}</summary><div></div></details>"
        for i, (name, table) in enumerate(part.tables.items())
    )


def _facts(finding: Finding) -> str:
    """What was measured, its control and its rule; definition and sources are folded."""
    claim = finding.claim
    return (
        terms(
            ("question", [claim.question]),
            ("parts", part_lines(finding)),
            ("claim", [claim.statement]),
            ("kind", [kind_text(claim)]),
            ("decided" if finding.why is None else "compared", [comparison(finding)]),
            ("measured", [measured(finding)]),
            ("control", controls(finding)),
            ("limits", limit_lines(finding)),
            ("rule", claim.rule.split("\n")),
            ("rule changed", changed_rules(claim)),
            ("caveats", finding.notes),
        )
        + "<details class='how'><summary>How it was measured</summary>"
        + terms(
            ("definition", claim.definition.split("\n")),
            ("control", claim.control.split("\n")),
            ("source", [claim.source, *sources(claim)]),
        )
        + "</details>"
    )


def terms(*fields: tuple[str, Sequence[str]]) -> str:
    """A list of names and lines; names without lines are left out."""
    items = [
        f"<dt>{e(name)}</dt><dd>{explained('<br>'.join(map(e, lines)))}</dd>" for name, lines in fields if any(lines)
    ]
    return f"<dl>{''.join(items)}</dl>"


def model_section(survey: Survey) -> str:
    """Facts about the model, and every law with its error."""
    table = Table(
        (
            Column("law", "what must hold"),
            Column("error", "largest relative error found"),
            Column("rounding allows", "what rounding alone explains"),
            Column("share of it", "error over what rounding allows"),
            Column("where", "the place of the largest error"),
            Column("statement", "the law in words"),
        ),
        tuple(
            (law.name, law.error, law.tolerance, f"{law.error / law.tolerance:.1%}", law.where, law.statement)
            for law in survey.laws
        ),
    )
    laws = table_html(table) if survey.laws else "<p class='soft'>No law was checked.</p>"
    about = "The canonical form that all claims use, checked against the running model when it was loaded."
    return (
        f'<section id="model"><h2>The model and its laws</h2><div class="columns">{facts(survey.model.to_dict())}</div>'
        f"<h3>Laws</h3><p class='soft'>{about}</p>{laws}</section>"
    )


def settings_section(survey: Survey) -> str:
    """Text, run, versions and thresholds: what a repetition needs."""
    run, text = survey.provenance.to_dict() | survey.times.to_dict(), survey.text.to_dict()
    versions, notes = run.pop("versions"), text.pop("notes")
    listed = f"<ul>{''.join(f'<li>{e(note)}</li>' for note in notes)}</ul>" if notes else ""
    groups = [("Text", facts(text) + listed), ("Run", facts(run)), ("Versions", facts(versions) if versions else "")]
    columns = "".join(f"<div><h3>{name}</h3>{body}</div>" for name, body in groups if body)
    raised = "".join(
        f"<details><summary>Traceback</summary><pre>{_lines(note)}</pre></details>" for note in survey.notes
    )
    about = "Every number that a rule compares with; the same command with the same settings gives the same survey."
    return (
        f'<section id="settings"><h2>Settings</h2><div class="groups">{columns}</div><h3>Thresholds</h3>'
        f"<p class='soft'>{about}</p><div class='columns'>{facts(survey.thresholds)}</div>{raised}</section>"
    )


def _lines(text: str) -> str:
    return "\n".join(map(e, text.split("\n")))


def facts(record: Mapping[str, Any]) -> str:
    """A mapping as names and values."""
    return terms(*((name, [value]) for name, value in settings(record).items()))


def settings(record: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Names and values as text; nested ones are named by their path."""
    values: dict[str, str] = {}
    for key, value in record.items():
        name = f"{before}{key.replace('_', ' ')}"
        values |= settings(value, f"{name}: ") if isinstance(value, Mapping) else {name: _value_text(value)}
    return values


def _value_text(value: Any) -> str:
    match value:
        case None | "" | [] | ():
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return count(value)
        case float():
            # A setting is exact: 0.05, not 0.0500.
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(_value_text, value))
    return str(value)
