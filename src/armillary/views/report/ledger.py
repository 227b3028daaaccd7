"""A ledger in HTML that can be searched, filtered and sorted, and read without scripts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from armillary.views.text.glossary import explained, other_words
from armillary.views.text.quoting import html_text as e
from armillary.views.text.summary import chapter_title


@dataclass(frozen=True)
class Chip:
    """A button that shows only the rows of one kind."""

    kind: str
    mark: str
    """HTML."""
    number: int
    label: str = ""
    """If not the kind itself."""


@dataclass(frozen=True)
class LedgerRow:
    """One claim: its cells as HTML, and each column's sort key."""

    id: str
    chapter: str
    kind: str
    cells: Sequence[str]
    keys: Sequence[str | float]
    nature: str = ""
    """The kind of claim, where rows can be chosen by it."""


def soft(text: str) -> str:
    """A second line of a cell, in a paler colour."""
    return f"<br><span class='soft'>{e(text)}</span>" if text else ""


def sort_key(value: float) -> float | str:
    """What a column of numbers is sorted by; cells without a number stay together."""
    return value if math.isfinite(value) else ""


def ledger_section(headings: Mapping[str, bool], rows: Sequence[LedgerRow], chips: Sequence[Chip]) -> str:
    """Controls, and one table with a body per chapter; `headings` say of each column whether it sorts by number."""
    chapters: dict[str, list[LedgerRow]] = {}
    for row in rows:
        chapters.setdefault(row.chapter, []).append(row)
    head = "".join(
        f'<th scope="col"><button type="button" data-sort="{i}" data-number="{int(number)}">{e(name)}</button></th>'
        for i, (name, number) in enumerate(headings.items())
    )
    bodies = "".join(_body(chapter, entries, len(headings)) for chapter, entries in chapters.items())
    return (
        f'<section id="ledger" aria-label="ledger">{_controls(chapters, chips, rows)}'
        f'<table class="ledger"><thead><tr>{head}</tr></thead>{bodies}<tbody class="all"></tbody></table>'
        '<p class="none soft" hidden>No claim matches.</p></section>'
    )


def _controls(chapters: Mapping[str, Sequence[LedgerRow]], chips: Sequence[Chip], rows: Sequence[LedgerRow]) -> str:
    total = len(rows)
    buttons = "".join(
        f'<button type="button" class="chip" aria-pressed="false" value="{e(c.kind)}">'
        f"{c.mark} {c.number} {e(c.label or c.kind)}</button>"
        for c in chips
        if c.number
    )
    several = ""
    if len(chapters) > 1:
        options = "".join(f'<option value="{i}">{e(chapter_title(name))}</option>' for i, name in enumerate(chapters))
        several = (
            f'<label>chapter <select id="chapter"><option value="">all</option>{options}</select></label>'
            '<label><input type="checkbox" id="grouped" checked> by chapter</label>'
        )
    natures = dict.fromkeys(row.nature for row in rows if row.nature)
    if len(natures) > 1:
        options = "".join(f'<option value="{e(nature)}">{e(nature)}</option>' for nature in natures)
        several += f'<label>kind <select id="nature"><option value="">all</option>{options}</select></label>'
    return (
        f'<div class="controls" role="search"><span class="chips">{buttons}</span>'
        f'<input type="search" id="find" placeholder="search" aria-label="search the ledger">{several}'
        '<label><input type="checkbox" id="whole"> full text</label>'
        f'<span class="soft" id="found" aria-live="polite">{total} of {total}</span></div>'
    )


def _body(chapter: str, rows: Sequence[LedgerRow], width: int) -> str:
    heading = f'<tr class="chapter"><th colspan="{width}" scope="rowgroup">{e(chapter_title(chapter))}</th></tr>'
    return f'<tbody data-chapter="{e(chapter)}">{heading}{"".join(map(_row, rows))}</tbody>'


def _row(row: LedgerRow) -> str:
    keys = "".join(f' data-k{i}="{escape(str(key))}"' for i, key in enumerate(row.keys))
    cells = "".join(f"<td>{cell}</td>" for cell in row.cells)
    named = f'data-id="{escape(row.id)}" data-words="{e(other_words(row.id))}"'
    return f'<tr {named} data-kind="{e(row.kind)}" data-nature="{e(row.nature)}"{keys}>{cells}</tr>'


def expandable(sentence: str, whole: str) -> str:
    """A sentence that stands by itself, and the whole text, which 'full text' shows instead; nothing is cut."""
    brief, full = explained(e(sentence)), explained(e(whole))
    return f"<span class='told'>{brief}</span><span class='more'>{full}</span>" if whole else brief


def link(claim_id: str) -> str:
    """A link to the claim's article."""
    return f'<a href="#{escape(quote(claim_id))}">{e(claim_id)}</a>'
