"""Self-contained HTML pages: they open offline, in a light or a dark theme."""

import csv
import io
import json
from collections.abc import Sequence
from html import escape
from itertools import product

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from armillary.results.claim import Finding
from armillary.results.disk.cells import as_text, table_csv
from armillary.results.quantity import Quantity
from armillary.views.figures.marks import DARK, LIGHT
from armillary.views.figures.theme import both_themes
from armillary.views.report.notebook import CSS, fields_html, headline_html, tables_html
from armillary.views.text.quoting import show_text

# Nothing may be fetched, whatever a token contains: the page has everything it needs.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'{more}; style-src 'unsafe-inline'; img-src data: blob:"

# Pages of one folder share this file, which has five megabytes.
LIBRARY = "plotly.min.js"
Forms = Sequence[go.Figure]
"""A figure for a wide screen, then the same for a narrow one."""

_KINDS = ("png", "svg", "csv")
SAVE_AS = "save as " + "".join(f'<button type="button" value="{kind}">{kind}</button>' for kind in _KINDS)

_STYLE = f"""
html {{ background: {LIGHT.ground}; color-scheme: light dark; }}
@media screen and (prefers-color-scheme: dark) {{ html {{ background: {DARK.ground}; }} }}
body {{ margin: 0; }}
.page {{ max-width: 1180px; margin: 0 auto; }}
.scroll {{ overflow-x: auto; }}
#figure {{ min-width: 620px; }}
@media (max-width: 639.9px) {{ #figure.reflows {{ min-width: 0; }} }}
#figure text {{ font-variant-numeric: tabular-nums; }}
.save {{ display: flex; gap: 8px; align-items: center; color: var(--soft); }}
.save button {{ font: inherit; color: var(--ink); background: none; border: 1px solid var(--grid);
  border-radius: 6px; padding: 3px 12px; cursor: pointer; }}
.save button:hover, .save button:focus-visible {{ border-color: var(--accent); outline: none; }}
"""

# The heading is HTML, so that it wraps with the window; the saved picture gets it back as plotly's title.
_SCRIPT = """
const read = id => JSON.parse(document.getElementById(id).textContent);
const data = read("data"), night = matchMedia("(prefers-color-scheme: dark)");
const small = matchMedia("(max-width: 639.9px)");
const chosen = form => read(form + (night.matches ? "dark" : "light"));
function draw() {
  const {data: traces, layout} = chosen(small.matches && data.reflows ? "narrow-" : ""), top = 10;
  layout.height -= layout.margin.t - top;
  layout.margin.t = top;
  layout.title = {text: ""};
  layout.autosize = true;
  Plotly.react("figure", traces, layout, {responsive: true, displayModeBar: false, typesetMath: false});
}
function saveText(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function savePicture(format) {
  const figure = chosen("");
  const size = {width: 1100, height: figure.layout.height, scale: 2};
  Plotly.downloadImage(figure, {format, filename: data.name, ...size});
}
for (const button of document.querySelectorAll(".save button")) {
  button.addEventListener("click", () => button.value === "csv"
    ? saveText(data.csv, data.name + ".csv", "text/csv") : savePicture(button.value));
}
night.addEventListener("change", draw);
small.addEventListener("change", draw);
draw();
"""


def figure_html(forms: Forms, finding: Finding, shared: bool = False) -> str:
    """One self-contained page: figure, reading, rule, table, and buttons to save png, svg and csv."""
    below = f"{fields_html(finding)}{tables_html(finding)}"
    return drawn_page(finding.headline, forms, finding.id, finding_csv(finding), headline_html(finding), below, shared)


def drawn_page(
    title: str, forms: Forms, name: str, table: str, above: str = "", below: str = "", shared: bool = False
) -> str:
    """A page around a figure, with buttons to save it and its numbers as `name`.png, .svg and .csv.

    `forms` is the figure, and its form for a narrow screen if it has one. With `shared`, the page loads the drawing
    library from the file `LIBRARY` beside it.
    """
    data = {"name": name, "csv": table, "reflows": len(forms) > 1}
    embedded = {"data": json.dumps(data)}
    for prefix, figure in zip(("", "narrow-"), forms, strict=False):
        embedded |= dict(zip((f"{prefix}light", f"{prefix}dark"), both_themes(figure), strict=True))
    blocks = [f'<script type="application/json" id="{name}">{inert(text)}</script>' for name, text in embedded.items()]
    library = f"<script src='{LIBRARY}'></script>" if shared else f"<script>{library_script()}</script>"
    hint = "; the table below has its numbers" if below else ""
    body = (
        f"{above}<div class='scroll'><div id='figure'{' class=reflows' if len(forms) > 1 else ''}></div></div>"
        f"<noscript><p>The figure needs JavaScript{hint}.</p></noscript>"
        f"<div class='save'>{SAVE_AS}</div>{below}"
    )
    return whole_page(title, body, f"{''.join(blocks)}{library}<script>{_SCRIPT}</script>", shared)


def library_script() -> str:
    """plotly.js, safe inside a script element."""
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def page_style() -> str:
    """The style of every page, without those of its views."""
    return CSS + _STYLE


def whole_page(title: str, body: str, scripts: str = "", shared: bool = False) -> str:
    """A document around a view; with `shared`, it may load files from its own folder."""
    # 'self' does not cover a page opened from disk, whose folder has the scheme file.
    policy = _POLICY.format(more=" 'self' file:" if shared else "")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(show_text(title))}</title><style>{page_style()}</style></head>"
        f'<body><main class="page armillary">{body}</main>{scripts}</body></html>'
    )


def finding_csv(finding: Finding) -> str:
    """The data of the figure as CSV: its quantities, or the finding's table if it has none."""
    return quantities_csv(finding.quantities) if finding.quantities else table_csv(finding.table)


def quantities_csv(quantities: Sequence[Quantity]) -> str:
    """One row per point: the quantity, its coordinates, value, interval, controls and theory."""
    rows = []
    for quantity in quantities:
        named = {"value": quantity.values, "low": quantity.low, "high": quantity.high}
        named |= {f"control: {name}": array for name, array in quantity.controls.items()}
        named |= {f"theory: {name}": array for name, array in quantity.theory.items()}
        labels = [quantity.coords[axis] for axis in quantity.axes]
        for place in product(*(range(len(label)) for label in labels)):
            row = {"quantity": as_text(quantity.name), "unit": as_text(quantity.unit)}
            row |= {axis: str(as_text(label[i])) for axis, label, i in zip(quantity.axes, labels, place, strict=True)}
            row |= {name: repr(float(array[place])) for name, array in named.items() if array is not None}
            rows.append(row)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def inert(text: str) -> str:
    """JSON that cannot end its script element."""
    return text.replace("<", "\\u003c")
