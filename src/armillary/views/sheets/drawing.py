"""Sheets that are drawings, as a picture and as a page; no browser is needed."""

import json

from armillary.results.sheets.sheet import Sheet
from armillary.results.sheets.trajectory import Trajectory
from armillary.results.store import table_csv
from armillary.views.page import SAVE_AS, inert, whole_page

_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent), svg = document.querySelector("svg");
function give(url, ending) {
  const link = document.createElement("a");
  [link.href, link.download] = [url, data.name + "." + ending];
  link.click();
}
const pack = (text, type) => URL.createObjectURL(new Blob([text], {type}));
function paint() {
  const image = new Image(), canvas = document.createElement("canvas"), box = svg.viewBox.baseVal;
  [canvas.width, canvas.height] = [2 * box.width, 2 * box.height];
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    give(canvas.toDataURL("image/png"), "png");
  };
  image.src = "data:image/svg+xml," + encodeURIComponent(svg.outerHTML);
}
for (const button of document.querySelectorAll(".save button")) {
  button.addEventListener("click", () => button.value === "png" ? paint()
    : button.value === "svg" ? give(pack(svg.outerHTML, "image/svg+xml"), "svg")
    : give(pack(data.csv, "text/csv"), "csv"));
}
"""


def drawing_svg(sheet: Sheet, both: bool = True) -> tuple[str, int]:
    """The document and its height; `both`: with styles for the light and the dark theme."""
    if isinstance(sheet.drawing, Trajectory):
        from armillary.views.travel.svg import picture_svg

        return picture_svg(sheet.drawing, both)
    from armillary.views.sheets.schematic import schematic_svg

    assert sheet.drawing is not None
    return schematic_svg(sheet.drawing, sheet.title, sheet.caption, sheet.notes, both)


def drawing_page(sheet: Sheet, below: str) -> str:
    """One self-contained page: the drawing and the rest of the sheet."""
    if isinstance(sheet.drawing, Trajectory):
        from armillary.views.travel.trajectory_page import trajectory_page

        return trajectory_page(sheet.drawing)
    body = f"<div class='scroll'>{drawing_svg(sheet)[0]}</div><div class='save'>{SAVE_AS}</div>{below}"
    data = inert(json.dumps({"name": sheet.name, "csv": table_csv(sheet.table)}))
    return whole_page(
        sheet.title, body, f'<script type="application/json" id="data">{data}</script><script>{_SCRIPT}</script>'
    )
