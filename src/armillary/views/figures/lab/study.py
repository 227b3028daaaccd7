"""A study of the laboratory as a figure: differences to the reference, losses by learning rate, and curves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from scipy import stats

from armillary.lab.study.conclusions.outcome import ArmOutcome, StudyOutcome
from armillary.lab.study.design import EFFECT
from armillary.results.numbers import interval, say
from armillary.results.store import table_csv
from armillary.views.figures.figure import heading
from armillary.views.figures.marks import COLOURS, LIGHT
from armillary.views.figures.narrow_layout import panel_title
from armillary.views.save import save_figure
from armillary.views.text.lab.study import study_table

TINTS = {"better": COLOURS["supported"], "worse": COLOURS["refuted"], "equivalent": LIGHT.second}
# Told apart on either ground, also by readers who do not see red and green apart (after Okabe and Ito).
ARM_TINTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8862B", "#56B4E9", "#8A5BB5", "#7A7F87", "#A0522D")
ROW, PANEL = 30, 330
# Differences beyond this many smallest effects are drawn at the edge, with their number.
FAR = 10
# Losses of rates that failed would flatten all others.
ABOVE = 0.6


def study_figure(study: StudyOutcome, narrow: bool = False) -> go.Figure:
    """A forest plot of the arms' differences above their learning rates and their curves."""
    panels = [FOREST, RATES, CURVES] if study.comparisons else [RATES]
    return figure_of(study, panels, headline(study), caption(study), narrow)


@dataclass(frozen=True)
class StudyPanel:
    """One panel of a figure: its title, how it is drawn, and how high it is."""

    title: str
    draw: Callable[[go.Figure, StudyOutcome, int], None]
    height: Callable[[StudyOutcome], int]


def figure_of(
    study: StudyOutcome, panels: Sequence[StudyPanel], title: str, subtitle: str, narrow: bool = False
) -> go.Figure:
    """Panels below each other; arms have one legend below all of them."""
    heights = [panel.height(study) for panel in panels]
    total, gap = sum(heights), 72
    whole = total + gap * (len(panels) - 1)
    canvas = make_subplots(rows=len(panels), cols=1, row_heights=heights, vertical_spacing=gap / whole)
    left = _left(study, 10 if narrow else 12)
    for index, panel in enumerate(panels):
        panel.draw(canvas, study, index + 1)
        panel_title(canvas, str(index + 1) if index else "", panel.title, whole, left if narrow else None)
    seen: set[str] = set()
    for trace in canvas.data:
        if trace.name:
            trace.showlegend = trace.name not in seen
            seen.add(trace.name)
    above = heading(title, escape(subtitle))
    top = above.pop("top") + 8
    lines = len(seen) if narrow else -(-len(seen) // 4)
    below = 70 + (20 if narrow else 22) * lines if seen else 60
    margin = {"t": top, "l": left, "r": 14 if narrow else 24, "b": below}
    canvas.update_layout(template="armillary", height=whole + below + top, margin=margin, showlegend=True, **above)
    place = {"x": 0, "xref": "paper", "y": 0, "yref": "container", "yanchor": "bottom"}
    look = {"orientation": "h", "font": {"size": 12}, "entrywidth": 150}
    canvas.update_layout(legend={**place, **look})
    if narrow:
        canvas.update_layout(legend={"orientation": "v", "font": {"size": 11}, "tracegroupgap": 0})
        canvas.update_yaxes(tickfont={"size": 10})
        canvas.update_xaxes(tickangle=0, nticks=5)
        _fewer(canvas)
    return canvas


def _left(study: StudyOutcome, size: int) -> int:
    """The margin that the names of the arms need, in pixels."""
    return _margin([arm.name for arm in study.arms], size)


def _margin(labels: Sequence[str], size: int) -> int:
    return max(64, round(0.58 * size * max(map(len, labels), default=0)) + 16)


def _fewer(canvas: go.Figure) -> None:
    """Ticks that were named one by one: as many as a narrow screen has room for, the last of them always."""
    for axis in canvas.select_xaxes():
        if axis.ticktext:
            step = -(-len(axis.ticktext) // 4)
            axis.update(tickvals=axis.tickvals[::-1][::step], ticktext=axis.ticktext[::-1][::step])


def save_study(study: StudyOutcome, path: Path) -> Path:
    """The page (.html), the forest plot (.png .svg .pdf) or the table of arms (.csv)."""
    from armillary.views.report.study import study_page

    return save_figure(forest_figure(study), lambda: study_page(study), table_csv(study_table(study)), path)


def forest_figure(study: StudyOutcome) -> go.Figure:
    """What a picture shows of a study: each arm's difference, or its learning rates where nothing else was run.

    Pictures are drawn without a browser, which knows neither shapes nor panel titles nor legends.
    """
    panel = FOREST if study.comparisons else RATES
    canvas = figure_of(study, [panel], headline(study), f"{panel.title.split(';')[0]}; {caption(study)}")
    canvas.layout.annotations = ()
    if study.comparisons:
        known = [c for c in study.comparisons if math.isfinite(c.difference)]
        arms = len(known)
        # An arm beyond the axis has its number beside its name.
        far = ["" if abs(c.difference) <= FAR * EFFECT else f" ({say(c.difference, '+.2f')})" for c in known]
        labels = [f"{escape(c.arm)}{number}" for c, number in zip(known, far, strict=True)]
        canvas.update_yaxes(ticktext=labels)
        canvas.update_layout(margin_l=_margin(labels, 12))
        for limit in (-EFFECT, EFFECT):
            line = {"color": LIGHT.soft, "width": 1, "dash": "dot"}
            canvas.add_scatter(x=[limit] * 2, y=[-0.5, arms - 0.5], mode="lines", line=line, showlegend=False)
    return canvas


def headline(study: StudyOutcome) -> str:
    """How many arms of each outcome, and which are better."""
    counts: dict[str, list[str]] = {}
    for comparison in study.comparisons:
        counts.setdefault(comparison.outcome, []).append(comparison.arm)
    if not counts:
        return f"{study.name}: learning rates of {len(study.arms)} arms"
    named = [f"{len(arms)} {outcome}" + (f" ({', '.join(arms)})" if outcome == "better" else "")
             for outcome, arms in sorted(counts.items())]  # fmt: skip
    return f"{study.name}: against {study.reference.name} {', '.join(named)}"


def caption(study: StudyOutcome) -> str:
    size = study.manifest.get("size", {})
    seeds = f"{len(study.reference.losses)} paired seeds; " if study.reference.losses else "tuning runs only; "
    return (
        f"{study.reference.parameters:,} parameters, {size.get('tokens', 0):,} tokens a run, {seeds}"
        f"differences below {EFFECT:g} nats do not count"
    )


def _tint(study: StudyOutcome, index: int) -> str:
    if index == 0:
        return LIGHT.ink
    return ARM_TINTS[(index - 1) % len(ARM_TINTS)]


def _dash(index: int) -> str:
    """Arms beyond the tints have the same again, dashed."""
    return "solid" if index <= len(ARM_TINTS) else "dot"


def _forest(canvas: go.Figure, study: StudyOutcome, row: int) -> None:
    known = [c for c in study.comparisons if math.isfinite(c.difference)]
    near = [c for c in known if abs(c.difference) <= FAR * EFFECT]
    reach = _reach(study)
    # Intervals are lines, and arms numbered places: the drawing of pictures knows neither error bars nor categories.
    ends = [(end, place) for place, c in enumerate(known) if c in near for end in (c.low, c.high, None)]
    bars = go.Scatter(
        x=[end for end, _ in ends], y=[place for _, place in ends], mode="lines", hoverinfo="skip", showlegend=False,
        line={"color": LIGHT.soft, "width": 1.4},
    )  # fmt: skip
    marker = {
        "size": 10,
        "color": [TINTS.get(c.outcome, LIGHT.control) for c in known],
        "symbol": [_symbol(c in near, c.difference) for c in known],
    }
    dots = go.Scatter(
        x=[c.difference if c in near else math.copysign(0.97 * reach, c.difference) for c in known],
        y=list(range(len(known))), mode="markers+text", marker=marker, showlegend=False,
        text=["" if c in near else say(c.difference, "+.2f") for c in known],
        textposition=["middle left" if c.difference > 0 else "middle right" for c in known],
        customdata=[
            f"{escape(c.arm)}: {interval(c.difference, c.low, c.high)}, {c.outcome}, {c.seeds} seeds" for c in known
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    canvas.add_trace(bars, row=row, col=1)
    canvas.add_trace(dots, row=row, col=1)
    _zone(canvas, reach, row)
    _arms_down(canvas, [c.arm for c in known], row)
    canvas.update_xaxes(title="difference, nats per token (left is better)", row=row, col=1)


def _reach(study: StudyOutcome) -> float:
    """Half the width of an axis of differences: intervals of arms that are not far off fit."""
    near = [c for c in study.comparisons if abs(c.difference) <= FAR * EFFECT]
    return 1.15 * max([3 * EFFECT, *(max(abs(c.low), abs(c.high)) for c in near)])


def _zone(canvas: go.Figure, reach: float, row: int) -> None:
    """An axis of differences with the zone that is too small to count."""
    canvas.add_vrect(x0=-EFFECT, x1=EFFECT, fillcolor=LIGHT.second_band, line_width=0, layer="below", row=row, col=1)
    canvas.update_xaxes(range=[-reach, reach], zeroline=True, zerolinecolor=LIGHT.soft, row=row, col=1)


def _arms_down(canvas: go.Figure, names: Sequence[str], row: int) -> None:
    """One place per arm, the first one on top."""
    places, labels = list(range(len(names))), [escape(name) for name in names]
    canvas.update_yaxes(tickvals=places, ticktext=labels, range=[len(names) - 0.5, -0.5], row=row, col=1)


def _pairs(canvas: go.Figure, study: StudyOutcome, row: int) -> None:
    """One dot per seed and arm; the mean as a line."""
    reach, base, names = _reach(study), study.reference.losses, list[str]()
    for index, arm in enumerate(study.arms):
        shared = sorted(arm.losses.keys() & base.keys())
        pairs = [(seed, arm.losses[seed], base[seed]) for seed in shared]
        known = [(seed, changed - base) for seed, changed, base in pairs if changed is not None and base is not None]
        if arm is study.reference or not known:
            continue
        at = [math.copysign(min(abs(gap), 0.97 * reach), gap) for _, gap in known]
        dots = go.Scatter(
            x=at, y=[len(names)] * len(known), mode="markers", showlegend=False,
            marker={"size": 9, "color": _tint(study, index), "opacity": 0.55,
                    "symbol": [_symbol(abs(gap) <= 0.97 * reach, gap) for _, gap in known]},
            customdata=[f"{escape(arm.name)}, seed {seed}: {say(gap, '+.4f')}" for seed, gap in known],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
        canvas.add_trace(dots, row=row, col=1)
        names.append(arm.name)
    _zone(canvas, reach, row)
    _arms_down(canvas, names, row)
    canvas.update_xaxes(title="difference of one pair of runs, nats per token", row=row, col=1)


def _gaps(canvas: go.Figure, study: StudyOutcome, row: int) -> None:
    """The difference to the reference during training: mean of the pairs, with its t interval."""
    reach, base = _reach(study), _by_seed(study, study.reference.name)
    for index, arm in enumerate(study.arms[1:], 1):
        losses = _by_seed(study, arm.name)
        seeds = sorted(losses.keys() & base.keys())
        if len(seeds) < 2:
            continue
        gaps = np.array([[a - b for (_, a), (_, b) in zip(losses[s], base[s], strict=True)] for s in seeds])
        steps, mean = [step for step, _ in losses[seeds[0]]], gaps.mean(0)
        half = float(stats.t.ppf(0.975, len(seeds) - 1)) * gaps.std(0, ddof=1) / math.sqrt(len(seeds))
        canvas.add_trace(_line(arm.name, steps, mean.tolist(), _tint(study, index), _dash(index)), row, 1)
        canvas.add_trace(_shade(arm.name, steps, mean - half, mean + half, _tint(study, index)), row, 1)
    canvas.add_hrect(y0=-EFFECT, y1=EFFECT, fillcolor=LIGHT.second_band, line_width=0, layer="below", row=row, col=1)
    canvas.update_yaxes(range=[-reach, reach], title="nats per token", row=row, col=1)
    canvas.update_xaxes(title="step", row=row, col=1)


def _by_seed(study: StudyOutcome, arm: str) -> dict[int, list[tuple[int, float]]]:
    """Seed → the curve of its paired run, of runs that did not diverge."""
    rows = [row for row in study.paired if row["arm"] == arm and not row["diverged"]]
    return {row["seed"]: [(step, loss) for step, loss in row["curve"]] for row in rows}


def _symbol(near: bool, difference: float) -> str:
    return "circle" if near else "triangle-right" if difference > 0 else "triangle-left"


def _rates(canvas: go.Figure, study: StudyOutcome, row: int) -> None:
    lowest = min((min(arm.rates.values(), default=math.inf) for arm in study.arms), default=math.inf)
    for index, arm in enumerate(study.arms):
        if arm.rates:
            shown = {rate: loss for rate, loss in arm.rates.items() if math.isfinite(loss)}
            canvas.add_trace(
                _line(arm.name, list(shown), list(shown.values()), _tint(study, index), _dash(index)), row, 1
            )
    ticks = sorted({rate for arm in study.arms for rate in arm.rates})
    labels = [say(rate, "g") for rate in ticks]
    canvas.update_xaxes(type="log", title="learning rate", tickvals=ticks, ticktext=labels, row=row, col=1)
    if ticks:
        canvas.update_xaxes(range=[math.log10(ticks[0]) - 0.05, math.log10(ticks[-1]) + 0.05], row=row, col=1)
    canvas.update_yaxes(title="nats per token", row=row, col=1)
    if math.isfinite(lowest):
        middle = median(loss for arm in study.arms for loss in arm.rates.values())
        top = max(lowest + ABOVE, middle + 0.1 if math.isfinite(middle) else lowest)
        canvas.update_yaxes(range=[lowest - 0.05, top], row=row, col=1)


def _curves(canvas: go.Figure, study: StudyOutcome, row: int) -> None:
    canvas.update_xaxes(title="step", row=row, col=1)
    canvas.update_yaxes(title="nats per token", row=row, col=1)
    for index, arm in enumerate(study.arms):
        steps, mean, spread = _band(arm)
        if steps:
            tint = _tint(study, index)
            canvas.add_trace(_line(arm.name, steps, mean.tolist(), tint, _dash(index)), row, 1)
            canvas.add_trace(_shade(arm.name, steps, mean - spread, mean + spread, tint), row, 1)
    _, reference, _ = _band(study.reference)
    if len(reference):
        # An arm that hardly learns would flatten all others.
        canvas.update_yaxes(range=[reference.min() - 0.1, reference.max() + 0.3], row=row, col=1)


def _shade(name: str, x: Sequence[float], low: np.ndarray, high: np.ndarray, tint: str) -> go.Scatter:
    return go.Scatter(
        x=[*x, *reversed(x)], y=[*high, *reversed(low)], fill="toself", opacity=0.15, mode="lines", fillcolor=tint,
        line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=escape(name),
    )  # fmt: skip


def _band(arm: ArmOutcome) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Steps, mean and standard deviation of the runs that did not diverge and whose curve is whole."""
    points = max((len(curve) for curve in arm.curves), default=0)
    whole = [curve for curve in arm.curves if len(curve) == points and all(loss is not None for _, loss in curve)]
    if not whole:
        return [], np.zeros(0), np.zeros(0)
    losses = np.array([[loss for _, loss in curve] for curve in whole], dtype=float)
    spread = losses.std(0, ddof=1) if len(losses) > 1 else np.zeros(losses.shape[1])
    return [step for step, _ in whole[0]], losses.mean(0), spread


def _line(name: str, x: Sequence[float], y: Sequence[float], tint: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines+markers", name=escape(name), legendgroup=escape(name), showlegend=True,
        line={"color": tint, "width": 1.6, "dash": dash}, marker={"size": 5, "color": tint},
        hovertemplate=f"{escape(name)}<br>%{{x:g}}: %{{y:.4f}}<extra></extra>",
    )  # fmt: skip


def _by_arm(study: StudyOutcome) -> int:
    return ROW * max(3, len(study.comparisons)) + 40


FOREST = StudyPanel("loss less the reference's, with its 95 % interval; shaded: too small to count", _forest, _by_arm)
PAIRS = StudyPanel("the same, one dot per pair of runs with the same order of the text", _pairs, _by_arm)
RATES = StudyPanel("loss of the worst tuning seed by learning rate", _rates, lambda study: PANEL)
CURVES = StudyPanel(
    "held-out loss, mean of the paired seeds; shaded: ± one standard deviation", _curves, lambda study: PANEL
)
GAPS = StudyPanel("the same less the reference's; shaded: 95 % interval, and what is too small to count", _gaps,
             lambda study: PANEL)  # fmt: skip
