"""A matrix of surveys as text, as a page, and in the formats of papers and spreadsheets."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from armillary.results.claim import VERDICTS, Finding
from armillary.results.compare.matrix import NOT_APPLICABLE, Matrix, verdict_of, verdicts
from armillary.results.store import table_csv, write_whole
from armillary.views.figures.marks import COLOURS, DARK, FONT, LIGHT, MARKS
from armillary.views.text.papers.exports import EXPORTS, Format
from armillary.views.text.quoting import html_text, show_text
from armillary.views.text.summary import chapter_title

NONE = "–"
NAME = 8
"""Longer names of columns are written on several lines."""
KEY = "  ".join(f"{MARKS[verdict]} {verdict}" for verdict in VERDICTS) + f"  {NONE} {NOT_APPLICABLE}"
SEVERAL = "several marks: one per training run"


def mark(finding: Finding | None) -> str:
    verdict = verdict_of(finding)
    return " " if finding is None else NONE if verdict is None else MARKS[verdict]


def print_matrix(matrix: Matrix, console: Console) -> None:
    """Chapters, claims and marks; names of columns stand on several lines where they are long."""
    first = max([len(claim.id) for claim in matrix.claims], default=0) + 3
    longest = max(map(len, matrix.columns), default=0)
    wide = max([len(cell) for row in matrix.cells for cell in row] + [min(longest, NAME)]) + 2
    room = max(1, (console.width - first) // wide)
    for start in range(0, len(matrix.columns), room):
        _print_part(matrix, console, range(start, min(start + room, len(matrix.columns))), first, wide)
    console.print(Text(f"\n{KEY}" + (f"\n{SEVERAL}" if _several(matrix) else "")), highlight=False)
    for i, name in enumerate(matrix.columns):
        tally = " ".join(f"{MARKS.get(v, NONE)} {n}" for v, n in matrix.tally(i).items())  # type: ignore[call-overload]
        console.print(Text(f"{show_text(name)}: {tally}"), highlight=False)
    for note in matrix.notes:
        console.print(Text(f"Note: {show_text(note)}"), highlight=False)


def _several(matrix: Matrix) -> bool:
    return any(len(cell) > 1 for row in matrix.cells for cell in row)


def _print_part(matrix: Matrix, console: Console, columns: range, first: int, wide: int) -> None:
    names = [show_text(matrix.columns[i]) for i in columns]
    # Names are written downwards in pieces as wide as a column.
    pieces = [[name[k : k + wide - 1] for k in range(0, len(name), wide - 1)] for name in names]
    for line in range(max(map(len, pieces))):
        shown = [piece[line] if line < len(piece) else "" for piece in pieces]
        console.print(Text(" " * first + "".join(part.ljust(wide) for part in shown)), style="bold", highlight=False)
    chapter = ""
    for claim, row in zip(matrix.claims, matrix.cells, strict=True):
        if claim.chapter != chapter:
            chapter = claim.chapter
            console.print(Text(chapter_title(chapter)), style="bold", highlight=False)
        text = Text(f" {claim.id.ljust(first - 1)}")
        for i in columns:
            for finding in row[i]:
                verdict = verdict_of(finding)
                text.append(mark(finding), style=COLOURS[verdict] if verdict else "dim")
            text.append(" " * (wide - len(row[i])))
        console.print(text, highlight=False)


def matrix_export(matrix: Matrix, kind: Format) -> str:
    """CSV has verdicts in words, the others too: a mark is no text in every font."""
    if kind == "csv":
        return table_csv(matrix.table())
    return EXPORTS[kind](matrix.table(), f"Verdicts by model. {' '.join(matrix.notes)}".strip())


def save_matrix(matrix: Matrix, path: Path) -> Path:
    """One page, or a CSV file, by the ending."""
    content = table_csv(matrix.table()) if path.suffix.lower() == ".csv" else matrix_page(matrix)
    write_whole({path: content})
    return path


_STYLE = f"""
:root {{ --ground: {LIGHT.ground}; --ink: {LIGHT.ink}; --soft: {LIGHT.soft}; --grid: {LIGHT.grid}; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: {DARK.ground}; --ink: {DARK.ink}; --soft: {DARK.soft}; --grid: {DARK.grid}; }} }}
html {{ background: var(--ground); color: var(--ink); font: 15px/1.5 {FONT}; }}
main {{ max-width: 1180px; margin: 0 auto; padding: 24px; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 3px 10px; text-align: left; white-space: nowrap; }}
thead th {{ vertical-align: bottom; border-bottom: 2px solid var(--grid); }}
tbody tr:hover td {{ background: var(--grid); }}
tbody td {{ border-bottom: 1px solid var(--grid); text-align: center; letter-spacing: 2px; }}
tbody th {{ font-weight: normal; position: sticky; left: 0; background: var(--ground); }}
tbody th[colspan] {{ font-weight: bold; padding-top: 16px; }}
p {{ color: var(--soft); }}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def matrix_page(matrix: Matrix) -> str:
    """The matrix as one page without script: a cell's title says the verdict, the number and the headline."""
    head = "".join(f"<th scope='col'>{html_text(name)}</th>" for name in matrix.columns)
    rows, chapter = [], ""
    for claim, row in zip(matrix.claims, matrix.cells, strict=True):
        if claim.chapter != chapter:
            chapter = claim.chapter
            title = html_text(chapter_title(chapter))
            rows.append(f"<tr><th scope='rowgroup' colspan='{len(matrix.columns) + 1}'>{title}</th></tr>")
        cells = "".join(_cell(cell) for cell in row)
        rows.append(f"<tr><th scope='row' title='{html_text(claim.statement)}'>{html_text(claim.id)}</th>{cells}</tr>")
    notes = "".join(f"<p>{html_text(note)}</p>" for note in matrix.notes)
    key = html_text(f"{KEY}{f' · {SEVERAL}' if _several(matrix) else ''}")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Claims by model</title><style>{_STYLE}</style></head><body><main><h1>Claims by model</h1>"
        f"<p>{key}</p><div class='scroll'><table><thead><tr><th scope='col'>claim</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{notes}</main></body></html>\n"
    )


def _cell(cell: tuple[Finding | None, ...]) -> str:
    headlines = "; ".join(dict.fromkeys(finding.headline for finding in cell if finding is not None))
    about = f"{verdicts(cell)}: {headlines}" if headlines else verdicts(cell)
    marks = []
    for finding in cell:
        verdict = verdict_of(finding)
        colour = COLOURS[verdict] if verdict else "var(--soft)"
        marks.append(f"<span style='color:{colour}'>{mark(finding)}</span>")
    return f"<td title='{html_text(about)}' aria-label='{html_text(verdicts(cell))}'>{''.join(marks)}</td>"
