"""A trajectory as an interactive plotly figure: the globe, and the angles by layer beside it."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from armillary.results.sheets.trajectory import Trajectory
from armillary.views.figures import theme  # noqa: F401  (registers the template)
from armillary.views.figures.figure import heading
from armillary.views.figures.marks import LIGHT
from armillary.views.text.quoting import in_html, show_token
from armillary.views.travel.angle_panel import bold
from armillary.views.travel.captions import caption, plain, score_lines, title
from armillary.views.travel.colours import INKS, by_layer, ink
from armillary.views.travel.scene import Floats, paths, rings, view

SECONDS = 5
_GAP = np.full((1, 3), np.nan)


def figure(trajectory: Trajectory) -> go.Figure:
    """The globe with a slider over the states and a button that plays them in five seconds, beside the angles."""
    result = make_subplots(rows=1, cols=2, specs=[[{"type": "scene"}, {"type": "xy"}]], column_widths=[0.62, 0.38])
    arcs = paths(trajectory)
    for trace in (*_globe(trajectory), _targets(trajectory)):
        result.add_trace(trace, row=1, col=1)
    moving = [len(result.data), len(result.data) + 1]
    for trace in _paths(trajectory, arcs, len(trajectory.states) - 1):
        result.add_trace(trace, row=1, col=1)
    for trace in _angles(trajectory):
        result.add_trace(trace, row=1, col=2)
    states = range(len(trajectory.states))
    result.frames = [go.Frame(name=str(state), data=_paths(trajectory, arcs, state), traces=moving) for state in states]
    result.update_layout(**_layout(trajectory))
    return result


def _spread(points: Floats) -> dict[str, Any]:
    return dict(zip("xyz", np.asarray(points).reshape(-1, 3).T, strict=True))


def _colour(trajectory: Trajectory, word: int, state: int) -> str:
    return INKS[ink(trajectory, word, state)][0]


def _globe(trajectory: Trajectory) -> list[Any]:
    turn, tilt = np.meshgrid(np.linspace(0, 2 * np.pi, 49), np.linspace(0, np.pi, 25))
    ball = {"x": np.sin(tilt) * np.cos(turn), "y": np.sin(tilt) * np.sin(turn), "z": np.cos(tilt)}
    ball |= {name: 0.99 * values for name, values in ball.items()}
    shade = [[0, INKS["edge"][0]], [1, INKS["edge"][0]]]
    body = go.Surface(**ball, opacity=0.25, showscale=False, colorscale=shade, hoverinfo="skip")
    line = {"color": LIGHT.accent, "width": 2}
    look = {"mode": "lines", "line": line, "opacity": 0.5, "hoverinfo": "skip"}
    return [body, *(go.Scatter3d(**_spread(ring), **look) for ring in rings(trajectory))]


def _targets(trajectory: Trajectory) -> Any:
    goals = [trajectory.next_words[t] for t in trajectory.drawn]
    names = ["" if goal is None else f"→ {in_html(plain(goal))}" for goal in goals]
    last = len(trajectory.states) - 1
    # Plotly has no three-dimensional star.
    marker = {"symbol": "diamond", "size": 6, "color": [_colour(trajectory, i, last) for i in range(len(goals))]}
    text = {"mode": "markers+text", "text": names, "textfont": {"size": 11, "color": LIGHT.soft}}
    return go.Scatter3d(**_spread(trajectory.targets), **text, marker=marker, hoverinfo="skip")


def _paths(trajectory: Trajectory, arcs: list[Floats], until: int) -> list[Any]:
    """All words' lines up to a state, in one trace with gaps between words, and all their dots in another."""
    lines, tints = [], []
    for word, steps in enumerate(arcs):
        lines += [steps[:until].reshape(-1, 3), _GAP]
        tints += [_colour(trajectory, word, step + 1) for step in range(until) for _ in steps[step]]
        tints.append(LIGHT.ground)
    states = [(word, state) for word in range(len(arcs)) for state in range(until + 1)]
    marker = {
        "symbol": ["circle-open" if state == 0 else "circle" for _, state in states],
        "size": [7 if state in (0, until) else 3 for _, state in states],
        "color": [_colour(trajectory, word, max(1, state)) for word, state in states],
    }
    label = [
        "" if state < until else f"<b>{in_html(plain(trajectory.words[trajectory.drawn[word]]))}</b>"
        for word, state in states
    ]
    look = {"mode": "markers+text", "text": label, "textposition": "middle right", "marker": marker}
    template, hover = "%{hovertext}<extra></extra>", [_hover(trajectory, *place) for place in states]
    line = {"color": tints, "width": 4}
    return [
        go.Scatter3d(**_spread(np.concatenate(lines)), mode="lines", line=line, hoverinfo="skip"),
        go.Scatter3d(**_spread(trajectory.points[:, : until + 1]), **look, hovertext=hover, hovertemplate=template),
    ]


def _hover(trajectory: Trajectory, word: int, state: int) -> str:
    t = trajectory.drawn[word]
    facts = [f"<b>{in_html(show_token(trajectory.words[t]))}</b> {trajectory.labels[state]}"]
    if state:
        facts.append(f"moved {trajectory.moved[t, state - 1]:.0f}°")
    facts.append(f"{trajectory.own[t, state]:.0f}° from itself")
    goal = trajectory.next_words[t]
    if goal is not None:
        near = f"{trajectory.following[t, state]:.0f}° from {in_html(show_token(goal))}"
        facts.append(f"{near}, probability {trajectory.probability[word, state]:.1%}")
    readings = [
        in_html(show_token(r.text)) + ("" if r.probability is None else f" {r.probability:.1%}") + f" {r.angle:.0f}°"
        for r in trajectory.readings[word][state]
    ]
    return "<br>".join([*facts, "reads as", *readings])


def _angles(trajectory: Trajectory) -> list[Any]:
    traces = []
    curves = (("to itself", LIGHT.second), ("to the next word", LIGHT.accent))
    for (name, colour), values in zip(curves, bold(trajectory), strict=True):
        if not np.isnan(values).all():
            line = {"color": colour, "width": 2.6}
            text = [*[""] * (len(values) - 1), name]
            look = {"mode": "lines+text", "textposition": "top left", "textfont": {"color": colour}}
            traces.append(go.Scatter(x=["start", *trajectory.moves], y=values, text=text, line=line, **look))
    return traces


def _layout(trajectory: Trajectory) -> dict[str, Any]:
    titles = heading(title(trajectory), in_html(caption(trajectory)))
    hidden = {"visible": False, "showspikes": False}
    _, up, eye = view(trajectory)
    camera = {name: dict(zip("xyz", axis, strict=True)) for name, axis in (("eye", 1.5 * eye), ("up", up))}
    camera["projection"] = {"type": "orthographic"}
    scene = {"xaxis": hidden, "yaxis": hidden, "zaxis": hidden, "camera": camera, "aspectmode": "manual"}
    scene["aspectratio"] = dict.fromkeys("xyz", 1.8)
    wait = round(1000 * SECONDS / max(1, len(trajectory.states) - 1))
    play = {"frame": {"duration": wait, "redraw": True}, "fromcurrent": False, "transition": {"duration": 0}}
    jump = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    steps = [
        {"label": label, "method": "animate", "args": [[str(state)], jump]}
        for state, label in enumerate(["start", *trajectory.moves])
    ]
    scores = [in_html(line) for line in score_lines(trajectory)]
    scores += ["colour shows the layer"] if by_layer(trajectory) else []
    note = {"text": "<br>".join(scores), "xref": "paper", "yref": "paper", "x": 0, "y": 0}
    note |= {"xanchor": "left", "yanchor": "bottom", "align": "left", "showarrow": False}
    slider = {"active": len(steps) - 1, "steps": steps, "len": 0.55, "x": 0.08, "y": 0}
    button = {"label": "▶", "method": "animate", "args": [None, play]}
    buttons = {"type": "buttons", "x": 0.06, "y": 0, "yanchor": "top", "pad": {"t": 24}, "buttons": [button]}
    top = titles.pop("top")
    return {
        "template": "armillary",
        **titles,
        "scene": scene,
        "height": 620 + top,
        "margin": {"t": top, "l": 20, "r": 20, "b": 90},
        "yaxis": {"title": "angle", "ticksuffix": "°", "rangemode": "tozero"},
        "annotations": [{**note, "font": {"size": 11, "color": LIGHT.soft}}],
        "sliders": [{**slider, "currentvalue": {"visible": False}}],
        "updatemenus": [buttons],
    }
