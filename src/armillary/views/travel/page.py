"""How does a trajectory become one page that turns, plays and answers, offline?"""

import json
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.results.store import table_csv
from armillary.results.table import Table
from armillary.results.trajectory import Trajectory
from armillary.views.page import inert, whole_page
from armillary.views.report.notebook import CSS, table_html
from armillary.views.text.quoting import show_token
from armillary.views.travel import angle_panel, globe
from armillary.views.travel.colours import INKS, by_layer
from armillary.views.travel.scene import corners, sides, view
from armillary.views.travel.svg import framed
from armillary.views.travel.captions import caption, legend, marks, plain, score_lines, summary, title, told

# A longer sentence is not written out above its globe, but for the drawn words.
_LISTED = 400


def trajectory_page(trajectory: Trajectory) -> str:
    """One self-contained page: the sentence, the globe, the angles, what each state reads as, and the table."""
    here = files("armillary.views.travel")
    style, script = ((here / name).read_text("utf-8") for name in ("travel.css", "travel.js"))
    body = f"<style>{style}</style><div class='travel'>{_above(trajectory)}{_stage(trajectory)}{_below(trajectory)}</div>"
    payload = inert(json.dumps(_payload(trajectory), ensure_ascii=True, separators=(",", ":")))
    scripts = f'<script type="application/json" id="trajectory">{payload}</script><script>{script}</script>'
    return whole_page(title(trajectory), body, scripts)


def trajectory_html(trajectory: Trajectory) -> str:
    """The trajectory for a notebook, with no script at all."""
    drawn = framed(globe.globe_svg(trajectory), globe.WIDTH, globe.HEIGHT, title(trajectory))
    panel = framed(angle_panel.flat_svg(trajectory), angle_panel.WIDTH, angle_panel.HEIGHT, "Angle by layer")
    pictures = f"<div style='display:flex;flex-wrap:wrap;gap:24px;align-items:start'>{drawn}{panel}</div>"
    return f"<div class='armillary'><style>{CSS}</style>{_heading(trajectory)}{pictures}{_told(trajectory)}{_table(trajectory)}</div>"


def _heading(trajectory: Trajectory) -> str:
    return f"<h1>{escape(title(trajectory))}</h1><p class='soft'>{escape(caption(trajectory))}</p>"


def _above(trajectory: Trajectory) -> str:
    """Title, and the sentence: each drawn word a button that follows it."""
    drawn = set(trajectory.drawn)
    words = []
    # Tokens carry the space before them, or (BERT's) a mark where there is none.
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
    drawn_as = "".join(f"<div>{escape(said)} <i>{mark}</i></div>" for mark, said in marks(trajectory))
    about = "The globe; arrow keys left and right step through the layers, up and down choose a word, with shift they turn it"
    last = len(trajectory.states) - 1
    sphere = (
        f"<figure class='sphere'><div class='paper'>{drawn}</div><div class='living'>"
        f"<canvas tabindex='0' role='img' aria-label='{about}, space plays'></canvas><div class='tip' hidden></div>"
        f"<div class='believe'><div><b>{first}</b><br>{'<br>'.join(rest)}</div><div class='marks'>{drawn_as}</div></div>"
        "<div class='layers'><button type='button'>▶ play</button>"
        f"<input type='range' min='0' max='{last}' step='1' value='{last}' aria-label='layer'><output></output></div>"
        "<p class='keys'><kbd>←</kbd> <kbd>→</kbd> layers · <kbd>space</kbd> plays · <kbd>↑</kbd> <kbd>↓</kbd> a word · <kbd>esc</kbd> all · "
        "drag, or <kbd>shift</kbd> and arrows, to turn</p></div></figure>"
    )
    panel = framed(angle_panel.flat_svg(trajectory), angle_panel.WIDTH, angle_panel.HEIGHT, "Angle by layer", both=False)
    return (
        f"<div class='stage'>{sphere}<div class='flat'><h2>Angle by layer</h2><p class='soft'>{escape(legend(trajectory))}</p>{panel}"
        f"<div class='card living' aria-live='polite'></div>{_told(trajectory)}</div></div>"
    )


def _told(trajectory: Trajectory) -> str:
    said = "".join(f"<p>{escape(line)}</p>" for line in told(trajectory))
    return f"<div class='told soft'>{said}</div>"


def _table(trajectory: Trajectory) -> str:
    return f"<details><summary>words, {len(trajectory.drawn)} rows</summary>{table_html(summary(trajectory))}</details>"


def _below(trajectory: Trajectory) -> str:
    buttons = "".join(f'<button type="button" value="{kind}">{kind}</button>' for kind in ("png", "svg", "csv"))
    return f"<div class='save living'>save as {buttons}</div>{_table(trajectory)}"


def _payload(trajectory: Trajectory) -> dict[str, Any]:
    """What the page's script draws from; every word has been made inert and visible."""
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
        "readings": [
            [[[show_token(r.text), round(r.angle, 1), None if r.probability is None else round(r.probability, 5)] for r in words]
             for words in way] for way in trajectory.readings
        ],
        "view": _rounded(view(trajectory), 6),
        "corners": _rounded(corners(trajectory), 6),
        "sides": [
            {"degrees": side.degrees, "middle": _rounded(side.middle, 4), "marks": _rounded(side.marks, 4)}
            for side in sides(trajectory)
        ],
        "inks": INKS,
        "layers": [name for name in INKS if name[0] == "l" and name[1:].isdigit()],
        "flat": {"left": angle_panel.LEFT, "right": angle_panel.RIGHT, "top": angle_panel.TOP, "bottom": angle_panel.BOTTOM, "width": angle_panel.WIDTH,
                 "height": angle_panel.HEIGHT, "most": angle_panel.most(trajectory)},
        "scores": score_lines(trajectory),
        "csv": table_csv(_drawn_rows(trajectory)),
    }  # fmt: skip


def _word(trajectory: Trajectory, t: int, last: bool) -> dict[str, Any]:
    goal = trajectory.next_words[t]
    return {
        "text": show_token(trajectory.words[t], 80),
        "label": plain(trajectory.words[t]),
        "next": None if goal is None else show_token(goal, 80),
        "nextLabel": None if goal is None else plain(goal),
        "chosen": last,
    }


def _drawn_rows(trajectory: Trajectory) -> Table:
    """The table of what the page draws; all words' is saved as .csv."""
    table, drawn = trajectory.table, {t + 1 for t in trajectory.drawn}
    return Table(table.columns, tuple(row for row in table.rows if row[0] in drawn))


def _rounded(values: NDArray[np.float64], digits: int) -> Any:
    """Nested lists; what is absent is null."""
    if values.ndim == 0:
        return None if np.isnan(values) else round(float(values), digits)
    return [_rounded(one, digits) for one in values]
