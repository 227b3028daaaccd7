"""A model's health as a page: the checks first, then curves by depth and maps of heads."""

from html import escape

from armillary.results.sheets.health import Health, HealthLine
from armillary.views.text.quoting import html_text, show_text

_STYLE = """<style>
.armillary .checks td { vertical-align: top; max-width: none; white-space: normal; padding-right: 10px; }
.armillary .checks td:nth-child(2) { overflow-wrap: anywhere; }
.checks .ok { color: #2e7d4f; } .checks .look { color: #b26a00; }
.checks .bad { color: #b3261e; font-weight: 700; } .checks .soft { display: block; }
@media screen and (prefers-color-scheme: dark) { .checks .ok { color: #7bc79a; } .checks .look { color: #f0b45a; }
.checks .bad { color: #ff8a80; } }
</style>"""


def health_page(health: Health) -> str:
    """One self-contained page."""
    from armillary.views.page import drawn_page, quantities_csv, whole_page
    from armillary.views.sheets.sheet import sheet_figure

    above = f"{_STYLE}<h1>{html_text(show_text(health.title))}</h1><p class='soft'>{html_text(health.text)}</p>"
    above += _table(health)
    if not health.quantities:
        return whole_page(health.title, above)
    forms = [sheet_figure(health.sheet(), narrow) for narrow in (False, True)]
    return drawn_page(health.title, forms, "health", quantities_csv(health.quantities), above)


def _table(health: Health) -> str:
    names = ["", "check", "value", *(["base"] if health.base else []), "usual"]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(_row(line, bool(health.base)) for line in health.lines)
    usual = f"<p class='soft'>Usual: the range over {escape(health.usual_of)}.</p>" if health.usual_of else ""
    base = f"<p class='soft'>Base: {html_text(health.base)}, on the same text.</p>" if health.base else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div class='wide checks'>{table}</div>{usual}{base}"


def _row(line: HealthLine, compared: bool) -> str:
    more = "".join(f"<span class='soft'>{html_text(text)}</span>" for text in (line.where, line.advice) if text)
    cells = [
        f"<span class='{line.status}'>{line.status}</span>" if line.applies else "–",
        f"{html_text(line.name)}{more}",
        html_text(line.shown),
    ]
    cells += [html_text(line.base)] if compared else []
    cells.append(html_text(line.usual))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
