"""A comparison of two surveys as text, static HTML and files."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from armillary.results.claim import Finding
from armillary.results.compare import OUTCOMES, RULE, Comparison, LossChange, Outcome, Pair, Tally
from armillary.results.compare.matched_rows import claim_table, row_table
from armillary.results.numbers import ABSENT, count, interval_of, number
from armillary.results.statistic import Control
from armillary.results.store import json_text, table_csv, write_whole
from armillary.views.compare.changes import is_quiet, loss_text, overview, shift_text
from armillary.views.figures.marks import COLOURS, MARKS
from armillary.views.report.notebook import framed_html, mark_html
from armillary.views.report.strip import strip_html
from armillary.views.text.quoting import html_text, show_text
from armillary.views.text.summary import chapter_title, model_line, text_line, verdict_text
from armillary.views.text.survey import as_text, paragraphs, print_lines, wrapped

# Outcomes differ in shape, like verdicts.
SIGNS: dict[Outcome, str] = {
    "differs": "≠",
    "not distinguished": "≈",
    "unequal": "△",
    "the same": "=",
    "missing": ABSENT,
}


_KEY = (
    "≠ the 95 % intervals do not overlap (nor do those of 0.6 % of equal numbers, of up to 10 % in dependent surveys); "
    "≈ they overlap; △ unequal, without intervals; = the same to six digits"
)
_ROUNDING = ", or different by rounding alone"


def save_all(comparison: Comparison, folder: Path) -> Path:
    """compare.html, compare.json, compare.csv (one row per claim) and rows.csv (one row per number) in a folder."""
    from armillary.views.compare.comparison_page import comparison_page

    files = {
        "rows.csv": table_csv(row_table(comparison.pairs)),
        "compare.csv": comparison_csv(comparison),
        "compare.json": comparison_json(comparison),
        "compare.html": comparison_page(comparison),
    }
    if comparison.similarity is not None:
        files["similarity.csv"] = table_csv(comparison.similarity.table())
    write_whole({Path(folder) / name: content for name, content in files.items()})
    return folder


def comparison_csv(comparison: Comparison) -> str:
    """One row per claim."""
    return table_csv(claim_table(comparison.pairs))


def comparison_json(comparison: Comparison) -> str:
    """Everything, as deterministic JSON."""
    sides = [
        {key: getattr(survey, key).to_dict() for key in ("model", "text", "provenance")}
        for survey in (comparison.a, comparison.b)
    ]
    record: dict[str, Any] = {"names": comparison.names, "rule": RULE, "notes": comparison.notes}
    record |= {"a": sides[0], "b": sides[1], "loss": _loss_record(comparison.loss)}
    record["changes"] = [
        {"claim": shift.pair.id, "effect": shift.effect, "words": shift_text(shift)} for shift in comparison.shifts
    ]
    if comparison.similarity is not None:
        table = comparison.similarity.table()
        record["similarity"] = {"words": comparison.similarity.words, "columns": table.names, "rows": table.rows}
    claims = []
    for pair, row in zip(comparison.pairs, claim_table(comparison.pairs).records(), strict=True):
        entry: dict[str, Any] = {**row, "notes": pair.notes}
        entry["columns"] = [vars(tally) | {"by_chance_at_most": tally.by_chance_at_most} for tally in pair.tallies]
        entry["numbers"] = {"columns": pair.table.names, "rows": pair.table.rows}
        entry["words"] = {"columns": pair.changed.names, "rows": pair.changed.rows}
        claims.append(entry)
    return json_text({**record, "claims": claims})


def _loss_record(loss: LossChange | None) -> dict[str, Any] | None:
    if loss is None:
        return None
    numbers = {"a": loss.a, "b": loss.b, "difference": loss.difference}
    return {"unit": loss.unit, "paired": loss.paired, "words": loss_text(loss), **numbers}


def comparison_text(comparison: Comparison, width: int | None = None, full: bool = False) -> str:
    return as_text(lambda console: print_comparison(comparison, console, full=full), width)


def print_comparison(comparison: Comparison, console: Console, folder: Path | None = None, full: bool = False) -> None:
    """The loss, the largest changes, then what changed by chapter (with `full` every claim), the notes and the key."""
    width = min(console.width, 120)
    lines = paragraphs([show_text(f"Armillary · {title(comparison)}")], width, "bold")
    sides = (("A", comparison.a), ("B", comparison.b))
    lines += paragraphs((f"{side}  {model_line(survey)} · {text_line(survey)}" for side, survey in sides), width)
    for heading, items in overview(comparison) if comparison.pairs else []:
        lines += [Text(), Text(heading, "bold")]
        for text in items:
            lines += wrapped(Text(show_text(text)), width, 1)
    chapter = ""
    room = max((len(pair.id) for pair in comparison), default=0)
    quiet = [] if full else [pair.id for pair in comparison if is_quiet(pair)]
    for pair in comparison:
        if pair.id in quiet:
            continue
        if pair.claim.chapter != chapter:
            chapter = pair.claim.chapter
            lines += [Text(), Text(chapter_title(chapter), "bold")]
        lines += [_line(pair, room, width), *_few_lines(show_text(reading(pair)), width)]
    foot = [f"No difference found in {', '.join(quiet)}; --full prints them."] if quiet else []
    foot += [summary(comparison), *(f"Note: {note}." for note in comparison.notes), _key(comparison)]
    foot += [f"Files: {folder}"] if folder else []
    lines += [Text(), *paragraphs(map(show_text, foot), width)]
    print_lines(lines, console)


def _few_lines(text: str, width: int, most: int = 4) -> list[Text]:
    """As many of the clauses as fit into a few lines; nothing ends within a clause."""
    clauses = text.rstrip(".").split("; ")
    for left in range(len(clauses)):
        more = f"; {left} more in the saved tables." if left else "."
        lines = wrapped(Text("; ".join(clauses[: len(clauses) - left]) + more), width, 3)
        if len(lines) <= most:
            break
    return lines


def _line(pair: Pair, room: int, width: int) -> Text:
    line = Text(f" {SIGNS[pair.outcome]} ").append(show_text(pair.id).ljust(room), "bold").append("  ")
    for index, finding in enumerate((pair.a, pair.b)):
        line.append(" → " if index else "").append(MARKS[finding.verdict], COLOURS[finding.verdict])
    text = numbers(pair)
    fits = line.cell_len + 2 + len(text) <= width
    return line.append(f"  {text if fits else step(pair)}", "bold")


def title(comparison: Comparison) -> str:
    return f"{comparison.names[1]} against {comparison.names[0]}"


def summary(comparison: Comparison) -> str:
    """'Of 8 claims 2 changed their verdict; 3 numbers differ, 4 are not distinguished'."""
    if not comparison.pairs:
        return "No claim is in both surveys; measure the same ones on both"
    moved = sum(pair.is_verdict_changed for pair in comparison)
    parts = [f"{n} {plural(outcome, n)}" for outcome, n in outcomes(comparison.pairs).items() if n]
    claims = f"{len(comparison)} claim{'s' if len(comparison) > 1 else ''}"
    return f"Of {claims} {moved or 'none'} changed the verdict; numbers: {', '.join(parts)}"


def numbers(pair: Pair) -> str:
    """Both numbers with their intervals, and the difference with its own."""
    a, b = (interval_of(f.statistic) for f in (pair.a, pair.b))
    if pair.change is None:
        return f"{a} and {b}: not the same statistic"
    return f"{b} in both" if _shown_alike(pair) else f"{a} → {b}"


def _key(comparison: Comparison) -> str:
    rounding = any(pair.change is not None and pair.change.is_rounding for pair in comparison.pairs)
    return f"{_KEY}{_ROUNDING if rounding else ''}."


def _shown_alike(pair: Pair) -> bool:
    """Is it the same number, and printed as the same? What differs by rounding may be printed as two."""
    return pair.outcome == "the same" and len({number(f.statistic.value) for f in (pair.a, pair.b)}) == 1


def difference(pair: Pair) -> str:
    """'differs by −0.103 [−0.110, −0.095]'."""
    if pair.change is None:
        return "the numbers are not compared"
    gap = pair.change.difference
    gap_text = interval_of(gap)
    match pair.outcome:
        case "differs":
            return f"differs by {gap_text}"
        case "not distinguished":
            return f"not distinguished: the difference is {gap_text}"
        case "unequal":
            return f"unequal by {gap_text}, without an interval"
        case "the same":
            return "different by rounding alone" if pair.change.is_rounding else "the same number"
        case _:
            return "one number is missing"


def headline(pair: Pair) -> str:
    """The figure's title: how the number changed, in a sentence."""
    verdicts = f"; {pair.a.verdict} → {pair.b.verdict}" if pair.is_verdict_changed else ""
    if pair.change is None:
        return f"{pair.id}: the two surveys measured different things{verdicts}"
    change = "" if _shown_alike(pair) else f", {difference(pair)}"
    return f"{pair.b.statistic.name}: {step(pair)}{change}{verdicts}"


def step(pair: Pair) -> str:
    """'0.945 → 0.842', or '0.945 in both'."""
    if _shown_alike(pair):
        return f"{number(pair.b.statistic.value)} in both"
    return " → ".join(number(finding.statistic.value) for finding in (pair.a, pair.b))


def reading(pair: Pair) -> str:
    """What differs: the verdict, the number, the rows, and what could not be compared."""
    return "; ".join([*verdict_change(pair), number_change(pair), *row_changes(pair), *pair.notes]) + "."


def verdict_change(pair: Pair) -> list[str]:
    """The verdicts, where they changed."""
    if not pair.is_verdict_changed:
        return []
    changed = " → ".join(map(verdict_text, (pair.a, pair.b)))
    if pair.outcome in ("not distinguished", "the same"):
        changed += ", though the number did not: the rule uses more than this number, or it is near a limit"
    return [changed]


def number_change(pair: Pair) -> str:
    return f"{pair.b.statistic.name}: {difference(pair)}"


def row_changes(pair: Pair) -> list[str]:
    """The rows: how many differ in each column that has intervals."""
    parts = [tally_text(pair, tally) for tally in pair.tallies if tally.with_interval][:3]
    if pair.changed.rows:
        parts.append(f"{count(len(pair.changed.rows))} words or yes/no values changed")
    return parts


def tally_text(pair: Pair, tally: Tally) -> str:
    """'r2: 54 of 56 heads differ, 8 up and 46 down (by chance 0.3, at most 5.6)'."""
    table = pair.b.more_tables.get(tally.table, pair.b.table)
    kind = table.columns[0].name if table.columns else "row"
    of = f"{count(tally.differ)} of {count(tally.with_interval)} {_several(kind)}"
    name = f"{tally.table}: {tally.column}" if tally.table else tally.column
    if not tally.differ:
        return f"{name}: {of} differ"
    chance = f"by chance {number(tally.by_chance, 2)}, at most {number(tally.by_chance_at_most, 2)}"
    return f"{name}: {of} differ, {tally.rose} up and {tally.differ - tally.rose} down ({chance})"


def _several(kind: str) -> str:
    """
    >>> [_several(kind) for kind in ("head", "layers", "quantity", "matrix")]
    ['heads', 'layers', 'quantities', 'matrices']
    """
    if kind.endswith("s"):
        return kind
    for end, more in (("ix", "ices"), ("y", "ies")):
        if kind.endswith(end):
            return kind.removesuffix(end) + more
    return f"{kind}s"


def against(pair: Pair, name: str) -> Finding:
    """B's finding with A's number as its control, for a bar with one scale."""
    from dataclasses import replace

    number = pair.a.statistic
    controls = (Control(name, number.value, number.low, number.high),) if pair.change is not None else ()
    return replace(pair.b, controls=controls)


def verdicts_html(pair: Pair) -> str:
    """Both marks if they differ, the common one otherwise."""
    if not pair.is_verdict_changed:
        return f"{mark_html(pair.b.verdict)} {pair.b.verdict}"
    return f"{mark_html(pair.a.verdict)}&nbsp;→&nbsp;{mark_html(pair.b.verdict)}<br>now {pair.b.verdict}"


def overview_html(comparison: Comparison) -> str:
    """The loss, the largest changes and the likeness, as HTML."""
    parts = []
    for heading, items in overview(comparison) if comparison.pairs else []:
        lines = "".join(
            f"<li>{html_text(text.partition('. ')[2] or text)}</li>" for text in items if text[:1].isdigit()
        )
        prose = "".join(f"<p class='prose'>{html_text(text)}</p>" for text in items if not text[:1].isdigit())
        parts.append(f"<h2>{html_text(heading)}</h2>" + (f"<ol>{lines}</ol>" if lines else "") + prose)
    return "".join(parts)


def comparison_html(comparison: Comparison) -> str:
    """The comparison as static HTML for a notebook."""
    head = "".join(f"<th>{name}</th>" for name in ("verdict", "claim", "A → B", "◇ A, mark B", "what differs"))
    rows = "".join(
        f"<tr><td>{verdicts_html(pair)}</td><td><b>{html_text(pair.id)}</b><br>"
        f"<span class='soft'>{html_text(pair.claim.statement)}</span></td>"
        f"<td><b>{numbers(pair)}</b><br>{SIGNS[pair.outcome]} {pair.outcome}</td>"
        f"<td>{strip_html(against(pair, comparison.names[0]), keys=False)}</td><td>{html_text(reading(pair))}</td></tr>"
        for pair in comparison
    )
    foot = "<br>".join(map(html_text, [summary(comparison) + ".", *comparison.notes, RULE]))
    return framed_html(
        f"<h1>{html_text(title(comparison))}</h1>{overview_html(comparison)}"
        f"<div class='wide'><table class='ledger'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"<p class='soft'>{foot}</p>"
    )


def outcomes(pairs: Sequence[Pair]) -> dict[Outcome, int]:
    """How often each outcome occurred."""
    seen = Counter(pair.outcome for pair in pairs)
    return {outcome: seen[outcome] for outcome in OUTCOMES}


def plural(outcome: Outcome, n: int) -> str:
    return "differ" if outcome == "differs" and n != 1 else outcome
