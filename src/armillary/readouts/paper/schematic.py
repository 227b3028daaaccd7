"""E9: what do gain, shift and W_QK make of a circle of directions? Drawn from the model's own numbers.

A circle of radius √d lies on the sphere that the norm gives; the gain makes an ellipse of it in another plane, the shift
moves that, and W_QK makes of it what the head looks for. Two planes are taken: the one that a head's queries see most (the
first two left singular vectors of its folded W_QK), and the one in which the gain differs most (the coordinates of its
largest and its smallest entry).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.anatomy.space import Vectors
from armillary.geometry.factored import SVD
from armillary.geometry.subspace import principal_angles
from armillary.readouts.ask import Gauge
from armillary.readouts.head_spectra import Decomposed, folded_at
from armillary.readouts.reader import Reader
from armillary.readouts.singular import bias_vectors, both_signs
from armillary.results import Column, Quantity, Table
from armillary.results.schematic import Row, Schematic, Stage
from armillary.results.sheet import Sheet
from armillary.results.table import Cell

Floats = NDArray[np.float64]
# A picture holds so many heads, one a layer.
DRAWN = 3
COLUMNS = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column(
        "plane", "seen: W_QK's first two left singular vectors; gain: the coordinates where |γ| is largest and smallest"
    ),
    Column("stage", "direction: z; gain: γ⊙z; shift: γ⊙z + β; W_QK: where keys are read"),
    Column("axis_1", "longer half axis"),
    Column("axis_2", "shorter half axis"),
    Column("shift", "how far the centre stands from the origin, within the plane"),
    Column("away", "how far it stands out of the plane"),
    Column("turn_1", "smaller angle between the plane and that of the stage before", "°"),
    Column("turn_2", "larger angle between them", "°"),
    Column("axis_3", "√d times the third singular value of W_QK: where it nears axis_2, the plane 'seen' is loose"),
)
POINTS = (*COLUMNS[:4], Column("degrees", "point of the circle", "°"), Column("x", "drawn"), Column("y", "drawn"))


Key = tuple[int, int, str]
"""Layer, head and which plane."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Two orthonormal directions p [d, 2], what W_QK makes of them [d, 2], and what biases add there [d]."""

    norm: Norm
    p: Tensor
    seen: Tensor
    bias: Tensor
    third: float | None = None
    """The third singular value, where p are the first two."""
    tips: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """What stands at the ends of p, and at those of what is seen."""

    def stages(self) -> tuple[Stage, ...]:
        radius, origin = self.norm.d**0.5, np.zeros(2)
        frame, ellipse = _polar(radius * self.norm.gain.to(self.p)[:, None] * self.p)
        turned = tuple(float(turn) for turn in torch.rad2deg(principal_angles(self.p, frame)))
        plane = f"the plane turns by {turned[0]:.0f}° and {turned[1]:.0f}°"
        beta = self.norm.shift
        shift, away = _within(frame, torch.zeros_like(self.bias) if beta is None else beta.to(self.bias))
        there, image = _polar(radius * self.seen)
        drift, off = _within(there, self.bias)
        moved = "this norm has no shift" if beta is None else f"β moves it {_far(shift, away)}"
        biased = f"shift and biases move it {_far(drift, off)}" if bool(self.bias.any()) else "no bias moves it"
        return (
            Stage("direction z", radius * np.eye(2), origin, 0.0, (f"radius √d = {radius:.3g}",), tips=self.tips[0]),
            Stage("gain γ⊙z", ellipse, origin, 0.0, (_half_axes(ellipse), plane), turned),
            Stage("shift γ⊙z + β", ellipse, shift, away, (moved,), (0.0, 0.0)),
            Stage("W_QK", image, drift, off, (_half_axes(image), biased), tips=self.tips[1]),
        )


def _polar(columns: Tensor) -> tuple[Tensor, Floats]:
    """An orthonormal frame of two columns' plane, turned as little as can be, and the stretch within it [2, 2]."""
    u, s, vt = torch.linalg.svd(columns, full_matrices=False)
    return u @ vt, np.asarray((vt.mT * s @ vt).cpu().numpy())


def _within(frame: Tensor, vector: Tensor) -> tuple[Floats, float]:
    """A vector's two coordinates in a plane, and its length out of it."""
    inside = frame.mT @ vector
    return np.asarray(inside.cpu().numpy()), float((vector - frame @ inside).norm())


def _half_axes(matrix: Floats) -> str:
    long, short = np.linalg.svd(matrix, compute_uv=False)
    return f"half axes {long:.3g} and {short:.3g}" + (f" ({long / short:.2f}:1)" if short > 0 else "")


def _far(shift: Floats, away: float) -> str:
    return f"{np.linalg.norm(shift):.2g} in the plane, {away:.2g} out of it"


def planes_of(anatomy: Anatomy, one: Decomposed) -> dict[Key, Plane]:
    """Both planes of every head; none where attention reads no norm, or where a head has one direction alone."""
    folded = folded_at(anatomy, one.layer, 0)
    if folded.norm is None or one.svd.values.shape[-1] < 2:
        return {}
    biases, svd, form = bias_vectors(folded)[0], one.svd, folded.qk()
    extreme, named = _extremes(folded.norm, svd.left)
    made: dict[Key, Plane] = {}
    for h in range(anatomy.n_heads):
        third = float(svd.values[h, 2]) if svd.values.shape[-1] > 2 else None
        first = svd.right[h, :, :2] * svd.values[h, :2]
        made[one.layer, h, "seen"] = Plane(folded.norm, svd.left[h, :, :2], first, biases[h], third)
        image = form.right[h] @ (form.left[h].mT @ extreme)
        made[one.layer, h, "gain"] = Plane(folded.norm, extreme, image, biases[h], tips=(named, ()))
    return made


def _extremes(norm: Norm, like: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """The directions [d, 2] nearest to the coordinates of the largest and the smallest gain, and the ends' names."""
    size = norm.gain.abs()
    ends = (
        torch.stack((size.argmax(), size.argmin())) if float(size.max()) > float(size.min()) else torch.tensor([0, 1])
    )
    axes = torch.nn.functional.one_hot(ends.cpu(), norm.d).T.to(like)
    frame, _ = _polar(axes - axes.mean(0) if norm.kind == "layernorm" else axes)
    return frame, tuple(f"{sign}{int(end)}" for end in ends for sign in "+−")


def worded(plane: Plane, reader: Reader, layer: int) -> Plane:
    """The plane 'seen', its signs turned as read-outs turn them, with the first word at every end."""
    words = reader.directions(layer)
    length = plane.seen.norm(dim=0)
    right = plane.seen / length.clamp_min(1e-300)
    turned = SVD(plane.p[None].float(), length[None].float(), right[None].float()).oriented(
        words.values[reader.allowed]
    )
    sign = (turned.left[0] * plane.p.float()).sum(0).sign().to(plane.p)
    tips = []
    for side in (turned.left, turned.right):
        best = reader.read(Vectors(both_signs(side), words.space), words).ids[:, 0]
        tips.append(tuple(reader.vocabulary.texts[int(i)] for i in best))
    return replace(plane, p=plane.p * sign, seen=plane.seen * sign, tips=(tips[0], tips[1]))


def schematic(anatomy: Anatomy, found: Sequence[Decomposed], gauge: Gauge, reader: Reader | None) -> Sheet | None:
    """All heads of the decomposed layers in numbers; drawn is the strongest of a few layers. None where there is no plane."""
    forms = [one for one in found if one.matrix == "qk"]
    planes: dict[Key, Plane] = {}
    for one in forms:
        planes |= planes_of(anatomy, one)
    if not planes:
        return None
    stages = {key: plane.stages() for key, plane in planes.items()}
    drawn = {key: planes[key] for key in _drawn(forms, planes)}
    if reader is not None:
        drawn = {key: worded(one, reader, key[0]) if key[2] == "seen" else one for key, one in drawn.items()}
    picture = Schematic(tuple(Row(key[0], f"L{key[0]}H{key[1]}", key[2], one.stages()) for key, one in drawn.items()))
    maps = _maps(stages, anatomy.n_heads)
    gain, _, shift, seen = (float(np.nanmedian(one.values)) for one in maps)
    return Sheet(
        name="E9-schematic",
        title=f"Where queries see most, the circle becomes an ellipse of {gain:.2f}:1 by the gain and of {seen:.2f}:1 by W_QK; "
        f"{'no shift moves it' if shift == 0 else f'the shift moves it by {shift:.2g} of its radius'} (median head)",
        caption=f"{anatomy.name} · the strongest heads of some layers" + (" · Δ = 0" if anatomy.rotary_path else ""),
        tables={"stages": Table.of(COLUMNS, _rows(stages, planes)), "points": Table.of(POINTS, _points(picture))},
        quantities=maps,
        notes=(
            "Every curve is computed: a circle of radius √d in the plane that the row names; what γ makes of it, in the plane where "
            "that lies, drawn with as little turning as can be; β, in that plane and out of it; what W_QK makes of it where keys are "
            "read. Brass and blue follow the plane's two axes, solid ends are +. Strongest: the largest σ1 in its layer.",
        ),
        about=gauge.about(anatomy),
        drawing=picture,
    )


def _drawn(forms: Sequence[Decomposed], planes: dict[Key, Plane]) -> list[Key]:
    """What the strongest head of a few layers sees most, and the gain's extremes in the one between."""
    known = [one for one in forms if (one.layer, 0, "seen") in planes]
    at = dict.fromkeys(np.linspace(0, len(known) - 1, min(DRAWN, len(known))).round().astype(int).tolist())
    heads = [(known[i].layer, int(known[i].values[:, 0].argmax())) for i in at]
    between = heads[len(heads) // 2]
    return [*((layer, head, "seen") for layer, head in heads), (*between, "gain")]


def _rows(stages: dict[Key, tuple[Stage, ...]], planes: dict[Key, Plane]) -> list[dict[str, Cell]]:
    made: list[dict[str, Cell]] = []
    for key, ways in stages.items():
        layer, head, plane = key
        third = planes[key].third
        scaled = None if third is None else third * planes[key].norm.d ** 0.5
        for stage in ways:
            row: dict[str, Cell] = {
                "layer": layer,
                "head": f"L{layer}H{head}",
                "plane": plane,
                "stage": stage.name.split()[0],
            }
            row |= {"axis_1": stage.axes[0], "axis_2": stage.axes[1], "away": stage.away}
            row |= dict(zip(("turn_1", "turn_2"), stage.turned or (None, None), strict=True))
            row |= {"shift": float(np.linalg.norm(stage.centre)), "axis_3": scaled if stage.name == "W_QK" else None}
            made.append(row)
    return made


def _points(picture: Schematic) -> list[dict[str, Cell]]:
    degrees = np.arange(0.0, 360.0, 15.0)
    made: list[dict[str, Cell]] = []
    for row in picture.rows:
        for stage in row.stages:
            start: dict[str, Cell] = {
                "layer": row.layer,
                "head": row.head,
                "plane": row.plane,
                "stage": stage.name.split()[0],
            }
            points = zip(degrees.tolist(), stage.curve(degrees).tolist(), strict=True)
            made += [{**start, "degrees": at, "x": x, "y": y} for at, (x, y) in points]
    return made


def _maps(stages: dict[Key, tuple[Stage, ...]], heads: int) -> tuple[Quantity, ...]:
    """Layer by head: what the gain makes of either plane, the shift over the radius that it leaves, what W_QK makes."""
    layers = list(dict.fromkeys(layer for layer, _, _ in stages))
    found = np.full((4, len(layers), heads), np.nan)
    for (layer, head, plane), (_, gain, shift, seen) in stages.items():
        at = found[:, layers.index(layer), head]
        if plane == "gain":
            at[1] = _ratio(gain)
        else:
            moved = float(np.hypot(np.linalg.norm(shift.centre), shift.away))
            at[[0, 2, 3]] = _ratio(gain), moved / max(float(np.mean(gain.axes)), 1e-300), _ratio(seen)
    coords = {"layer": [f"L{layer}" for layer in layers], "head": [f"H{head}" for head in range(heads)]}
    told = (
        (
            "stretch by the gain, where queries see most",
            "longer over shorter half axis of what γ makes of the circle",
            "ratio",
        ),
        ("stretch by the gain, where it differs most", "the same at the coordinates of its extremes", "ratio"),
        ("shift over radius", "length of β over the mean half axis, where queries see most", "share"),
        ("stretch by W_QK", "longer over shorter half axis of what W_QK makes of the circle: σ1/σ2", "ratio"),
    )
    return tuple(Quantity(*texts, ("layer", "head"), coords, values) for texts, values in zip(told, found, strict=True))


def _ratio(stage: Stage) -> float:
    long, short = stage.axes
    return long / short if short > 0 else float("nan")
