"""S3's sphere under a shear: the sphere as wire, and its shadow on the plane, for one strength after another."""

import csv
import io
import math

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from armillary.geometry.shadow import sheared_shadow, turned_shadow
from armillary.views.figures import theme  # noqa: F401  (registers the template)
from armillary.views.figures.figure import heading
from armillary.views.figures.marks import LIGHT

Floats = NDArray[np.float64]
STRENGTHS = tuple(round(0.1 * i, 1) for i in range(21))
START = 10
TITLE = "A shear moves the sphere's shadow by a square root: not linear in the shadow, although the shear is linear"
CAPTION = (
    "(x, y, z) ↦ (x + s·z, y, z) · dotted: a rotation by the angle that tilts the axis as far; its shadow has the same "
    "root"
)
TILT = math.radians(20)


def shear_figure(narrow: bool = False) -> go.Figure:
    """Two panels, below each other on a narrow screen; one frame for each strength."""
    figure = go.Figure(data=_traces(STRENGTHS[START]))
    figure.frames = [go.Frame(name=f"s = {s:.1f}", data=_traces(s)) for s in STRENGTHS]
    above = heading(TITLE, CAPTION)
    top = above.pop("top")
    left, right = ([0, 1], [0, 1]) if narrow else ([0, 0.46], [0.56, 1])
    upper, lower = ([0.56, 1], [0, 0.4]) if narrow else ([0, 1], [0, 1])
    plain = {"showgrid": False, "showticklabels": False, "showline": False, "ticks": "", "fixedrange": True}
    figure.update_layout(
        template="armillary",
        height=(800 if narrow else 460) + top,
        margin={"t": top, "l": 54, "r": 20, "b": 150 if narrow else 96},
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 12}},
        xaxis={**plain, "domain": left, "range": [-2.3, 2.3], "title": {"text": "the sheared sphere"}},
        yaxis={**plain, "domain": upper, "range": [-1.3, 1.3], "scaleanchor": "x"},
        xaxis2={"domain": right, "anchor": "y2", "range": [-1.05, 1.05], "title": {"text": "x before, radii"}},
        yaxis2={"domain": lower, "anchor": "x2", "range": [-2.4, 2.4], "title": {"text": "x after, radii"}},
        **above,
    )
    return figure


def shear_csv() -> str:
    """Where points of the upper half's shadow at y = 0 go, for every strength."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("strength", "x before", "x after"))
    x = np.linspace(-1, 1, 61)
    for strength in STRENGTHS:
        after = sheared_shadow(x, np.zeros_like(x), strength)[0]
        writer.writerows((strength, f"{a:.4f}", f"{b:.6f}") for a, b in zip(x, after, strict=True))
    return out.getvalue()


def _traces(strength: float) -> list[go.Scatter]:
    """The wire behind and in front, then the shadow's curves; always as many."""
    behind, front = _wire(strength)
    # Denser towards the rim, where the root is steep.
    x = -np.cos(np.linspace(0, np.pi, 81))
    zero = np.zeros_like(x)
    lines = {
        "upper half, sheared": (sheared_shadow(x, zero, strength)[0], LIGHT.accent, "solid"),
        "lower half, sheared": (sheared_shadow(x, zero, strength, -1)[0], LIGHT.second, "solid"),
        "upper half, rotated": (turned_shadow(x, zero, math.atan(strength))[0], LIGHT.control, "dot"),
        "not moved": (x, LIGHT.soft, "dash"),
    }
    wires = [
        go.Scatter(x=behind[:, 0], y=behind[:, 1], mode="lines", hoverinfo="skip", opacity=0.35, showlegend=False,
                   line={"color": LIGHT.control, "width": 1}),
        go.Scatter(x=front[:, 0], y=front[:, 1], mode="lines", hoverinfo="skip", showlegend=False,
                   line={"color": LIGHT.accent, "width": 1.4}),
    ]  # fmt: skip
    return wires + [
        go.Scatter(
            x=x, y=y, mode="lines", name=name, xaxis="x2", yaxis="y2", line={"color": colour, "width": 2, "dash": dash},
            hovertemplate=f"{name}<br>%{{x:.2f}} → %{{y:.2f}}<extra></extra>",
        )
        for name, (y, colour, dash) in lines.items()
    ]  # fmt: skip


def _wire(strength: float) -> tuple[Floats, Floats]:
    """Circles of latitude and longitude of the sheared sphere, seen from a little above: [n, 2], gaps are NaN."""
    turn = np.linspace(0, 2 * np.pi, 73)
    rings = []
    for height in np.sin(np.radians([-60, -30, 0, 30, 60])):
        radius = math.sqrt(1 - height**2)
        rings.append(np.stack([radius * np.cos(turn), radius * np.sin(turn), np.full_like(turn, height)], 1))
    for angle in np.radians([0, 45, 90, 135]):
        rings.append(np.stack([np.sin(turn) * np.cos(angle), np.sin(turn) * np.sin(angle), np.cos(turn)], 1))
    points = np.stack(rings)
    x, y, z = points[..., 0] + strength * points[..., 2], points[..., 1], points[..., 2]
    # z points up; the eye stands at y → −∞, raised by the tilt.
    seen = np.stack([x, z * math.cos(TILT) + y * math.sin(TILT)], -1)
    # A linear map takes normals by its inverse transpose.
    near = -y * math.cos(TILT) + (z - strength * points[..., 0]) * math.sin(TILT) >= 0
    return tuple(_joined(np.where(side[..., None], seen, np.nan)) for side in (~near, near))  # type: ignore[return-value]


def _joined(rings: Floats) -> Floats:
    gap = np.full((len(rings), 1, 2), np.nan)
    return np.concatenate([rings, gap], 1).reshape(-1, 2)
