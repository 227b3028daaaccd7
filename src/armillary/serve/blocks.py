"""What a room shows, as data for the page's script: figures, globes, HTML of the views, choices.

Every string of HTML comes from a view, which escapes what a model or a text contains. Titles are plain text.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from armillary.results.sheets.sheet import Sheet
    from armillary.results.sheets.trajectory import Trajectory

Block = dict[str, Any]


def figure_block(figure: "go.Figure", name: str, title: str, caption: str, csv: str, **more: Any) -> Block:
    """A figure with its heading and its numbers; `pick` names the fields that a click on a map sets."""
    from armillary.views.report.payload import bare

    record = {"kind": "figure", "name": name, "title": title, "caption": caption, "csv": csv}
    # Frames are drawn by the page, with a slider that a keyboard reaches.
    return {**record, "figure": bare(figure), **more}


def sheet_blocks(sheet: "Sheet", narrow: bool = False, **more: Any) -> list[Block]:
    """A sheet's figure, then its notes and tables."""
    from dataclasses import replace

    from armillary.views.page import quantities_csv
    from armillary.views.report.payload import thinned
    from armillary.views.sheets.sheet import below_html, sheet_figure

    blocks = []
    if sheet.quantities:
        drawn = replace(sheet, quantities=tuple(map(thinned, sheet.quantities)))
        figure, csv = sheet_figure(drawn, narrow), quantities_csv(sheet.quantities)
        blocks.append(figure_block(figure, sheet.name, sheet.title, sheet.caption, csv, **more))
        return [*blocks, html_block(below_html(sheet))]
    return [html_block(below_html(sheet), sheet.title, sheet.caption)]


def html_block(html: str, title: str = "", caption: str = "") -> Block:
    return {"kind": "html", "title": title, "caption": caption, "html": html}


def travel_block(trajectory: "Trajectory", view: Any = None) -> Block:
    from armillary.views.travel.trajectory_page import trajectory_data, trajectory_html

    return {"kind": "travel", "html": trajectory_html(trajectory), "data": trajectory_data(trajectory, view)}


def choices_block(field: str, choices: Sequence[tuple[str, str]]) -> Block:
    """What a field can be, where only the model knows."""
    return {"kind": "choices", "field": field, "choices": [list(choice) for choice in choices]}


def encoded(blocks: Sequence[Block]) -> bytes:
    """As JSON; half a character has no UTF-8 form, and is escaped."""
    return json.dumps({"blocks": list(blocks)}, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
