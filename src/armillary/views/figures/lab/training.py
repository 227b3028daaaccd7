"""A model's geometry over the steps of its training."""

import csv
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from armillary.results.disk.cells import as_text
from armillary.views.figures.figure import heading
from armillary.views.figures.marks import LIGHT
from armillary.views.figures.narrow_layout import panel_title
from armillary.views.figures.theme import SEQUENTIAL
from armillary.views.page import drawn_page
from armillary.views.save import save_figure

Look = Mapping[str, Any]
# Step 0 has no place on a log axis; it is drawn at step 1/2.
BEFORE = 0.5
# Margins, in pixels.
LEFT, BELOW = 60, 60
PANELS = (
    ("bits per byte of the held-out text", ""),
    ("effective rank of the directions, by norm site", "effective_rank/"),
    ("length of the stream, by norm site", "length/"),
    ("attention entropy, mean of a layer's heads (1 is uniform)", "attention_entropy/"),
)


def training_figure(looks: Sequence[Look], name: str, narrow: bool = False) -> go.Figure:
    """Four panels over steps: bits per byte, effective rank, stream length and attention entropy."""
    columns, height = (1, 1040) if narrow else (2, 640)
    figure = make_subplots(
        rows=4 // columns, cols=columns, horizontal_spacing=0.09, vertical_spacing=0.04 if narrow else 0.1
    )
    for index, (title, prefix) in enumerate(PANELS):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        lines = _lines(looks, prefix)
        for depth, (label, values) in enumerate(lines.items()):
            figure.add_trace(_line(looks, label, values, depth / max(1, len(lines) - 1)), **place)
        axis = str(index + 1) if index else ""
        panel_title(figure, axis, title, height - BELOW, LEFT if narrow else None)
        figure.update_xaxes(
            type="log", tickvals=[BEFORE, 1, 10, 100, 1000, 10_000],
            ticktext=["0", "1", "10", "100", "1,000", "10,000"], title="step" if index > 3 - columns else None, **place,
        )  # fmt: skip
    figure.update_yaxes(
        type="log", tickvals=[n * 10.0**k for k in range(-3, 6) for n in (1, 3)], row=3 if narrow else 2, col=1
    )
    above = heading(training_headline(looks), escape(training_caption(name)))
    top = above.pop("top")
    figure.update_layout(
        template="armillary",
        height=height + top,
        margin={"t": top, "l": LEFT, "r": 12 if narrow else 30, "b": BELOW},
        **above,
    )
    return figure


def save_training(looks: Sequence[Look], name: str, path: Path) -> Path:
    """The figure as .html, .png or .svg, or its numbers as .csv."""
    forms = [training_figure(looks, name, narrow) for narrow in (False, True)]
    table = training_csv(looks)
    head = f"<h1>{escape(training_headline(looks))}</h1><p class='soft'>{escape(training_caption(name))}</p>"
    return save_figure(
        forms[0], lambda: drawn_page(training_headline(looks), forms, "training", table, head), table, path
    )


def training_csv(looks: Sequence[Look]) -> str:
    """One row per evaluation and number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("step", "name", "value"))
    for look in looks:
        writer.writerow((look["step"], "bits_per_byte", repr(look["valid_bits_per_byte"])))
        writer.writerows((look["step"], as_text(key), repr(value)) for key, value in look.get("geometry", {}).items())
    return out.getvalue()


def training_caption(name: str) -> str:
    return f"{name} · lines from the first site or layer (blue) to the last (yellow)"


def _lines(looks: Sequence[Look], prefix: str) -> dict[str, list[float | None]]:
    if not prefix:
        return {"": [look["valid_bits_per_byte"] for look in looks]}
    seen = [look.get("geometry", {}) for look in looks]
    names = [key.removeprefix(prefix) for key in seen[-1] if key.startswith(prefix)]
    if prefix != "attention_entropy/":
        return {name: [row.get(prefix + name) for row in seen] for name in names}
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.split("H")[0], []).append(prefix + name)
    return {layer: [_mean([row.get(key) for key in keys]) for row in seen] for layer, keys in layers.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _line(looks: Sequence[Look], label: str, values: Sequence[float | None], depth: float) -> go.Scatter:
    # Either end of the scale is invisible in one of the two themes.
    colour = sample_colorscale(SEQUENTIAL, [0.25 + 0.65 * depth])[0] if label else LIGHT.accent
    start = f"{label}<br>" if label else ""
    return go.Scatter(
        x=[look["step"] or BEFORE for look in looks],
        y=values,
        customdata=[look["step"] for look in looks],
        mode="lines+markers",
        line={"color": colour, "width": 1.6},
        marker={"size": 4, "color": colour},
        hovertemplate=f"{start}step %{{customdata:,}}: %{{y:.4g}}<extra></extra>",
    )


def training_headline(looks: Sequence[Look]) -> str:
    """Bits per byte, and whether the effective rank fell before it rose."""
    prefix = "effective_rank/"
    names = [key for key in looks[-1].get("geometry", {}) if key.startswith(prefix)]
    bits = f"{looks[0]['valid_bits_per_byte']:.2f} → {looks[-1]['valid_bits_per_byte']:.2f} bits per byte"
    if not names:
        return bits
    name = names[-1]
    known = [(look.get("geometry", {}).get(name), look["step"]) for look in looks]
    # A rank that was not measured is none, not zero.
    ranks = [(rank, step) for rank, step in known if rank is not None]
    if not ranks:
        return bits
    low, step = min(ranks)
    first, last = ranks[0][0], ranks[-1][0]
    site = name.removeprefix(prefix)
    if low < 0.5 * min(first, last):
        fall = f"falls from {first:.0f} to {low:.0f} at step {step:,} and rises to {last:.0f}"
        return f"{bits}; at {site} the effective rank {fall}"
    return f"{bits}; at {site} the effective rank goes from {first:.0f} to {last:.0f}"
