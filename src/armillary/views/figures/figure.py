"""Figures of findings and of the ledger.

Colours are those of the light palette; `theme.dark_record` replaces them. All text from outside is escaped, because
plotly interprets a subset of HTML in titles, ticks and hover labels.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from armillary.results.claim import VERDICTS, Finding
from armillary.results.numbers import interval_of, number
from armillary.results.quantity import Quantity
from armillary.results.survey import Survey
from armillary.views.figures.marks import COLOURS, LIGHT, MARKS
from armillary.views.figures.narrow_layout import bar_below, stacked
from armillary.views.figures.panels import LINE_HEIGHT, Panel, panel, spread
from armillary.views.figures.passage_panel import passage_panels
from armillary.views.text.glossary import TERMS
from armillary.views.text.quoting import html_text, in_html, show_text
from armillary.views.text.strip_scale import StripScale, on_strip
from armillary.views.text.summary import chapter_title, chapters, model_line, text_line, verdict_text

_HEADER, _FOOTER = 34, 66
_LABEL_MARGIN, _BAR_MARGIN = 150, 90
_ROW, _NARROW_ROW = 46, 130
# Pixels between lines of small text.
_NOTE_LINE = 15
# Characters of a panel's meaning side by side.
_WIDE, _NARROW = 100, 44
# Characters of a number, its interval and its unit side by side.
_VALUE = 31
_TAG = re.compile(r"<[^>]*>")


def figure(finding: Finding, narrow: bool = False) -> go.Figure:
    """The finding's quantities, one panel each, under its headline; without quantities, its number on a line."""
    if not finding.quantities:
        return _rows_figure([finding], finding.headline, _subtitle(finding), narrow)
    return drawn(finding.quantities, finding.headline, _subtitle(finding), passage_panels(finding, narrow), narrow)


def drawn(
    quantities: Sequence[Quantity], headline: str, subtitle: str, more: Sequence[Panel] = (), narrow: bool = False
) -> go.Figure:
    """One panel per quantity, stacked, then more of them; the subtitle is HTML.

    On a `narrow` screen maps stand below each other, and labels and colour bars below what they belong to.
    """
    panels = [*(panel(quantity) for quantity in quantities), *more]
    panels = stacked(panels) if narrow else panels
    titles = heading(headline, subtitle)
    wide = _NARROW if narrow else _WIDE
    above = [_header(p, wide) + LINE_HEIGHT * len(_meaning(p, wide)) + _cell_titles(p) for p in panels]
    below = [_FOOTER + p.depth + (_under(p) if narrow else 0) for p in panels]
    total = sum(above) + sum(below) + sum(p.height for p in panels)
    canvas = go.Figure()
    layout: dict[str, Any] = {"annotations": []}
    top, axes = total, 0
    for index, (part, over, under) in enumerate(zip(panels, above, below, strict=True)):
        top -= over + part.height
        domain = (top / total, (top + part.height) / total)
        axes = _add(canvas, layout, part, domain, axes, index, wide)
        if narrow:
            _lower(layout, part, domain[0], index, total)
        else:
            _label_ends(layout, part, domain)
        top -= under
    right = _LABEL_MARGIN if any(p.labels for p in panels) else _BAR_MARGIN
    left = max(62 if narrow else 76, *(_left(cell.yaxis) for p in panels for cell in p.cells[:1]))
    margin = {"l": left, "r": 14 if narrow else right, "t": titles.pop("top"), "b": 6}
    if narrow:
        # Beside long names of rows there would be no room for words.
        for note in layout["annotations"]:
            note["xshift"] = 6 - left
    size = {"height": total + margin["t"] + margin["b"], "margin": margin}
    # Set at once: `update_layout` takes as long as all traces together.
    canvas.layout = {"template": "armillary", **titles, **layout, **size}
    return canvas


def ledger_figure(survey: Survey) -> go.Figure:
    """One row per claim: dot and interval against the controls, each row on its own axis (`StripScale`)."""
    findings = [f for group in chapters(survey).values() for f in group]
    subtitle = in_html(f"{model_line(survey)}  |  {text_line(survey)}")
    seen = Counter(finding.verdict for finding in findings)
    parts = [f"{seen[verdict]} {verdict}" for verdict in VERDICTS if seen[verdict]]
    return _rows_figure(findings, f"Of {len(findings)} claims: {', '.join(parts)}", subtitle)


def _add(
    canvas: go.Figure,
    layout: dict[str, Any],
    part: Panel,
    domain: tuple[float, float],
    axes: int,
    index: int,
    wide: int,
) -> int:
    """Draw one panel into its part of the page; returns the number of axes so far."""
    gap = 0.04
    width = (1 - gap * (len(part.cells) - 1)) / len(part.cells)
    for column, cell in enumerate(part.cells):
        axes += 1
        left = column * (width + gap)
        name = "" if axes == 1 else str(axes)
        layout[f"xaxis{name}"] = {**cell.xaxis, "domain": [left, left + width], "anchor": f"y{name}"}
        layout[f"yaxis{name}"] = {**cell.yaxis, "domain": list(domain), "anchor": f"x{name}"}
        if cell.title:
            layout["annotations"].append(
                _note(in_html(cell.title), left, domain[1], 12, LIGHT.soft, yshift=2, yanchor="bottom")
            )
        for trace in cell.traces:
            trace.update(xaxis=f"x{name}", yaxis=f"y{name}")
            if part.coloraxis:
                trace.update(coloraxis=f"coloraxis{index + 1 if index else ''}")
            canvas.add_trace(trace)
    if part.coloraxis:
        bar = {**part.coloraxis["colorbar"], "x": 1.015, "xanchor": "left", "len": domain[1] - domain[0]}
        bar |= {"y": domain[0], "yanchor": "bottom", "outlinewidth": 0}
        layout[f"coloraxis{index + 1 if index else ''}"] = {**part.coloraxis, "colorbar": bar}
    if part.title:
        bold = (f"<b>{in_html(line)}</b>" for line in _title(part, wide))
        title = "<br>".join([*bold, *map(in_html, _meaning(part, wide))])
        shift = 6 + _cell_titles(part)
        layout["annotations"].append(_note(title, 0, domain[1], 13, LIGHT.ink, yshift=shift, yanchor="bottom"))
    return axes


def _label_ends(layout: dict[str, Any], part: Panel, domain: tuple[float, float]) -> None:
    """Labels at the right ends of their lines."""
    for label, place in zip(part.labels, spread(part.labels, part.height), strict=True):
        text = "<br>".join(map(in_html, label.lines))
        at = domain[0] + place * (domain[1] - domain[0])
        note = _note(text, 1, at, 12, label.color, xshift=8, yanchor="middle")
        layout["annotations"].append(note | ({"hovertext": TERMS[label.text]} if label.text in TERMS else {}))


def _lower(layout: dict[str, Any], part: Panel, bottom: float, index: int, total: float) -> None:
    """Labels and the colour bar below a panel, under its axis."""
    depth = 46 + part.depth
    lines = [(line, label.color) for label in part.labels for line in _wrapped(label.text)]
    for row, (line, colour) in enumerate(lines):
        shift = -(depth + LINE_HEIGHT * row)
        layout["annotations"].append(_note(in_html(line), 0, bottom, 12, colour, yshift=shift, yanchor="top"))
    if part.coloraxis:
        axis = layout[f"coloraxis{index + 1 if index else ''}"]
        axis["colorbar"] = bar_below(axis["colorbar"], bottom, (depth + 2) / total)


def _wrapped(text: str) -> list[str]:
    return wrap(f"– {text}", _NARROW)


def _under(part: Panel) -> int:
    """Pixels that labels or a colour bar need below a panel."""
    bar = 44 if part.coloraxis and part.coloraxis.get("showscale", True) else 0
    return bar + LINE_HEIGHT * sum(len(_wrapped(label.text)) for label in part.labels)


def _header(part: Panel, wide: int) -> int:
    return _HEADER + LINE_HEIGHT * (len(_title(part, wide)) - 1) if part.title else 12


def _rows_figure(findings: list[Finding], headline: str, subtitle: str, narrow: bool = False) -> go.Figure:
    """Strips with their words beside them; on a narrow screen, of one finding, above and below."""
    canvas = go.Figure()
    notes: list[dict[str, Any]] = []
    headed = len({f.claim.chapter for f in findings}) > 1
    level, chapter = 0.0, ""
    for finding in findings:
        if headed and finding.claim.chapter != chapter:
            chapter = finding.claim.chapter
            notes.append(_at(f"<b>{in_html(chapter_title(chapter))}</b>", level, "left", LIGHT.soft, 12, -6))
            level -= 0.75
        for trace in _row_traces(finding, level):
            canvas.add_trace(trace)
        notes += _row_notes(finding, level, narrow)
        level -= 1
    key = "each row on its own scale; hollow: controls; upright: limits; dotted: prediction; bars: 95 % intervals"
    titles = heading(headline, f"{subtitle}<br>{key}")
    left, right, row = (14, 14, _NARROW_ROW) if narrow else (310, 270, _ROW)
    row += _NOTE_LINE * max(
        (len(lines) - 1 for finding in findings for lines in _row_words(finding, narrow)), default=0
    )
    margin = {"l": left, "r": right, "t": titles.pop("top"), "b": 16}
    height = round(row * -level) + margin["t"] + margin["b"]
    canvas.update_layout(
        template="armillary",
        xaxis={"visible": False, "range": [0, 1], "fixedrange": True},
        yaxis={"visible": False, "range": [level + 0.5, 0.5], "fixedrange": True},
        annotations=notes,
        margin=margin,
        height=height,
        **titles,
    ).update_layout(title={"xref": "container", "x": 0, "pad": {"l": 14}})
    return canvas


def _row_traces(finding: Finding, level: float) -> list[Any]:
    traces = [_stroke([0, 1], level, LIGHT.grid, 1)]
    scale = StripScale.of(finding)
    if scale is None:
        return traces
    traces += _limit_traces(finding, scale, level)
    for index, control in enumerate(finding.controls):
        hover = f"{html_text(control.name)}<br>{interval_of(control)}"
        symbol = _CONTROLS[index % len(_CONTROLS)]
        marker = {"symbol": symbol, "size": 10, "color": LIGHT.control, "line": {"width": 1.8}}
        traces.append(_stroke([scale.at(control.low), scale.at(control.high)], level, LIGHT.control, 3))
        traces.append(_point(scale.at(control.value), level, hover, mode="markers", marker=marker))
    statistic, colour = finding.statistic, COLOURS[finding.verdict]
    hover = f"<b>{in_html(finding.id)}</b><br>{html_text(statistic.name)}<br>"
    hover += interval_of(statistic)
    traces.append(_stroke([scale.at(statistic.low), scale.at(statistic.high)], level, colour, 5))
    mark = {"symbol": _SYMBOLS[finding.verdict], "size": 13, "line": {"width": 2, "color": colour}}
    mark["color"] = LIGHT.ground if finding.verdict == "undecided" else colour
    traces.append(_point(scale.at(statistic.value), level, hover, mode="markers", marker=mark))
    if finding.verdict == "qualified":
        half = {"symbol": "circle", "size": 6, "color": LIGHT.ground}
        traces.append(_point(scale.at(statistic.value), level, hover, mode="markers", marker=half))
    return traces


def _limit_traces(finding: Finding, scale: StripScale, level: float) -> list[Any]:
    """Limits as upright lines, the prediction as a dotted one."""
    lines = [(limit.value, f"limit: {limit.meaning}", LIGHT.accent, "solid") for limit in on_strip(finding)]
    if finding.prediction is not None:
        lines.append((finding.prediction.value, finding.prediction.meaning, LIGHT.ink, "dot"))
    return [
        go.Scatter(
            x=[at, at],
            y=[level - 0.34, level + 0.34],
            mode="lines",
            line={"color": colour, "width": 2, "dash": dash},
            hovertext=f"{html_text(meaning)}<br>{number(value)}",
            hovertemplate="%{hovertext}<extra></extra>",
        )
        for value, meaning, colour, dash in lines
        if (at := scale.at(value)) is not None
    ]


_CONTROLS = ("diamond-open", "triangle-up-open", "square-open", "triangle-down-open", "bowtie-open", "hexagon-open")
# Plotly has no half-filled disc: a thick ring stands for ◐, which is in the row's label.
_SYMBOLS = {
    "supported": "circle",
    "qualified": "circle",
    "refuted": "x",
    "undecided": "circle",
    "failed": "triangle-up",
}


def _stroke(x: list[float | None], level: float, colour: str, width: float) -> Any:
    line = {"color": colour, "width": width}
    return go.Scatter(x=x, y=[level, level], mode="lines", line=line, opacity=1, hoverinfo="skip")


def _point(x: float | None, level: float, hover: str, **style: Any) -> Any:
    return go.Scatter(x=[x], y=[level], hovertext=[hover], hovertemplate="%{hovertext}<extra></extra>", **style)


def _row_notes(finding: Finding, level: float, narrow: bool) -> list[dict[str, Any]]:
    mark = f'<span style="color:{COLOURS[finding.verdict]}">{MARKS[finding.verdict]}</span>'
    statistic = finding.statistic
    value = interval_of(statistic)
    words, beside = _row_words(finding, narrow)
    unit = "" if not statistic.unit or _unit_below(finding) else f" {in_html(show_text(statistic.unit, 16))}"
    name = f"{mark}  <b>{in_html(finding.id)}</b>  {finding.verdict}"
    if narrow:
        lines = ((name, 46 + _NOTE_LINE * (len(words) - 1), LIGHT.ink, 13),
                 ("<br>".join(words), 28 + _NOTE_LINE * (len(words) - 1) / 2, LIGHT.soft, 11),
                 (f"<b>{value}</b>{unit}", -28, LIGHT.ink, 13),
                 ("<br>".join(beside), -46 - _NOTE_LINE * (len(beside) - 1) / 2, LIGHT.control, 11))  # fmt: skip
        return [_note(text, 0, level, size, colour, yshift=at, yref="y", yanchor="middle")
                for text, at, colour, size in lines]  # fmt: skip
    return [
        _at(name, level, "left", LIGHT.ink, 13, 8),
        _at("<br>".join(words), level, "left", LIGHT.soft, 11, -9 - _NOTE_LINE * (len(words) - 1) / 2),
        _at(f"<b>{value}</b>{unit}", level, "right", LIGHT.ink, 13, 8),
        _at("<br>".join(beside), level, "right", LIGHT.control, 11, -9 - _NOTE_LINE * (len(beside) - 1) / 2),
    ]


def _row_words(finding: Finding, narrow: bool) -> tuple[list[str], list[str]]:
    """What is measured and what it is compared with, in lines that fit beside the strip."""
    more = f" (and {len(finding.controls) - 1} more)" if len(finding.controls) > 1 else ""
    first = [f"control, {show_text(c.name)}: {number(c.value)}{more}" for c in finding.controls[:1]]
    unit = f"{show_text(finding.statistic.unit, 16)}; " if _unit_below(finding) else ""
    texts = (show_text(finding.statistic.name), *(unit + text for text in first or ["no control"]))
    wide = (_NARROW, _NARROW) if narrow else (46, 40)
    name, beside = ([in_html(line) for line in wrap(text, size)] for text, size in zip(texts, wide, strict=True))
    return name, beside


def _unit_below(finding: Finding) -> bool:
    """Does the unit stand in the line below? A long one beside a long interval would leave the figure."""
    return len(f"{interval_of(finding.statistic)} {show_text(finding.statistic.unit, 16)}") > _VALUE


def _at(text: str, level: float, side: str, colour: str, size: int, yshift: float) -> dict[str, Any]:
    """Text in the left or right margin, beside its row."""
    place = {"x": 0, "xshift": -298} if side == "left" else {"x": 1, "xshift": 14}
    return _note(
        text, place["x"], level, size, colour, xshift=place["xshift"], yshift=yshift, yref="y", yanchor="middle"
    )


def _note(text: str, x: float, y: float, size: int, colour: str, **more: Any) -> dict[str, Any]:
    style = {"xref": "paper", "yref": "paper", "xanchor": "left", "align": "left", "showarrow": False}
    return {"text": text, "x": x, "y": y, "font": {"size": size, "color": colour}, **style, **more}


def _left(yaxis: Mapping[str, Any]) -> int:
    """Pixels for the names of rows, and for the axis's title beside them."""
    longest = max((len(_TAG.sub("", text)) for text in yaxis.get("ticktext") or ()), default=0)
    return round(7.4 * longest + 42) if longest > 5 else 0


def _cell_titles(part: Panel) -> int:
    return 18 if any(cell.title for cell in part.cells) else 0


def _title(part: Panel, wide: int) -> list[str]:
    return wrap(show_text(part.title), wide - 4)


def _meaning(part: Panel, wide: int) -> list[str]:
    return wrap(show_text(part.meaning), wide)


def _subtitle(finding: Finding) -> str:
    mark = f'<span style="color:{COLOURS[finding.verdict]}">{MARKS[finding.verdict]}</span>'
    caption = "<br>".join(in_html(line) for line in wrap(show_text(finding.caption), 110))
    return f"{mark} <b>{verdict_text(finding)}</b>" + (f"  ·  {caption}" if caption else "")


def heading(headline: str, subtitle: str) -> dict[str, Any]:
    """Title and subtitle in plotly's form, with the margin (`top`) that they need."""
    lines = [in_html(line) for line in wrap(show_text(headline), 74)]
    top = 26 + 24 * len(lines) + 18 * (subtitle.count("<br>") + 1) + 12
    title = {"text": "<br>".join(lines), "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 18}}
    return {"title": {**title, "subtitle": {"text": subtitle}}, "top": top}
