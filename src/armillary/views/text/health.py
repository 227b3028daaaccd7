"""A model's health on one screen."""

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from armillary.results.sheets.health import Health, HealthLine
from armillary.views.text.quoting import show_text
from armillary.views.text.survey import as_text, hanging, paragraphs, print_lines

# Whose values are shares that a reader knows by other names: bits per byte, nats.
ALWAYS = ("loss.text", "loss.copy")
STYLES = {"ok": "green", "look": "yellow", "bad": "bold red"}


def health_text(health: Health, width: int | None = None) -> str:
    return as_text(lambda console: print_health(health, console), width)


def print_health(health: Health, console: Console) -> None:
    """The title, one row per check, and under each row that is not ok where it is and what one can do."""
    width = min(console.width, 140)
    lines = paragraphs([show_text(health.title)], width, "bold") + paragraphs([show_text(health.text)], width)
    rows = [(line, _cells(line, bool(health.base))) for line in health.lines]
    widths = [max(cell_len(cells[i]) for _, cells in rows) for i in range(len(rows[0][1]))]
    heads = ["", "", "value", *(["base"] if health.base else []), "usual"]
    lines += [Text(), Text(_row(heads, [5, *widths[1:]]), "dim")]
    for line, cells in rows:
        text = Text(_row(cells, [5, *widths[1:]]))
        text.stylize(STYLES[line.status], 0, 5)
        lines.append(_cut(text, width))
        more = (line.where, line.advice) if line.status != "ok" else (line.where,) if line.id in ALWAYS else ()
        lines += [part for text in more if text for part in hanging("", show_text(text), width, 7)]
    foot = [f"usual: the range over {health.usual_of}."] if health.usual_of else []
    foot += [f"base: {show_text(health.base)}, on the same text."] if health.base else []
    print_lines([*lines, Text(), *paragraphs(foot, width)], console)


def _cells(line: HealthLine, compared: bool) -> list[str]:
    return [line.status, line.name, line.shown, *([line.base] if compared else []), line.usual]


def _row(cells: list[str], widths: list[int]) -> str:
    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text
