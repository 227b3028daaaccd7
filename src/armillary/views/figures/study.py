"""A study of the laboratory as a figure: differences to the reference, losses by learning rate, and curves."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from armillary.lab.study.design import EFFECT
from armillary.lab.study.outcome import ArmOutcome, StudyOutcome
from armillary.results.numbers import interval, say
from armillary.results.store import table_csv
from armillary.views.figures.figure import heading
from armillary.views.figures.marks import COLOURS, LIGHT
from armillary.views.page import drawn_page
from armillary.views.save import save_figure
from armillary.views.text.study import study_table

TINTS = {"better": COLOURS["supported"], "worse": COLOURS["refuted"], "equivalent": LIGHT.second}
# Told apart on either ground, also by readers who do not see red and green apart (after Okabe and Ito).
ARM_TINTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8862B", "#56B4E9", "#8A5BB5", "#7A7F87", "#A0522D")
ROW, PANEL = 30, 330
# Differences beyond this many smallest effects are drawn at the edge, with their number.
FAR = 10
# Losses of rates that failed would flatten all others.
ABOVE = 0.6


def study_figure(study: StudyOutcome) -> go.Figure:
    """A forest plot of the arms' differences above their learning rates and their curves."""
    forest = ROW * max(3, len(study.comparisons)) + 40
    total = forest + 2 * PANEL
    shares = [forest / total, PANEL / total, PANEL / total]
    canvas = make_subplots(rows=3, cols=1, row_heights=shares, vertical_spacing=96 / (total + 200))
    _forest(canvas, study)
    _rates(canvas, study)
    _curves(canvas, study)
    titles = (
        "loss less the reference's, nats per token; shaded: too small to count",
        "loss of the worst tuning seed by learning rate",
        "loss during training, mean of the paired seeds; shaded: ± one standard deviation",
    )
    for index, title in enumerate(titles):
        axis = str(index + 1) if index else ""
        canvas.add_annotation(
            text=title, x=0, y=1, xref=f"x{axis} domain", yref=f"y{axis} domain", yshift=20, showarrow=False,
            xanchor="left", font={"size": 13, "color": LIGHT.ink},
        )  # fmt: skip
        # Titles are inside the figure's height, where a page cannot cut them off.
        low, high = canvas.layout[f"yaxis{axis}"].domain
        canvas.update_yaxes(domain=[low, high - 24 / total], row=index + 1, col=1)
    above = heading(headline(study), escape(caption(study)))
    top = above.pop("top") + 8
    margin = {"t": top, "l": 160, "r": 150, "b": 60}
    canvas.update_layout(template="armillary", height=total + 180 + top, margin=margin, showlegend=True, **above)
    canvas.update_layout(legend={"x": 1.02, "y": 0.5, "font": {"size": 11}})
    return canvas


def save_study(study: StudyOutcome, path: Path) -> Path:
    """The figure as .html, .png or .svg, or its table as .csv."""
    canvas, table = study_figure(study), table_csv(study_table(study))
    head = f"<h1>{escape(headline(study))}</h1><p class='soft'>{escape(caption(study))}</p>"
    return save_figure(canvas, lambda: drawn_page(headline(study), canvas, "study", table, head), table, path)


def headline(study: StudyOutcome) -> str:
    """How many arms of each outcome, and which are better."""
    counts: dict[str, list[str]] = {}
    for comparison in study.comparisons:
        counts.setdefault(comparison.outcome, []).append(comparison.arm)
    if not counts:
        return f"{study.name}: learning rates of {len(study.arms)} arms"
    said = [f"{len(arms)} {outcome}" for outcome, arms in sorted(counts.items())]
    better = f" ({', '.join(counts['better'])})" if "better" in counts else ""
    return f"{study.name}: against {study.reference.name} {', '.join(said)}{better}"


def caption(study: StudyOutcome) -> str:
    size = study.manifest.get("size", {})
    return (
        f"{study.reference.parameters:,} parameters, {size.get('tokens', 0):,} tokens a run, "
        f"{len(study.reference.losses)} paired seeds; differences below {EFFECT:g} nats do not count"
    )


def _tint(study: StudyOutcome, index: int) -> str:
    if index == 0:
        return LIGHT.ink
    return ARM_TINTS[(index - 1) % len(ARM_TINTS)]


def _forest(canvas: go.Figure, study: StudyOutcome) -> None:
    known = [c for c in study.comparisons if math.isfinite(c.difference)]
    near = [c for c in known if abs(c.difference) <= FAR * EFFECT]
    reach = 1.15 * max([3 * EFFECT, *(max(abs(c.low), abs(c.high)) for c in near)])
    bars = {
        "array": [c.high - c.difference if c in near else 0 for c in known],
        "arrayminus": [c.difference - c.low if c in near else 0 for c in known],
        "color": LIGHT.soft,
        "thickness": 1.4,
    }
    marker = {
        "size": 10,
        "color": [TINTS.get(c.outcome, LIGHT.control) for c in known],
        "symbol": [_symbol(c in near, c.difference) for c in known],
    }
    dots = go.Scatter(
        x=[c.difference if c in near else math.copysign(0.97 * reach, c.difference) for c in known],
        y=[escape(c.arm) for c in known], error_x=bars, mode="markers+text", marker=marker, showlegend=False,
        text=["" if c in near else say(c.difference, "+.2f") for c in known], textposition="middle left",
        customdata=[f"{interval(c.difference, c.low, c.high)}, {c.outcome}, {c.seeds} seeds" for c in known],
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    canvas.add_trace(dots, row=1, col=1)
    canvas.add_vrect(x0=-EFFECT, x1=EFFECT, fillcolor=LIGHT.second_band, line_width=0, layer="below", row=1, col=1)
    canvas.update_yaxes(autorange="reversed", row=1, col=1)
    canvas.update_xaxes(range=[-reach, reach], zeroline=True, zerolinecolor=LIGHT.soft, row=1, col=1)


def _symbol(near: bool, difference: float) -> str:
    return "circle" if near else "triangle-right" if difference > 0 else "triangle-left"


def _rates(canvas: go.Figure, study: StudyOutcome) -> None:
    lowest = min((min(arm.rates.values(), default=math.inf) for arm in study.arms), default=math.inf)
    for index, arm in enumerate(study.arms):
        if arm.rates:
            shown = {rate: loss for rate, loss in arm.rates.items() if math.isfinite(loss)}
            canvas.add_trace(_line(arm.name, list(shown), list(shown.values()), _tint(study, index), True), 2, 1)
    ticks = sorted({rate for arm in study.arms for rate in arm.rates})
    canvas.update_xaxes(
        type="log", title="learning rate", tickvals=ticks, ticktext=[say(r, "g") for r in ticks], row=2, col=1
    )
    if math.isfinite(lowest):
        canvas.update_yaxes(range=[lowest - 0.05, lowest + ABOVE], row=2, col=1)


def _curves(canvas: go.Figure, study: StudyOutcome) -> None:
    canvas.update_xaxes(title="step", row=3, col=1)
    for index, arm in enumerate(study.arms):
        steps, mean, spread = _band(arm)
        if not steps:
            continue
        tint = _tint(study, index)
        canvas.add_trace(_line(arm.name, steps, mean.tolist(), tint, not arm.rates), 3, 1)
        band = go.Scatter(
            x=[*steps, *reversed(steps)], y=[*(mean + spread), *reversed(mean - spread)], fill="toself", opacity=0.15,
            mode="lines", fillcolor=tint, line={"width": 0}, hoverinfo="skip", showlegend=False,
            legendgroup=escape(arm.name),
        )  # fmt: skip
        canvas.add_trace(band, 3, 1)


def _band(arm: ArmOutcome) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Steps, mean and standard deviation of the runs that did not diverge."""
    whole = [curve for curve in arm.curves if all(loss is not None for _, loss in curve)]
    if not whole:
        return [], np.zeros(0), np.zeros(0)
    losses = np.array([[loss for _, loss in curve] for curve in whole], dtype=float)
    spread = losses.std(0, ddof=1) if len(losses) > 1 else np.zeros(losses.shape[1])
    return [step for step, _ in whole[0]], losses.mean(0), spread


def _line(name: str, x: Sequence[float], y: Sequence[float], tint: str, legend: bool) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines+markers", name=escape(name), legendgroup=escape(name), showlegend=legend,
        line={"color": tint, "width": 1.6}, marker={"size": 5, "color": tint},
        hovertemplate=f"{escape(name)}<br>%{{x:g}}: %{{y:.4f}}<extra></extra>",
    )  # fmt: skip
