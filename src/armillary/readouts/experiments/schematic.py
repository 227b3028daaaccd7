"""E9: a circle of directions through gain, shift and W_QK, computed from the model's weights.

A circle of radius √d lies on the norm's sphere. The gain maps it to an ellipse in another plane, the shift moves the
ellipse, and W_QK maps it to the space of keys. Two planes are used: 'seen', where a head's queries are most sensitive
(the first two left singular vectors of its folded W_QK), and 'gain', where the gain varies most (the coordinates of its
largest and its smallest entry).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.anatomy.space import Vectors
from armillary.geometry.factored import SVD
from armillary.geometry.subspace import principal_angles
from armillary.readouts.head_spectra import Decomposed, Floats, folded_at, head_map
from armillary.readouts.reader import Reader
from armillary.readouts.settings import Settings
from armillary.readouts.singular_vectors import bias_vectors, both_signs
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.schematic import Row, Schematic, Stage
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

# Heads in the drawing, one per layer.
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
    Column("shift", "distance of the centre from the origin, within the plane"),
    Column("away", "distance of the centre out of the plane"),
    Column("turn_1", "smaller angle between the plane and that of the previous stage", "°"),
    Column("turn_2", "larger angle between them", "°"),
    Column(
        "axis_3",
        "√d times the third singular value of W_QK: if it is near axis_2, the plane 'seen' is not well determined",
    ),
)
POINTS = (*COLUMNS[:4], Column("degrees", "point of the circle", "°"), Column("x", "drawn"), Column("y", "drawn"))


Key = tuple[int, int, str]
"""Layer, head and plane."""


@dataclass(frozen=True, eq=False)
class CirclePlane:
    """Two orthonormal directions p [d, 2], their image under W_QK [d, 2], and what biases add to it [d]."""

    norm: Norm
    p: Tensor
    seen: Tensor
    bias: Tensor
    third: float | None = None
    """The third singular value, if p are the first two singular vectors."""
    tips: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Labels at the ends of p, and at the ends of its image."""

    def stages(self) -> tuple[Stage, ...]:
        radius, origin = self.norm.d**0.5, np.zeros(2)
        frame, ellipse = _polar(radius * self.norm.gain.to(self.p)[:, None] * self.p)
        turned = tuple(float(angle) for angle in torch.rad2deg(principal_angles(self.p, frame)))
        plane = f"the plane rotates by {turned[0]:.0f}° and {turned[1]:.0f}°"
        beta = self.norm.shift
        shift, away = _within(frame, torch.zeros_like(self.bias) if beta is None else beta.to(self.bias))
        there, image = _polar(radius * self.seen)
        drift, off = _within(there, self.bias)
        moved = "this norm has no shift" if beta is None else f"β moves it {_distance(shift, away)}"
        biased = f"shift and biases move it {_distance(drift, off)}" if bool(self.bias.any()) else "no bias moves it"
        return (
            Stage("direction z", radius * np.eye(2), origin, 0.0, (f"radius √d = {radius:.3g}",), tips=self.tips[0]),
            Stage("gain γ⊙z", ellipse, origin, 0.0, (_half_axes(ellipse), plane), turned),
            Stage("shift γ⊙z + β", ellipse, shift, away, (moved,), (0.0, 0.0)),
            Stage("W_QK", image, drift, off, (_half_axes(image), biased), tips=self.tips[1]),
        )


def _polar(columns: Tensor) -> tuple[Tensor, Floats]:
    """An orthonormal frame of two columns' plane, rotated as little as possible, and the stretch within it [2, 2]."""
    u, s, vt = torch.linalg.svd(columns, full_matrices=False)
    return u @ vt, np.asarray((vt.mT * s @ vt).cpu().numpy())


def _within(frame: Tensor, vector: Tensor) -> tuple[Floats, float]:
    """A vector's two coordinates in a plane, and its distance out of it."""
    inside = frame.mT @ vector
    return np.asarray(inside.cpu().numpy()), float((vector - frame @ inside).norm())


def _half_axes(matrix: Floats) -> str:
    long, short = np.linalg.svd(matrix, compute_uv=False)
    return f"half axes {long:.3g} and {short:.3g}" + (f" ({long / short:.2f}:1)" if short > 0 else "")


def _distance(shift: Floats, away: float) -> str:
    return f"{np.linalg.norm(shift):.2g} in the plane, {away:.2g} out of it"


def planes_of(anatomy: Anatomy, part: Decomposed) -> dict[Key, CirclePlane]:
    """Both planes of every head; none if attention reads no norm, or if heads have a single direction."""
    folded = folded_at(anatomy, part.layer, 0)
    if folded.norm is None or part.svd.values.shape[-1] < 2:
        return {}
    biases, svd, form = bias_vectors(folded)[0], part.svd, folded.qk()
    extreme, named = _extremes(folded.norm, svd.left)
    planes: dict[Key, CirclePlane] = {}
    for h in range(anatomy.n_heads):
        third = float(svd.values[h, 2]) if svd.values.shape[-1] > 2 else None
        first = svd.right[h, :, :2] * svd.values[h, :2]
        planes[part.layer, h, "seen"] = CirclePlane(folded.norm, svd.left[h, :, :2], first, biases[h], third)
        image = form.right[h] @ (form.left[h].mT @ extreme)
        planes[part.layer, h, "gain"] = CirclePlane(folded.norm, extreme, image, biases[h], tips=(named, ()))
    return planes


def _extremes(norm: Norm, like: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """The directions [d, 2] nearest to the coordinates of the largest and the smallest gain, and their labels."""
    size = norm.gain.abs()
    varies = float(size.max()) > float(size.min())
    ends = torch.stack((size.argmax(), size.argmin())) if varies else torch.tensor([0, 1])
    axes = torch.nn.functional.one_hot(ends.cpu(), norm.d).T.to(like)
    frame, _ = _polar(axes - axes.mean(0) if norm.kind == "layernorm" else axes)
    return frame, tuple(f"{sign}{int(end)}" for end in ends for sign in "+−")


def with_words(plane: CirclePlane, reader: Reader, layer: int) -> CirclePlane:
    """The plane 'seen', with signs as in the read-outs and the first word at every end."""
    words = reader.directions(layer)
    length = plane.seen.norm(dim=0)
    right = plane.seen / length.clamp_min(1e-300)
    svd = SVD(plane.p[None].float(), length[None].float(), right[None].float())
    turned = svd.oriented(words.values[reader.allowed])
    sign = (turned.left[0] * plane.p.float()).sum(0).sign().to(plane.p)
    tips = []
    for side in (turned.left, turned.right):
        best = reader.read(Vectors(both_signs(side), words.space), words).ids[:, 0]
        tips.append(tuple(reader.vocabulary.texts[int(i)] for i in best))
    return replace(plane, p=plane.p * sign, seen=plane.seen * sign, tips=(tips[0], tips[1]))


def schematic_sheet(
    anatomy: Anatomy, parts: Sequence[Decomposed], settings: Settings, reader: Reader | None
) -> Sheet | None:
    """All heads of the decomposed layers in numbers, and a drawing of the strongest ones; None if there is no plane."""
    forms = [part for part in parts if part.matrix == "qk"]
    planes: dict[Key, CirclePlane] = {}
    for part in forms:
        planes |= planes_of(anatomy, part)
    if not planes:
        return None
    stages = {key: plane.stages() for key, plane in planes.items()}
    drawn = {key: planes[key] for key in _drawn(forms, planes)}
    if reader is not None:
        drawn |= {key: with_words(plane, reader, key[0]) for key, plane in drawn.items() if key[2] == "seen"}
    rows = (Row(layer, f"L{layer}H{head}", name, plane.stages()) for (layer, head, name), plane in drawn.items())
    drawing = Schematic(tuple(rows))
    maps = _maps(stages, anatomy.n_heads)
    gain, _, shift, seen = (float(np.nanmedian(quantity.values)) for quantity in maps)
    return Sheet(
        name="E9-schematic",
        title=f"Where queries see most, the gain makes the circle an ellipse of {gain:.2f}:1 and W_QK one of "
        f"{seen:.2f}:1; {'no shift moves it' if shift == 0 else f'the shift moves it by {shift:.2g} of its radius'} "
        "(median head)",
        caption=f"{anatomy.name} · the strongest heads of some layers" + (" · Δ = 0" if anatomy.rotates else ""),
        tables={"stages": Table.of(COLUMNS, _rows(stages, planes)), "points": Table.of(POINTS, _points(drawing))},
        quantities=maps,
        notes=(
            "Every curve is computed: a circle of radius √d in the plane that the row names; its image under γ, in "
            "that image's own plane, rotated as little as possible; β, in that plane and out of it; and the image "
            "under W_QK, in the space of keys. Brass and blue follow the plane's two axes, solid ends are +. "
            "Strongest: the largest σ1 in its layer.",
        ),
        about=settings.about(anatomy),
        drawing=drawing,
    )


def _drawn(forms: Sequence[Decomposed], planes: dict[Key, CirclePlane]) -> list[Key]:
    """The plane 'seen' of the strongest head of a few layers, and the plane 'gain' of the middle one."""
    known = [part for part in forms if (part.layer, 0, "seen") in planes]
    at = dict.fromkeys(np.linspace(0, len(known) - 1, min(DRAWN, len(known))).round().astype(int).tolist())
    heads = [(known[i].layer, int(known[i].values[:, 0].argmax())) for i in at]
    return [*((layer, head, "seen") for layer, head in heads), (*heads[len(heads) // 2], "gain")]


def _rows(stages: dict[Key, tuple[Stage, ...]], planes: dict[Key, CirclePlane]) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    for (layer, head, name), path in stages.items():
        plane = planes[layer, head, name]
        third = None if plane.third is None else plane.third * plane.norm.d**0.5
        for stage in path:
            row = _place(layer, f"L{layer}H{head}", name, stage)
            row |= {"axis_1": stage.axes[0], "axis_2": stage.axes[1], "away": stage.away}
            row |= dict(zip(("turn_1", "turn_2"), stage.turned or (None, None), strict=True))
            row |= {"shift": float(np.linalg.norm(stage.centre)), "axis_3": third if stage.name == "W_QK" else None}
            rows.append(row)
    return rows


def _place(layer: int, head: str, plane: str, stage: Stage) -> dict[str, Cell]:
    return {"layer": layer, "head": head, "plane": plane, "stage": stage.name.split()[0]}


def _points(drawing: Schematic) -> list[dict[str, Cell]]:
    degrees = np.arange(0.0, 360.0, 15.0)
    rows: list[dict[str, Cell]] = []
    for row in drawing.rows:
        for stage in row.stages:
            start = _place(row.layer, row.head, row.plane, stage)
            points = zip(degrees.tolist(), stage.curve(degrees).tolist(), strict=True)
            rows += [{**start, "degrees": at, "x": x, "y": y} for at, (x, y) in points]
    return rows


def _maps(stages: dict[Key, tuple[Stage, ...]], heads: int) -> tuple[Quantity, ...]:
    """Layer × head: stretch by the gain in either plane, shift over radius, stretch by W_QK."""
    layers = list(dict.fromkeys(layer for layer, _, _ in stages))
    values = np.full((4, len(layers), heads), np.nan)
    for (layer, head, plane), (_, gain, shift, seen) in stages.items():
        at = values[:, layers.index(layer), head]
        if plane == "gain":
            at[1] = _ratio(gain)
        else:
            moved = float(np.hypot(np.linalg.norm(shift.centre), shift.away))
            at[[0, 2, 3]] = _ratio(gain), moved / max(float(np.mean(gain.axes)), 1e-300), _ratio(seen)
    ratio = "longer over shorter half axis of the circle's image under"
    texts = (
        ("stretch by the gain, where queries see most", f"{ratio} γ", "ratio"),
        ("stretch by the gain, where it varies most", "the same at the coordinates of its extremes", "ratio"),
        ("shift over radius", "length of β over the mean half axis, where queries see most", "share"),
        ("stretch by W_QK", f"{ratio} W_QK: σ1/σ2", "ratio"),
    )
    return tuple(head_map(*text, grid, layers, range(heads)) for text, grid in zip(texts, values, strict=True))


def _ratio(stage: Stage) -> float:
    long, short = stage.axes
    return long / short if short > 0 else float("nan")
