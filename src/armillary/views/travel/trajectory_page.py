"""A trajectory as one self-contained interactive page, and as static HTML for a notebook."""

import json
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.results.sheets.trajectory import Reading, Trajectory
from armillary.results.store import table_csv
from armillary.results.table import Table
from armillary.views.page import SAVE_AS, inert, whole_page
from armillary.views.report.notebook import framed_html, table_html
from armillary.views.text.quoting import show_token
from armillary.views.travel import angle_panel, globe
from armillary.views.travel.captions import caption, legend, marks, notes, plain, score_lines, summary, title
from armillary.views.travel.colours import INKS, by_layer
from armillary.views.travel.scene import corners, sides, view
from armillary.views.travel.svg import framed

_PANEL = {name.lower(): getattr(angle_panel, name) for name in ("LEFT", "RIGHT", "TOP", "BOTTOM", "WIDTH", "HEIGHT")}
# Above a longer sentence's globe only the drawn words are listed.
_LISTED = 400


def trajectory_page(trajectory: Trajectory) -> str:
    """One self-contained page: the sentence, the globe, the angles, what each state reads as, and the table."""
    here = files("armillary.views.travel")
    style, script = ((here / name).read_text("utf-8") for name in ("travel.css", "travel.js"))
    payload = inert(json.dumps(trajectory_data(trajectory), ensure_ascii=True, separators=(",", ":")))
    scripts = f'<script type="application/json" id="trajectory">{payload}</script><script>{script}{_START}</script>'
    return whole_page(title(trajectory), f"<style>{style}</style>{trajectory_html(trajectory)}", scripts)


_START = """
const globe = travel(document.querySelector(".travel"),
  JSON.parse(document.getElementById("trajectory").textContent));
"""


def trajectory_html(trajectory: Trajectory) -> str:
    """The elements of a page; the script travel.js moves them with what `trajectory_data` gives."""
    return f"<div class='travel'>{_above(trajectory)}{_stage(trajectory)}{_below(trajectory)}</div>"


def notebook_html(trajectory: Trajectory) -> str:
    """The trajectory for a notebook, without scripts."""
    drawn = framed(globe.globe_svg(trajectory), globe.WIDTH, globe.HEIGHT, title(trajectory))
    panel = framed(angle_panel.panel_svg(trajectory), angle_panel.WIDTH, angle_panel.HEIGHT, _panel_title(trajectory))
    pictures = f"<div style='display:flex;flex-wrap:wrap;gap:24px;align-items:start'>{drawn}{panel}</div>"
    return framed_html(f"{_heading(trajectory)}{pictures}{_notes(trajectory)}{_table(trajectory)}")


def _heading(trajectory: Trajectory) -> str:
    return f"<h1>{escape(title(trajectory))}</h1><p class='soft'>{escape(caption(trajectory))}</p>"


def _above(trajectory: Trajectory) -> str:
    """The title, and the sentence with a button for each drawn word."""
    drawn = set(trajectory.drawn)
    words = []
    # Tokens contain their leading space, or (BERT's) a mark where there is none.
    spaced = any(word.startswith(" ") for word in trajectory.words)
    for t, word in enumerate(trajectory.words):
        apart = " apart" if (word.startswith(" ") if spaced else not word.startswith("##")) else ""
        if t in drawn:
            words.append(
                f"<button class='{apart}' type='button' aria-pressed='false'>{escape(plain(word, 24))}</button>"
            )
        elif len(trajectory.words) <= _LISTED:
            words.append(f"<span class='still{apart}'>{escape(plain(word, 24))}</span>")
    aria = "role='group' aria-label='The sentence; choose a word to follow it'"
    return f"{_heading(trajectory)}<div class='sentence living' {aria}>{''.join(words)}</div>"


def _stage(trajectory: Trajectory) -> str:
    drawn = framed(globe.globe_svg(trajectory), globe.WIDTH, globe.HEIGHT, title(trajectory))
    first, *rest = map(escape, score_lines(trajectory))
    key = "".join(f"<div>{escape(meaning)} <i>{mark}</i></div>" for mark, meaning in marks(trajectory))
    about = "The globe; arrow keys left and right step through the layers, up and down choose a word, shift rotates"
    last = len(trajectory.states) - 1
    sphere = (
        f"<figure class='sphere'><div class='paper'>{drawn}</div><div class='living'>"
        f"<canvas tabindex='0' role='img' aria-label='{about}, space plays'></canvas><div class='tip' hidden></div>"
        f"<div class='scores'><div><b>{first}</b><br>{'<br>'.join(rest)}</div><div class='marks'>{key}</div></div>"
        "<div class='layers'><button type='button'>▶ play</button>"
        f"<input type='range' min='0' max='{last}' step='1' value='{last}' aria-label='{escape(trajectory.along)}'>"
        "<output></output></div>"
        "<p class='shortcuts'><kbd>←</kbd> <kbd>→</kbd> layers · <kbd>space</kbd> plays · <kbd>↑</kbd> <kbd>↓</kbd> "
        "one word · <kbd>esc</kbd> all words · drag, or <kbd>shift</kbd> and arrows, to rotate</p></div></figure>"
    )
    panel = framed(
        angle_panel.panel_svg(trajectory), angle_panel.WIDTH, angle_panel.HEIGHT, _panel_title(trajectory), both=False
    )
    return (
        f"<div class='stage'>{sphere}<div class='angles'><h2>{_panel_title(trajectory)}</h2>"
        f"<p class='soft'>{escape(legend(trajectory))}</p>{panel}"
        f"<div class='card living' aria-live='polite'></div>{_notes(trajectory)}</div></div>"
    )


def _panel_title(trajectory: Trajectory) -> str:
    return f"Angle by {escape(trajectory.along)}"


def _notes(trajectory: Trajectory) -> str:
    return f"<div class='notes soft'>{''.join(f'<p>{escape(note)}</p>' for note in notes(trajectory))}</div>"


def _table(trajectory: Trajectory) -> str:
    rows = len(trajectory.drawn)
    shown = table_html(summary(trajectory))
    return f"<details><summary>words, {rows} row{'s' if rows != 1 else ''}</summary>{shown}</details>"


def _below(trajectory: Trajectory) -> str:
    return f"<div class='save living'>{SAVE_AS}</div>{_table(trajectory)}"


def trajectory_data(trajectory: Trajectory, seen_from: NDArray[np.float64] | None = None) -> dict[str, Any]:
    """The data of the page's script; every word is escaped and visible. `seen_from`: a rotation for several globes."""
    drawn = list(trajectory.drawn)
    last = len(trajectory.words) - 1
    return {
        "title": title(trajectory),
        "caption": caption(trajectory),
        "reads": trajectory.reads,
        "span": trajectory.projection == "span",
        "layered": by_layer(trajectory),
        "word": None if trajectory.word is None else drawn.index(trajectory.word),
        "labels": trajectory.labels,
        "words": [_word(trajectory, t, t == last) for t in drawn],
        "points": _rounded(trajectory.points, 4),
        "targets": _rounded(trajectory.targets, 4),
        "moved": _rounded(trajectory.moved[drawn], 2),
        "own": _rounded(trajectory.own[drawn], 2),
        "next": _rounded(trajectory.following[drawn], 2),
        "bold": [_rounded(angles, 2) for angles in angle_panel.bold(trajectory)],
        "probability": _rounded(trajectory.probability, 5),
        "shown": _rounded(trajectory.shown, 3),
        "readings": [[[_reading(r) for r in words] for words in states] for states in trajectory.readings],
        "view": _rounded(view(trajectory) if seen_from is None else seen_from, 6),
        "corners": _rounded(corners(trajectory), 6),
        "sides": [
            {"degrees": side.degrees, "middle": _rounded(side.middle, 4), "marks": _rounded(side.marks, 4)}
            for side in sides(trajectory)
        ],
        "inks": INKS,
        "layers": [name for name in INKS if name[0] == "l" and name[1:].isdigit()],
        "panel": {"most": angle_panel.most(trajectory), **_PANEL},
        "scores": score_lines(trajectory),
        "csv": table_csv(_drawn_rows(trajectory)),
    }


def _reading(reading: Reading) -> tuple[str, float, float | None]:
    p = reading.probability
    return show_token(reading.text), round(reading.angle, 1), None if p is None else round(p, 5)


def _word(trajectory: Trajectory, t: int, last: bool) -> dict[str, Any]:
    goal = trajectory.next_words[t]
    return {
        "text": show_token(trajectory.words[t], 80),
        "label": plain(trajectory.words[t]),
        "next": None if goal is None else show_token(goal, 80),
        "nextLabel": None if goal is None else plain(goal),
        "predicted": last,
    }


def _drawn_rows(trajectory: Trajectory) -> Table:
    """The rows of the words that are drawn; `armillary travel --out FILE.csv` saves those of all words."""
    return trajectory.table.where("position", *(t + 1 for t in trajectory.drawn))


def _rounded(values: NDArray[np.float64], digits: int) -> Any:
    """Nested lists; NaN becomes null."""
    if values.ndim == 0:
        return None if np.isnan(values) else round(float(values), digits)
    return [_rounded(part, digits) for part in values]
