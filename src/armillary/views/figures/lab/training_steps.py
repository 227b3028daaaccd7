"""A model's geometry at one step of its training after another: frames that a page can play."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from armillary.results.quantity import Quantity
from armillary.views.figures import theme  # noqa: F401  (registers the template)
from armillary.views.figures.figure import drawn

Look = Mapping[str, Any]
_HEAD = re.compile(r"L(\d+)H(\d+)")


def steps_figure(looks: Sequence[Look], name: str, narrow: bool = False) -> go.Figure:
    """Effective rank and length by site, and attention entropy by head, with one frame per evaluation."""
    looks = [look for look in looks if look.get("geometry")]
    figures = [drawn(step_quantities(look), title(look), name, narrow=narrow) for look in looks]
    figure = figures[-1]
    figure.frames = [
        go.Frame(name=f"step {look['step']:,}", data=f.data, layout={"title": {"text": f.layout.title.text}})
        for look, f in zip(looks, figures, strict=True)
    ]
    _same_scales(figure, figures)
    return figure


def title(look: Look) -> str:
    bits = look["valid_bits_per_byte"]
    return f"At step {look['step']:,} the held-out text costs {bits:.2f} bits per byte"


def step_quantities(look: Look) -> list[Quantity]:
    geometry: Mapping[str, float | None] = look["geometry"]
    quantities = []
    for prefix, meaning, unit in (
        ("effective_rank/", "participation ratio of directions at each norm", "effective rank"),
        ("length/", "mean length of the stream at each norm", "length"),
    ):
        by_site = {key.removeprefix(prefix): value for key, value in geometry.items() if key.startswith(prefix)}
        values = np.array([np.nan if v is None else v for v in by_site.values()], dtype=float)
        logs = ("value",) if prefix == "length/" else ()
        quantities.append(Quantity(unit, meaning, unit, ("site",), {"site": list(by_site)}, values, logs=logs))
    heads = {k: v for k, v in geometry.items() if k.startswith("attention_entropy/") and _HEAD.search(k)}
    if heads:
        quantities.append(_entropy(heads))
    return quantities


def _entropy(heads: Mapping[str, float | None]) -> Quantity:
    places = [tuple(map(int, _HEAD.search(key).groups())) for key in heads]  # type: ignore[union-attr]
    layers, count = (max(place[i] for place in places) + 1 for i in (0, 1))
    grid = np.full((layers, count), np.nan)
    for (layer, head), value in zip(places, heads.values(), strict=True):
        grid[layer, head] = np.nan if value is None else value
    coords = {"layer": [f"L{i}" for i in range(layers)], "head": [f"H{i}" for i in range(count)]}
    meaning = "of every head, over ln(keys): 1 is uniform"
    return Quantity("attention entropy", meaning, "share of ln(keys)", ("layer", "head"), coords, grid)


def _same_scales(figure: go.Figure, figures: Sequence[go.Figure]) -> None:
    """Axes and colours that hold for all steps, so that what moves is the model."""
    for key in figure.layout:
        if key.startswith("yaxis") and figure.layout[key].range is not None:
            ends = [f.layout[key].range for f in figures if f.layout[key].range is not None]
            if ends[0][0] < ends[0][1]:
                figure.layout[key].range = [min(end[0] for end in ends), max(end[1] for end in ends)]
        if key.startswith("coloraxis") and figure.layout[key].cmin is not None:
            figure.layout[key].cmin = min(f.layout[key].cmin for f in figures)
            figure.layout[key].cmax = max(f.layout[key].cmax for f in figures)
