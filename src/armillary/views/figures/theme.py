"""The plotly templates armillary and armillary-dark: background, fonts and grid."""

from dataclasses import asdict
from typing import Any

import plotly.graph_objects as go
import plotly.io

from armillary.views.figures.marks import DARK, FONT, LIGHT, Palette

# Okabe–Ito: categories that colour-blind readers can tell apart.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
SEQUENTIAL = "Cividis"
DIVERGING = [[0.0, "#2166AC"], [0.25, "#92C5DE"], [0.5, "#F4F2EC"], [0.75, "#F4A582"], [1.0, "#B2182B"]]


def template(palette: Palette) -> go.layout.Template:
    axis = {
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "tickcolor": palette.grid,
        "tickfont": {"size": 12, "color": palette.soft},
        "title": {"font": {"size": 12, "color": palette.soft}, "standoff": 8},
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "exponentformat": "power",
        "separatethousands": True,
    }
    layout = {
        "paper_bgcolor": palette.ground,
        "plot_bgcolor": palette.ground,
        "font": {"family": FONT, "size": 13, "color": palette.ink},
        "title": {
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "font": {"size": 19, "color": palette.ink, "weight": 600},
            "subtitle": {"font": {"size": 13, "color": palette.soft}},
        },
        "xaxis": axis | {"showgrid": False},
        "yaxis": axis,
        "colorway": list(CATEGORIES),
        "hoverlabel": {
            "bgcolor": palette.ground,
            "bordercolor": palette.control,
            "font": {"family": FONT, "size": 13, "color": palette.ink},
            "align": "left",
        },
        "coloraxis": {"colorbar": {"outlinewidth": 0, "tickfont": {"size": 11, "color": palette.soft}}},
        "showlegend": False,
    }
    return go.layout.Template(layout=layout)


plotly.io.templates["armillary"] = template(LIGHT)
plotly.io.templates["armillary-dark"] = template(DARK)


def both_themes(figure: go.Figure) -> tuple[str, str]:
    """A figure as JSON, light and dark; no second figure is built, which would take most of the time."""
    record = figure.to_dict()
    return _json(record), _json(dark_record(record))


def dark_record(record: dict[str, Any]) -> dict[str, Any]:
    """The same figure in the dark theme: every colour of the light palette is replaced."""
    other = dict(zip(asdict(LIGHT).values(), asdict(DARK).values(), strict=True))
    dark: dict[str, Any] = _exchanged(record, other)
    dark["layout"]["template"] = plotly.io.templates["armillary-dark"].to_plotly_json()
    return dark


def _json(record: dict[str, Any]) -> str:
    # orjson, the default engine where installed, refuses half characters. A figure's record is valid.
    return str(plotly.io.to_json(record, validate=False, engine="json"))


def _exchanged(value: Any, other: dict[str, str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _exchanged(v, other, k) for k, v in value.items() if k != "template"}
    if isinstance(value, list | tuple):
        return [_exchanged(v, other, key) for v in value]
    # Only under keys that hold colours: a token '#FBFAF7' is data.
    return other.get(value, value) if isinstance(value, str) and key.endswith("color") else value
