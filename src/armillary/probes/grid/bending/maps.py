"""How much of what a matrix does to points of a sphere is left unexplained: by maps that are linear in their shadow, by
rotations, by tangent-linear maps?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import fold, mlp_norm, reading_norm
from armillary.flow.capture import Watcher, run, still, watching
from armillary.geometry.induced_maps import NOTHING, differential, exp_map, induced, log_map, polar_factor, procrustes
from armillary.probes.machinery import Floats, Ints
from armillary.probes.machinery.bench import Bench

POINTS = 768
RIDGE = 1e-2
# Rounding of float32, in which directions are computed.
ROUNDING = 1e-6
SCALES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
# Heads whose d × d matrices are measured in every chosen layer.
HEADS = 2


@dataclass(frozen=True, eq=False)
class SiteMatrix:
    """A matrix [n, m] that acts on rows, and the site whose directions it reads."""

    layer: int
    kind: str
    """`W_Q` of all heads side by side, or `H3 W_QK` of one."""
    values: Tensor
    site: str
    gauge: str

    @property
    def name(self) -> str:
        return f"L{self.layer}{'' if self.kind[0] == 'H' else ' '}{self.kind}"

    @cached_property
    def polar(self) -> Tensor:
        return polar_factor(self.values.cpu())

    @cached_property
    def singular_values(self) -> Tensor:
        """Those above rounding."""
        values = torch.linalg.svdvals(self.values)
        return values[values > NOTHING * values[0]]


def matrices(anatomy: Anatomy, layer: int) -> list[SiteMatrix]:
    """Folded where a norm precedes them, raw elsewhere. Biases are left out, and so are matrices of zeros."""
    return [matrix for matrix in _matrices(anatomy, layer) if bool(matrix.values.any())]


def _matrices(anatomy: Anatomy, layer: int) -> Iterator[SiteMatrix]:
    folded, block = fold(anatomy, layer), anatomy.blocks[layer]
    site, gauge = f"L{layer}.q", "folded" if folded.norm is not None else "raw"
    group = block.attention.group
    for name, heads in (("W_Q", folded.A_Q), ("W_K", folded.A_K[::group]), ("W_V", folded.A_V[::group])):
        yield SiteMatrix(layer, name, heads.permute(1, 0, 2).flatten(1), site, gauge)
    for head in sorted({0, anatomy.n_heads - 1})[:HEADS]:
        yield SiteMatrix(layer, f"H{head} W_QK", folded.qk().dense()[head], site, gauge)
        yield SiteMatrix(layer, f"H{head} W_VO", folded.vo().dense()[head], site, gauge)
    yield SiteMatrix(layer, "W_O", folded.W_O.flatten(0, 1), f"L{layer}.z", "raw")
    ffn, norm = block.feed_forward, mlp_norm(anatomy, layer)[1]
    for name, weight in (("W_gate", ffn.W_gate), ("W_in", ffn.W_in)):
        if weight is not None:
            inward = weight.double() if norm is None else norm.gain.double()[:, None] * weight.double()
            inward = inward - inward.mean(0) if norm is not None and norm.kind == "layernorm" else inward
            yield SiteMatrix(layer, name, inward, f"L{layer}.mlp_pre", "raw" if norm is None else "folded")
    yield SiteMatrix(layer, "W_out", ffn.W_out.double(), f"L{layer}.mlp_post", "raw")


def directions(bench: Bench, sites: Sequence[str]) -> tuple[Mapping[str, Tensor], Ints]:
    """Unit vectors [n, width] that the modules at these sites receive, before gain and shift where a norm precedes
    them; and the document of each. First tokens and those the tokenizer added are left out."""
    anatomy = bench.anatomy
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}
    documents: list[Tensor] = []
    for batch in bench.batches():
        place = torch.arange(batch.ids.shape[1])
        first = torch.tensor([max(1, w.prefix) for w in batch.windows])[:, None]
        last = torch.tensor([len(w.ids) - w.suffix for w in batch.windows])[:, None]
        ordinary = (place >= first) & (place < last)
        watchers = {site: _watcher(anatomy, site, ordinary.to(anatomy.device), parts[site]) for site in sites}
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, batch.ids, batch.mask)
        documents.append(batch.documents[:, None].expand(ordinary.shape)[ordinary])
        bench.tick(batch.tokens)
    every = torch.cat(documents)
    some = np.sort(np.random.default_rng([bench.seed, 71]).permutation(len(every))[:POINTS])
    units = {site: torch.nn.functional.normalize(torch.cat(rows)[some], dim=-1) for site, rows in parts.items()}
    return units, every.numpy()[some]


def _watcher(anatomy: Anatomy, site: str, ordinary: Tensor, rows: list[Tensor]) -> Watcher:
    def watch(given: Tensor | None, value: Tensor) -> None:
        assert given is not None, f"{site} takes no tensor"
        x = given.reshape(*ordinary.shape, -1)[ordinary].double()
        layer, _, part = site.partition(".")
        number = int(layer[1:])
        norm = reading_norm(anatomy, number)[1] if part == "q" else None
        if part == "mlp_pre":
            norm = mlp_norm(anatomy, number)[1]
        if norm is not None:
            # Back to the point on the sphere: gain and shift belong to the folded matrix.
            shift = 0.0 if norm.shift is None else norm.shift.double()
            x = (x - shift) / norm.gain.double().where(norm.gain != 0, torch.inf)
        rows.append(x.cpu())

    return watch


@dataclass(frozen=True, eq=False)
class Unexplained:
    """Sums [group, (y², g², y·g)] of centred images y and the best predictions g of them, for each kind of map."""

    sums: Mapping[str, Floats]

    def share(self, kind: str) -> float:
        return float(unexplained(self.sums[kind].sum(0)))

    @property
    def best(self) -> str:
        """The one of the rotation and the tangent-linear map that leaves less."""
        return min(("rotation", "tangent"), key=self.share)


def unexplained(sums: Floats) -> Floats:
    """1 − R² from (y², g², y·g) along the last axis; 1 where a prediction does not vary."""
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = sums[..., 2] ** 2 / (sums[..., 0] * sums[..., 1])
    return np.asarray(1 - np.where(np.isfinite(r2), np.minimum(r2, 1.0), 0.0))


@dataclass(frozen=True, eq=False)
class Half:
    """Directions x, the half of the documents that maps are fitted to, and what depends on no matrix."""

    x: Tensor
    fit: Tensor

    @cached_property
    def point(self) -> Tensor:
        """The mean direction of the fitted half."""
        return torch.nn.functional.normalize(self.x[self.fit].mean(0), dim=0)

    @cached_property
    def shadow(self) -> Tensor:
        """The part of x ⟂ the mean direction."""
        return self.x - (self.x @ self.point)[:, None] * self.point

    @cached_property
    def from_shadow(self) -> Tensor:
        """[test, fit]: predictions from centred images of the fitted half, linear in the shadow."""
        away = self.shadow - self.shadow[self.fit].mean(0)
        return _ridge(away[self.fit], away[~self.fit])

    @cached_property
    def tangents(self) -> tuple[Tensor, Tensor]:
        """x as tangent vectors at the mean direction, fitted and tested."""
        return log_map(self.point, self.x[self.fit]), log_map(self.point, self.x[~self.fit])

    @cached_property
    def from_tangents(self) -> Tensor:
        """[test, fit]: predictions from tangent images of the fitted half, linear in the tangent vectors."""
        return _ridge(*self.tangents)


class Points:
    """Directions x [n, width] at one site, their documents, and maps that are fitted to one half of the documents and
    tested on the other, and back. Several matrices read them."""

    def __init__(self, x: Tensor, documents: Ints, groups: int) -> None:
        self.x, self.documents, self.groups = x, documents, groups
        even = torch.as_tensor(documents % 2 == 0)
        self.halves = [Half(x, fit) for fit in (even, ~even) if bool(fit.any()) and not bool(fit.all())]

    @property
    def spread(self) -> bool:
        """Do the directions of each half differ by more than rounding in float32?"""
        return all(float(self.x[half.fit].var(0, correction=0).sum()) > ROUNDING**2 for half in self.halves)

    def add(self, total: Floats, half: Half, y: Tensor, predictions: Sequence[Tensor]) -> None:
        """Add the sums of the best of these predictions of the tested half to `total` [group, (y², g², y·g)]."""
        sums = [_sums(y[~half.fit], prediction) for prediction in predictions]
        best = min(sums, key=lambda rows: float(unexplained(rows.sum(0))))
        np.add.at(total, self.documents[~half.fit.numpy()] % self.groups, best)


def unexplained_at(matrix: Tensor, points: Points, polar: Tensor | None = None) -> Unexplained:
    """At the model's own directions; `polar` is the matrix's polar factor, where it is known."""
    x = points.x
    y, polar = induced(x, matrix), polar_factor(matrix) if polar is None else polar
    total = {kind: np.zeros((points.groups, 3)) for kind in ("rotation", "tangent", "linear")}
    for half in points.halves:
        test = x[~half.fit]
        rotated = [induced(test, polar), induced(test, procrustes(x[half.fit], y[half.fit]))]
        points.add(total["rotation"], half, y, rotated)
        points.add(total["tangent"], half, y, _tangents(matrix, half, y))
        points.add(total["linear"], half, y, [test @ matrix])
    return Unexplained({**total, "shadow": shadow_sums(matrix, points)})


def shadow_sums(matrix: Tensor | None, points: Points) -> Floats:
    """[group, (y², g², y·g)] of images y = xA, not brought back to a sphere, and of the better of two maps that are
    linear in the shadow of x: the part of x ⟂ the mean direction of the other half of the documents. The maps are A
    itself and a least-squares fit to that half. `None` stands for any rotation: it turns, and leaves what the identity
    leaves."""
    total = np.zeros((points.groups, 3))
    for half in points.halves:
        shadow = half.shadow[~half.fit]
        y, plain = (points.x, shadow) if matrix is None else (points.x @ matrix, shadow @ matrix)
        images = y[half.fit]
        points.add(total, half, y, [plain, half.from_shadow @ (images - images.mean(0))])
    return total


def _ridge(inside: Tensor, outside: Tensor) -> Tensor:
    """[outside, inside]: what least squares with a ridge predicts outside from images inside. In its dual form where
    rows are fewer than axes."""
    dual = inside.shape[0] < inside.shape[1]
    product = inside @ inside.mT if dual else inside.mT @ inside
    ridged = product + RIDGE * product.trace() / len(product) * torch.eye(len(product), dtype=inside.dtype)
    if dual:
        return torch.linalg.solve(ridged, outside @ inside.mT, left=False)
    return outside @ torch.linalg.solve(ridged, inside.mT)


def unexplained_at_uniform(matrix: Tensor, seed: int, polar: Tensor | None = None) -> Unexplained:
    """At uniform directions, where the best rotation is known, and where the differential at its best scale is close to
    the best linear map (`tests/test_grid_maps.py` shows how close)."""
    draw = np.random.default_rng([seed, *matrix.shape])
    x = torch.nn.functional.normalize(torch.as_tensor(draw.standard_normal((POINTS, len(matrix)))), dim=-1)
    y = induced(x, matrix)
    fit = torch.arange(len(x)) % 2 == 0
    predictions = {"rotation": induced(x, polar_factor(matrix) if polar is None else polar), "linear": x @ matrix}
    sums = {kind: _sums(y, prediction).sum(0)[None] for kind, prediction in predictions.items()}
    return Unexplained(sums | {"tangent": _sums(y[~fit], _tangents(matrix, Half(x, fit), y, False)[0]).sum(0)[None]})


def _sums(y: Tensor, prediction: Tensor) -> Floats:
    y, g = y - y.mean(0), prediction - prediction.mean(0)
    return torch.stack((y.square().sum(1), g.square().sum(1), (y * g).sum(1)), 1).numpy()


def _tangents(matrix: Tensor, half: Half, y: Tensor, squares: bool = True) -> list[Tensor]:
    """Images of the other half by maps that are linear between the tangent spaces at the mean direction and at its
    image: the differential there, at the scale that fits this half best, and the least-squares map of this half."""
    fitted = y[half.fit]
    image = induced(half.point[None], matrix)[0]
    if float(image.norm()) == 0.0:
        return [torch.zeros_like(y[~half.fit])]
    slope = differential(half.point, matrix)
    inside, outside = half.tangents
    mapped = inside @ slope
    errors = [float(unexplained(_sums(fitted, exp_map(image, scale * mapped)).sum(0))) for scale in SCALES]
    scale = SCALES[int(np.argmin(errors))]
    prediction = exp_map(image, scale * (outside @ slope))
    if not squares:
        return [prediction]
    return [prediction, exp_map(image, half.from_tangents @ log_map(image, fitted))]
