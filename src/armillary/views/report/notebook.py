"""Ledgers and findings as static HTML for notebooks and pages: escaped, in both themes, with marks beside colours."""

from collections.abc import Sequence
from html import escape

from armillary.results.claim import Finding, Verdict
from armillary.results.numbers import count, interval_of
from armillary.results.survey import Survey
from armillary.results.table import Table
from armillary.views.figures.marks import COLOURS, DARK, FONT, LIGHT, MARKS, Palette
from armillary.views.report.strip import strip_html
from armillary.views.text.glossary import explained
from armillary.views.text.quoting import are_numbers, html_text, show_cell
from armillary.views.text.strip_scale import compared, comparison
from armillary.views.text.summary import (
    chapter_title,
    chapters,
    fields,
    kind_counts,
    law_line,
    model_line,
    note_lines,
    reason,
    text_line,
    verdict_counts,
    verdict_text,
)

# Rows of a table that is not folded: about a screen.
_OPEN = 40
# Characters of a table's line that a screen of 400 pixels shows.
_NARROW = 48


def ledger_html(survey: Survey) -> str:
    """One row per claim: mark, id and statement; its number beside limits and controls; the reading."""
    parts = [f"<p class='head'><b>{html_text(model_line(survey))}</b><br>{html_text(text_line(survey))}</p>"]
    names = ("claim", "measured", "limits and controls", "reading")
    head = "<thead><tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr></thead>"
    for chapter, findings in chapters(survey).items():
        rows = "".join(_row(finding) for finding in findings)
        parts.append(
            f"<h2>{html_text(chapter_title(chapter))} <span class='soft'>{verdict_counts(findings)}</span></h2>"
            f"<div class='wide'><table class='ledger'>{head}<tbody>{rows}</tbody></table></div>"
        )
    foot = [f"Verdicts: {'   '.join(kind_counts(survey))}"] if len(survey) else []
    foot += [*([f"Laws: {law_line(survey)}"] if survey.laws else []), *(f"Note, {n}" for n in note_lines(survey))]
    parts.append("<p class='soft'>" + "<br>".join(map(html_text, foot)) + "</p>")
    return framed_html("".join(parts))


def finding_html(finding: Finding) -> str:
    """One finding in full: headline, verdict, fields, tables."""
    return framed_html(headline_html(finding) + _drawn(finding) + fields_html(finding) + tables_html(finding))


def _drawn(finding: Finding) -> str:
    """The finding's figure as static SVG."""
    # Plotly takes half a second to import; the ledger, which has no figure, should not wait for it.
    from armillary.views.figures.figure import figure
    from armillary.views.figures.print.static_svg import figure_svg

    return f"<div class='wide'>{figure_svg(figure(finding), html_text(finding.headline))}</div>"


def headline_html(finding: Finding) -> str:
    caption = f" · {html_text(finding.caption)}" if finding.caption else ""
    verdict = verdict_html(finding)
    return f"<h1>{html_text(finding.headline)}</h1><p class='soft'>{verdict} · {html_text(finding.id)}{caption}</p>"


def fields_html(finding: Finding) -> str:
    """Everything that is said of a finding, as a list of terms."""
    terms = [f"<dt>{name}</dt><dd>{'<br>'.join(map(html_text, lines))}</dd>" for name, lines in fields(finding)]
    return f"<dl>{''.join(terms)}</dl>"


def tables_html(finding: Finding) -> str:
    """Further tables open, unless they are longer than a screen; the finding's own folded."""
    more = [
        f"<h2>{html_text(name)}</h2>{table_html(table)}" if len(table.rows) <= _OPEN else _folded(name, table)
        for name, table in finding.more_tables.items()
    ]
    return "".join(more) + (_folded("table", finding.table) if finding.table.rows else "")


def _folded(name: str, table: Table) -> str:
    rows = f"{count(len(table.rows))} rows"
    return f"<details><summary>{html_text(name)}, {rows}</summary>{table_html(table)}</details>"


def table_html(
    table: Table, lists: Sequence[str] = (), words: Sequence[Sequence[str]] = (), most: int = 500, rows: str = "rows"
) -> str:
    """A table, with further columns `lists` whose cells are HTML; at most `most` of its rows."""
    numeric = [are_numbers([row[i] for row in table.rows]) for i in range(len(table.columns))]
    kinds = [" class='number'" if number else "" for number in numeric]
    head = "".join(
        f"<th{kind} title='{html_text(column.meaning)}'>{html_text(column.heading)}</th>"
        for column, kind in zip(table.columns, kinds, strict=True)
    )
    head += "".join(f"<th>{html_text(name)}</th>" for name in lists)
    shown = [[show_cell(cell, c.name) for cell, c in zip(row, table.columns, strict=True)] for row in table.rows[:most]]
    stacks = bool(lists) or too_wide([column.heading for column in table.columns], shown)
    names = [html_text(name) if stacks else "" for name in (*(c.heading for c in table.columns), *lists)]
    labels = [f" data-name='{name}'" if name else "" for name in names]
    body, seen = "", set[str]()
    for i, row in enumerate(shown):
        cells = [*(explained(escape(cell), seen) for cell in row), *(words[i] if words else ())]
        styles = zip(cells, [*kinds, *[""] * len(lists)], labels, strict=True)
        body += f"<tr>{''.join(f'<td{kind}{label}>{cell}</td>' for cell, kind, label in styles)}</tr>"
    left = len(table.rows) - most
    rest = f"<p class='soft'>{count(left)} more {rows} in the saved table.</p>" if left > 0 else ""
    kind = " class='stacks'" if stacks else ""
    return f"<div class='wide'><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}"


def too_wide(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a narrow screen cannot show the columns side by side; each row then stands as a list of terms.

    >>> too_wide(["word", "share"], [["time", "0.5"]]), too_wide(["claim", "reading"], [["sphere", "long " * 20]])
    (False, True)
    """
    columns = zip(headings, *rows, strict=True)
    return sum(max(map(len, column)) + 2 for column in columns) > _NARROW


def verdict_html(finding: Finding) -> str:
    """Mark, verdict, and the reason where there is none."""
    why = f" ({html_text(reason(finding))})" if reason(finding) else ""
    return f"{mark_html(finding.verdict)} <b>{finding.verdict}</b>{why}"


def decided_html(finding: Finding) -> str:
    """The comparison that decided, on a line of its own."""
    if not finding.limits:
        return ""
    brief, whole = compared(finding, finding.limits[0], brief=True), comparison(finding)
    return f"<br><span class='decided' title='{html_text(whole)}'>{html_text(brief)}</span>"


def mark_html(verdict: Verdict) -> str:
    return f"<span class='mark' style='color:{COLOURS[verdict]}'>{MARKS[verdict]}</span>"


def _row(finding: Finding) -> str:
    statistic = finding.statistic
    unit = f" {html_text(statistic.unit)}" if statistic.unit else ""
    return (
        f"<tr id='{html_text(finding.id)}'><td>{mark_html(finding.verdict)} <b>{html_text(finding.id)}</b> "
        f"{verdict_text(finding)} <span class='soft'>{finding.claim.kind}</span>{decided_html(finding)}"
        f"<br><span class='soft'>{html_text(finding.claim.statement)}</span></td>"
        f"<td><b>{interval_of(statistic)}</b>{unit}<br><span class='soft'>{html_text(statistic.name)}</span></td>"
        f"<td>{strip_html(finding)}</td>"
        f"<td>{html_text(finding.reading)}</td></tr>"
    )


def framed_html(body: str) -> str:
    """Static HTML with its style, for a notebook."""
    return f"<div class='armillary'><style>{CSS}</style>{body}</div>"


def _variables(palette: Palette) -> str:
    names = ("ground", "ink", "soft", "grid", "accent", "control")
    return "".join(f"--{name}:{getattr(palette, name)};" for name in names)


def _rules(rules: Sequence[str]) -> str:
    return "".join(f".armillary {rule}\n" for rule in rules)


CSS = (
    f".armillary{{{_variables(LIGHT)}font:14px/1.5 {FONT};font-variant-numeric:tabular-nums;"
    "color:var(--ink);background:var(--ground);padding:16px 20px;text-align:left}\n"
    f"@media screen and (prefers-color-scheme: dark){{.armillary{{{_variables(DARK)}}}}}\n"
    + _rules(
        [
            "h1{font-size:20px;line-height:1.3;font-weight:650;margin:0 0 4px}",
            "h2{font-size:15px;font-weight:650;margin:18px 0 6px}",
            "p{margin:4px 0 10px}",
            ".soft{color:var(--soft);font-weight:400}",
            ".mark{font-size:16px;line-height:1}",
            ".wide{overflow-x:auto}",
            "table{border-collapse:collapse;background:none;color:inherit;font-size:13px}",
            "tr{background:none}",
            "th,.armillary td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border:0}",
            "th,.armillary td{white-space:nowrap}",
            "tbody tr{border-top:1px solid var(--grid)}",
            "th{color:var(--soft);font-weight:500}",
            ".number{text-align:right}",
            ".ledger{width:100%}",
            ".ledger{line-height:1.35}",
            ".ledger td{white-space:normal}",
            ".ledger td:first-child{min-width:240px;width:27%}",
            ".ledger td:nth-child(2){min-width:170px;width:20%}",
            ".ledger td:nth-child(3){min-width:200px;width:22%}",
            ".ledger td:last-child{min-width:240px}",
            "svg{overflow:visible;display:block}",
            ".hole{fill:var(--ground)}",
            ".rule{stroke:var(--grid)}",
            "line.control{stroke:var(--control)}",
            "path.control{fill:var(--ground);stroke:var(--control);stroke-width:1.6}",
            "path.limit{fill:var(--accent);stroke:var(--accent);stroke-width:1.6}",
            "path.prediction{fill:none;stroke:var(--ink);stroke-width:1.4;stroke-dasharray:1.5 2.5}",
            "line.tick{stroke:var(--grid)}",
            "text.tick{fill:var(--soft);font-size:10px}",
            ".keys{list-style:none;margin:2px 0 0;padding:0;color:var(--soft);font-size:12px;line-height:1.3;"
            "display:flex;flex-wrap:wrap;gap:0 10px}",
            ".keys li{max-width:100%}",
            ".keys svg{display:inline-block;margin:0 3px 0 0;vertical-align:-1px}",
            ".decided{font-variant-numeric:tabular-nums}",
            "dl{display:grid;grid-template-columns:max-content minmax(0,80ch);gap:4px 18px;margin:12px 0}",
            "dt{color:var(--soft)}",
            "dd{margin:0}",
            "details{margin-top:14px}",
            "summary{cursor:pointer;color:var(--soft)}",
        ]
    )
    # On a narrow screen a row of a wide table is a list of terms: nothing needs sideways scrolling.
    + "@media screen and (max-width: 639.9px){\n"
    + _rules(
        [
            ".stacks,.armillary .stacks tbody{display:block}",
            ".stacks thead{display:none}",
            ".stacks tr{display:flex;flex-wrap:wrap;gap:0 14px;padding:5px 0}",
            # Beats the widths that pages give to cells of tables.
            ".wide .stacks td{display:block;white-space:normal;overflow-wrap:anywhere;text-align:left;max-width:100%;"
            "padding:1px 0}",
            ".wide .stacks td:empty{display:none}",
            ".wide .stacks td::before{content:attr(data-name) '\\00a0\\00a0';color:var(--soft)}",
        ]
    )
    + "}\n"
)
