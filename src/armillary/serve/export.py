"""A room as one HTML file that works from disk: everything it shows, with the same scripts as the page."""

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from armillary.errors import ArmillaryError
from armillary.serve.room import Room, RoomPart

if TYPE_CHECKING:
    from armillary.serve.app import Server

_START = """
const record = JSON.parse(document.getElementById("room-data").textContent);
shared = record.common;
for (const [i, part] of record.parts.entries()) render(document.getElementById("part-" + i), part.blocks);
const markAll = () => { for (const entry of figures) markChosen(entry, record.values); };
markAll();
whenReshaped(() => { markAll(); for (const entry of figures) { entry.size?.(); entry.draw(); } });
"""


async def exported(server: "Server", room: Room, given: Any) -> str:
    """Every part of a room as it is now; a part that cannot be shown says why."""
    if not isinstance(given, dict):
        raise ArmillaryError("`fields` must be an object.")
    parts = []
    for part in room.parts:
        missing = _missing(room, part, given)
        if missing is not None:
            parts += missing
            continue
        wide, narrow = [await _blocks(server, room, part, {**given, "narrow": form}) for form in (False, True)]
        for block, thin in zip(wide, narrow, strict=False):
            if block["kind"] == thin["kind"] == "figure":
                # Both forms of every figure: the file is read on a phone, too, where no server draws it again.
                block["narrow"] = {**thin["figure"], "whole": True}
        parts.append({"title": part.title, "blocks": wide})
    if not parts:
        raise ArmillaryError("this room shows nothing yet, so there is nothing to save.")
    return page(room, given, parts)


def _missing(room: Room, part: RoomPart, given: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What stands for a part without the fields that it needs: nothing, or that a field was left blank."""
    known = {field.name: field for field in room.fields}
    blank = [name for name in part.needs if not str(given.get(name) or "").strip()]
    if not blank:
        return None
    if any(name not in known or known[name].default == "" for name in blank):
        return []
    notice = f"‘{known[blank[0]].label}’ is blank, so there is nothing to show."
    return [{"title": part.title, "blocks": [{"kind": "html", "title": notice, "caption": "", "html": ""}]}]


async def _blocks(server: "Server", room: Room, part: RoomPart, given: Any) -> list[dict[str, Any]]:
    """What a part shows, or the sentence in which it is refused."""
    blocks: list[dict[str, Any]] = []
    async for kind, *rest in server.events(room, part, given):
        if kind == "result":
            blocks = json.loads(rest[0])["blocks"]
        elif kind == "refused":
            blocks = [{"kind": "html", "title": rest[0], "caption": "", "html": ""}]
    return blocks


def page(room: Room, given: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    from armillary.views.page import inert, library_script, whole_page
    from armillary.views.report.report import masthead, themes
    from armillary.views.text.quoting import html_text

    package = files("armillary")
    styles = [package / "views" / "report" / "report.css", package / "views" / "travel" / "travel.css"]
    styles += [package / "serve" / "static" / "explore.css"]
    scripts = [package / "views" / "report" / "figures.js", package / "views" / "report" / "tables.js"]
    scripts += [package / "views" / "travel" / "travel.js", package / "serve" / "static" / "render.js"]
    known = {field.name: field for field in room.fields}
    asked = [
        f"{known[name].label}: {value}"
        for name, value in given.items()
        if name in known and value != "" and value is not False
    ]
    # Rooms of stored results read no model, whichever is chosen.
    read = {name for part in room.parts if part.by != "library" for name in (part.model, *part.needs)}
    lines = [" and ".join(str(given[name]) for name in ("model", "second") if name in read and given.get(name))]
    lines.append(" · ".join(asked))
    sections = "".join(
        f"<section class='part'><h2>{html_text(part['title'])}</h2><div class='shown' id='part-{i}'></div></section>"
        for i, part in enumerate(parts)
    )
    style = "".join(path.read_text("utf-8") for path in styles)
    body = f"<style>{style}</style>{masthead(room.title, lines)}{sections}"
    values = {name: given[name] for name in known if name in given}
    data = inert(json.dumps({"common": themes(), "parts": parts, "values": values}, separators=(",", ":")))
    script = "".join(path.read_text("utf-8") for path in scripts)
    return whole_page(
        f"Armillary: {room.title}",
        body,
        f'<script type="application/json" id="room-data">{data}</script>'
        f"<script>{library_script()}</script><script>{script}{_START}</script>",
    )
