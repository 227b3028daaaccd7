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
    rows = [_cells(line, bool(health.base)) for line in health.lines]
    heads = ["", "", "value", *(["base"] if health.base else []), "usual"]
    widths = [5, *(max(cell_len(row[i]) for row in [heads, *rows]) for i in range(1, len(heads)))]
    # Columns that do not fit stand below, so that nothing is cut.
    shown = len(heads) if sum(widths) + 2 * len(widths) - 2 <= width else 3
    lines += [Text(), Text(_row(heads[:shown], widths), "dim")]
    for line, cells in zip(health.lines, rows, strict=True):
        text = Text(_row(cells[:shown], widths))
        text.stylize(STYLES[line.status], 0, 5)
        below = [", ".join(f"{head} {cell}" for head, cell in zip(heads[shown:], cells[shown:], strict=True) if cell)]
        below += (line.where, line.advice) if line.status != "ok" else (line.where,) if line.id in ALWAYS else ()
        lines += [text, *(part for more in below if more for part in hanging("", show_text(more), width, 7))]
    foot = [f"usual: the range over {health.usual_of}."] if health.usual_of else []
    foot += [f"base: {show_text(health.base)}, on the same text."] if health.base else []
    foot += ["–: does not apply to this model."] if any(not line.applies for line in health.lines) else []
    print_lines([*lines, Text(), *paragraphs(foot, width)], console)


def _cells(line: HealthLine, compared: bool) -> list[str]:
    """Beside a base, ranges are written shorter, and units once."""
    if not compared:
        return [line.status if line.applies else "–", line.name, line.shown if line.applies else "–", line.usual]
    value, base = (show if show != "does not apply" else "–" for show in (line.shown, line.base))
    base = base.split(" ")[0] if base.split(" ")[1:] == value.split(" ")[1:] else base
    return [line.status if line.applies else "–", line.name, value, base, line.usual.replace(" to ", "–")]


def _row(cells: list[str], widths: list[int]) -> str:
    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join(padded).rstrip()
