"""A comparison as one page: a ledger of what differs, and every claim with its rows and figures."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

import numpy as np

from armillary.results.claim import VERDICTS
from armillary.results.compare import RULE, Comparison, Pair, Tally
from armillary.results.numbers import count, interval, interval_of
from armillary.results.quantity import Quantity
from armillary.results.store import file_name, table_csv
from armillary.results.survey import Survey
from armillary.results.table import Column, Table
from armillary.views.compare.comparison import (
    SIGNS,
    against,
    difference,
    headline,
    number_change,
    outcomes,
    overview_html,
    plural,
    reading,
    row_changes,
    step,
    summary,
    tally_text,
    title,
    verdict_change,
    verdicts_html,
)
from armillary.views.figures.figure import drawn, figure
from armillary.views.page import quantities_csv
from armillary.views.report.claims import article, settings, terms
from armillary.views.report.ledger import Chip, LedgerRow, expandable, ledger_section, link
from armillary.views.report.notebook import table_html, verdict_html
from armillary.views.report.payload import ClaimData, bare, changed, thinned
from armillary.views.report.report import assembled, masthead
from armillary.views.report.strip import strip_html
from armillary.views.text.quoting import html_text as e
from armillary.views.text.quoting import in_html, show_text
from armillary.views.text.summary import chapter_title, model_line, text_line

_PANELS = 4
_HEAD = re.compile(r"L(\d+)H(\d+)")


def comparison_page(comparison: Comparison) -> str:
    """The comparison as one self-contained page."""
    parts = [_part(pair, comparison.names) for pair in comparison]
    lines = [f"{side}  {model_line(s)} · {text_line(s)}" for side, s in (("A", comparison.a), ("B", comparison.b))]
    above = masthead(title(comparison), [*lines, summary(comparison) + "."])
    if comparison.notes:
        above += f"<ul class='notes'>{''.join(f'<li>{e(note)}</li>' for note in comparison.notes)}</ul>"
    chapters = list(dict.fromkeys(pair.claim.chapter for pair in comparison))
    places = [("changes", "What changed"), ("ledger", "Ledger")]
    places += [(f"chapter-{i}", chapter_title(name)) for i, name in enumerate(chapters)]
    places += [("rule", "How they were compared"), ("sides", "Both surveys")]
    kinds = [Chip(o, SIGNS[o], n, plural(o, n)) for o, n in outcomes(comparison.pairs).items()]
    headings = {"verdict": True, "claim": False, "A → B": True, "◇ A, mark B": True, "what differs": False}
    ledger = ledger_section(headings, [_row(p, comparison.names) for p in comparison], kinds)
    body = _overview(comparison, parts) + ledger + _chapters(comparison, chapters, parts)
    body += f'<section id="rule"><h2>How they were compared</h2><p class="prose">{e(RULE)}</p></section>'
    body += _sides(comparison)
    foot = "The command armillary compare writes this page from two stored surveys; with --out DIR also every row."
    return assembled(f"Armillary: {title(comparison)}", above, places, body, foot, parts)


def _overview(comparison: Comparison, parts: list[ClaimData]) -> str:
    """What changed, in words, and the map of the streams' likeness, which becomes one more part."""
    drawing = ""
    similarity = comparison.similarity
    if similarity is not None:
        subtitle = in_html(show_text(f"{comparison.names[1]} (B, across) against {comparison.names[0]} (A, down)"))
        quantities = similarity.quantities()
        headline = "How alike are the streams, layer by layer?"
        part = ClaimData(
            "compare.similarity",
            bare(drawn(list(quantities), headline, subtitle)),
            quantities_csv(quantities),
            {"every pair of layers": similarity.table()},
            {},
        )
        index = len(parts)
        parts.append(part)
        drawing = article("similarity", headline, "", index, part, "", similarity.sentence())
    return f'<section id="changes"><h2>What changed</h2>{overview_html(comparison)}{drawing}</section>'


def _row(pair: Pair, names: tuple[str, str]) -> LedgerRow:
    gap = math.nan if pair.change is None else pair.change.difference.value
    unit = f" {e(pair.b.statistic.unit)}" if pair.b.statistic.unit else ""
    first = [*verdict_change(pair)] or [number_change(pair)]
    changes = [*verdict_change(pair), *row_changes(pair), *pair.notes] or first
    cells = (
        verdicts_html(pair),
        f"<b>{link(pair.id)}</b><br><span class='soft'>{e(pair.claim.statement)}</span>",
        f"<b class='value'>{step(pair)}</b>{unit}<br><span class='soft'>{e(pair.b.statistic.name)}</span>",
        strip_html(against(pair, names[0]), keys=False)
        + f"<span class='soft'>{SIGNS[pair.outcome]} {_briefly(pair)}</span>",
        expandable(f"{'; '.join(first)}.", f"{'; '.join(changes)}."),
    )
    # Changed verdicts first, then as in the ledger of one survey; numbers sort by their difference.
    verdict = VERDICTS.index(pair.b.verdict) + (0 if pair.is_verdict_changed else len(VERDICTS))
    key = gap if math.isfinite(gap) else ""
    return LedgerRow(pair.id, pair.claim.chapter, pair.outcome, cells, (verdict, pair.id, key, key, reading(pair)))


def _briefly(pair: Pair) -> str:
    """'−0.103 [−0.110, −0.095]', or the outcome where there is no interval."""
    gap = None if pair.change is None else pair.change.difference
    return interval(*gap) if gap is not None and gap.is_interval else pair.outcome


def _chapters(comparison: Comparison, chapters: Sequence[str], parts: Sequence[ClaimData]) -> str:
    sections = []
    for index, chapter in enumerate(chapters):
        claims = "".join(
            _article(pair, i, parts[i]) for i, pair in enumerate(comparison) if pair.claim.chapter == chapter
        )
        sections.append(f'<section id="chapter-{index}"><h2>{e(chapter_title(chapter))}</h2>{claims}</section>')
    return "".join(sections)


def _article(pair: Pair, index: int, part: ClaimData) -> str:
    verdicts = " → ".join(map(verdict_html, (pair.a, pair.b)))
    head = f"<p class='kind'>{SIGNS[pair.outcome]} <b>{pair.outcome}</b> · {verdicts} · {link(pair.id)}</p>"
    sides = [f"{side}: {interval_of(f.statistic)}, n = {count(f.n)}" for side, f in (("A", pair.a), ("B", pair.b))]
    controls = [f"{side}, {c.name}: {interval_of(c)}" for side, f in (("A", pair.a), ("B", pair.b)) for c in f.controls]
    facts = terms(
        ("claim", [pair.claim.statement]),
        ("measured", [pair.b.statistic.name, *sides]),
        ("difference", [difference(pair)]),
        ("rows", [tally_text(pair, tally) for tally in pair.tallies if tally.with_interval]),
        ("controls", controls),
        ("rule", pair.claim.rule.split("\n")),
        ("caveats", pair.notes),
    )
    how = terms(("A", [pair.a.reading]), ("B", [pair.b.reading]))
    facts += f"<details class='how'><summary>The reading of each survey</summary>{how}</details>"
    return article(
        pair.id, headline(pair), head, index, part, facts, "; ".join([*verdict_change(pair), number_change(pair)]) + "."
    )


def _part(pair: Pair, names: tuple[str, str]) -> ClaimData:
    tables = {}
    if pair.tallies:
        tables["columns compared"] = _tallies(pair.tallies)
        tables["every number"] = _narrow(pair.table)
    if pair.changed.rows:
        tables["words and yes/no values that changed"] = _narrow(pair.changed)
    quantities = pair_quantities(pair, names)
    subtitle = "<br>".join(map(in_html, wrap(show_text(f"{names[1]} (B) against {names[0]} (A)"), 110)))
    if quantities:
        shown = [thinned(quantity) for quantity in quantities]
        wide, narrow = (bare(drawn(shown, headline(pair), subtitle, narrow=narrow)) for narrow in (False, True))
        numbers_csv = quantities_csv(quantities)
    else:
        finding = replace(against(pair, names[0]), quantities=(), headline=headline(pair))
        wide, narrow = (bare(figure(finding, narrow)) for narrow in (False, True))
        numbers_csv = table_csv(pair.table)
    return ClaimData(file_name(f"compare.{pair.id}", ""), wide, numbers_csv, tables, {}, changed(wide, narrow))


def pair_quantities(pair: Pair, names: tuple[str, str]) -> tuple[Quantity, ...]:
    """Differences row by row where there are intervals, then both levels where the axes agree."""
    quantities = [_gap(pair, tally) for tally in pair.tallies if tally.with_interval and not tally.table]
    others = {quantity.name: quantity for quantity in pair.a.quantities}
    for mine in pair.b.quantities:
        other = others.get(mine.name)
        if other is not None and _same_axes(mine, other):
            quantity = _levels(other, mine, names) if len(mine.axes) == 1 else _map(other, mine)
            quantities += [] if any(_is_same(quantity, other) for other in quantities) else [quantity]
    return tuple(quantities[:_PANELS])


def _gap(pair: Pair, tally: Tally) -> Quantity:
    """B minus A with its interval over sites, or over layers and heads with a map of those that differ."""
    rows = pair.table.where("table", "").where("column", tally.column)
    where = [str(name) for name in rows.column("where")]
    value, low, high = (np.array(rows.column(f"difference{end}"), dtype=float) for end in ("", "_low", "_high"))
    name, meaning = f"{tally.column}: B minus A", _meaning(pair.b.table, tally.column)
    heads = [_HEAD.fullmatch(name) for name in where]
    if where and all(heads):
        places = [(int(h[1]), int(h[2])) for h in heads if h]
        apart = np.array([outcome == "differs" for outcome in rows.column("outcome")])
        return _head_map(name, meaning, tally.unit, places, value, apart)
    axis = pair.b.table.columns[0].name
    nothing = {"no difference": np.zeros(len(where))}
    return Quantity(name, meaning, tally.unit, (axis,), {axis: where}, value, low, high, theory=nothing)


def _head_map(
    name: str, meaning: str, unit: str, places: Sequence[tuple[int, int]], value: Any, apart: Any
) -> Quantity:
    shape = (max(layer for layer, _ in places) + 1, max(head for _, head in places) + 1)
    whole, differing = np.full(shape, np.nan), np.full(shape, np.nan)
    for place, gap, is_apart in zip(places, value, apart, strict=True):
        whole[place] = gap
        differing[place] = gap if is_apart else np.nan
    coords = {"layer": [f"L{i}" for i in range(shape[0])], "head": [f"H{i}" for i in range(shape[1])]}
    shown = {f"where the intervals do not overlap: {int(np.sum(apart))} of {len(places)}": differing}
    return Quantity(name, meaning, unit, ("layer", "head"), coords, whole, controls=shown, label="all heads")


def _levels(a: Quantity, b: Quantity, names: tuple[str, str]) -> Quantity:
    return replace(b, controls={f"A: {names[0]}": a.values}, label=f"B: {names[1]}")


def _map(a: Quantity, b: Quantity) -> Quantity:
    """The difference of two maps, of their logarithms where the quantity is drawn on a log scale."""
    if "value" in b.logs:
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log10(b.values) - np.log10(a.values)
        gap[~np.isfinite(gap)] = np.nan
        unit, name = "powers of ten", f"log₁₀ of {b.name}: B minus A"
    else:
        gap, unit, name = b.values - a.values, b.unit, f"{b.name}: B minus A"
    return Quantity(name, b.meaning, unit, b.axes, b.coords, gap, label="B minus A")


def _same_axes(a: Quantity, b: Quantity) -> bool:
    return a.axes == b.axes and all(list(a.coords[axis]) == list(b.coords[axis]) for axis in a.axes)


def _is_same(a: Quantity, b: Quantity) -> bool:
    """Whether a column of the table and a quantity are the same, and would be drawn twice."""
    return a.values.shape == b.values.shape and np.allclose(a.values, b.values, rtol=1e-9, atol=0, equal_nan=True)


def _meaning(table: Table, name: str) -> str:
    return next((column.meaning for column in table.columns if column.name == name), "")


def _narrow(table: Table) -> Table:
    """Without the column that names the table, where there is only one."""
    if any(row[0] for row in table.rows):
        return table
    return Table(table.columns[1:], tuple(row[1:] for row in table.rows))


def _tallies(tallies: Sequence[Tally]) -> Table:
    columns = (
        Column("column", "the compared column"),
        Column("rows", "rows of both surveys"),
        Column("with interval", "of them with an interval on at least one side"),
        Column("differ", "rows whose intervals do not overlap"),
        Column("up", "of them, larger in B"),
        Column("by chance", "expected number if none differed, for independent surveys"),
        Column("at most", "upper bound on it, however the surveys depend on each other"),
        Column("unequal", "rows without an interval whose numbers are not the same to six digits"),
        Column("median difference", "B minus A, over rows"),
    )
    rows = []
    for t in tallies:
        name = f"{t.table}: {t.column}" if t.table else t.column
        weighed = (t.differ, t.rose, t.by_chance, t.by_chance_at_most) if t.with_interval else (None,) * 4
        rows.append((name, t.rows, t.with_interval, *weighed, t.unequal, t.median))
    return Table(columns, tuple(rows))


def _record(survey: Survey, name: str) -> Mapping[str, Any]:
    return survey.thresholds if name == "thresholds" else getattr(survey, name).to_dict()


def _sides(comparison: Comparison) -> str:
    """Model, text and run of both surveys, with differences marked."""
    columns = (Column("", ""), Column("A", comparison.names[0]), Column("B", comparison.names[1]), Column("alike", ""))
    groups = []
    for name in ("model", "text", "provenance", "thresholds"):
        records: list[Mapping[str, str]] = [settings(_record(s, name)) for s in (comparison.a, comparison.b)]
        keys = [key for key in {**records[0], **records[1]} if key != "notes"]
        rows = [(key, records[0].get(key, "–"), records[1].get(key, "–")) for key in keys]
        if name == "thresholds":
            rows = [row for row in rows if row[1] != row[2]]
        if rows:
            marked = tuple((*row, "yes" if row[1] == row[2] else "no") for row in rows)
            groups.append(f"<div><h3>{name.capitalize()}</h3>{table_html(Table(columns, marked))}</div>")
    return f'<section id="sides"><h2>Both surveys</h2><div class="groups wider">{"".join(groups)}</div></section>'
