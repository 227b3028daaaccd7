"""How isotropic is the cloud of tokens at each station of a block: before a norm, on the sphere, after gain and shift,
and as what the sublayer writes?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.write_samples import WRITE_SAMPLES
from armillary.probes.machinery import Evidence, Floats, Ints, over_sites
from armillary.probes.sphere.across_sites import document_weights
from armillary.probes.sphere.spectra.clouds import mean_cosine, membership, participation, top_axis

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

STATIONS = ("x", "z", "y", "write")
X, Z, Y, WRITE = range(4)
ATTENTION, FEED_FORWARD = "attention", "feed-forward"
DRAWS = 400


@dataclass(frozen=True)
class Sublayer:
    """Attention or the feed-forward of one layer, the norm whose output it reads, and the site of its write."""

    layer: int
    kind: str
    norm: str
    write: str

    @property
    def name(self) -> str:
        return f"L{self.layer} {self.kind}"


def sublayers(anatomy: "Anatomy") -> tuple[Sublayer, ...]:
    """In the order of the computation; those that read no norm (the first of some post-norm models) are left out."""
    from armillary.anatomy.folded import mlp_norm, reading_norm

    parts = []
    for layer in range(anatomy.layers):
        parts.append(Sublayer(layer, ATTENTION, reading_norm(anatomy, layer)[0], f"L{layer}.attn_out"))
        if anatomy.blocks[layer].channels is not None:
            parts.append(Sublayer(layer, FEED_FORWARD, mlp_norm(anatomy, layer)[0], f"L{layer}.mlp_out"))
    return tuple(part for part in parts if part.norm in anatomy.norms)


@dataclass(frozen=True, eq=False)
class Cycle:
    """Of one arm; [1 + draw, sublayer, station] and [sublayer, station], the first draw being the text itself."""

    participation: Floats
    """Participation ratio over d: 1 is isotropic, 1/d is one axis. NaN where nothing varies."""
    cosine: Floats
    top: Floats
    """Share of the variance along the strongest axis."""
    tokens: int


def cycle(evidence: Evidence, arm: str, described: bool = False) -> Cycle:
    """Every sublayer's stations. Cosines and top axes decide nothing and are measured where `described`."""
    named = {part.name: part for part in sublayers(evidence.anatomy)}
    weights = document_weights(evidence, DRAWS)
    measured = over_sites(list(named), lambda name: _stations(evidence, arm, named[name], weights, described))
    ratios, cosines, tops, tokens = zip(*measured.values(), strict=True)
    return Cycle(np.stack(ratios, 1), np.array(cosines), np.array(tops), min(tokens))


def _stations(
    evidence: Evidence, arm: str, part: Sublayer, weights: Floats, described: bool
) -> tuple[Floats, Floats, Floats, int]:
    clouds, document = sampled_clouds(evidence, arm, part)
    member = membership(document, weights.shape[1])
    ratios = np.stack([participation(points, member, weights) for points in clouds], -1) / evidence.anatomy.d
    # A write of nothing has no shape: what rounding leaves of it has no meaning.
    power = np.array([np.square(points - points.mean(0)).sum() for points in clouds])
    ratios = np.where(power > 1e-20 * power.max(initial=0), ratios, np.nan)
    cosines = tops = np.full(len(STATIONS), np.nan)
    if described:
        cosines = np.array([mean_cosine(points, member, weights[:1])[0] for points in clouds])
        tops = np.array([top_axis(points, document) for points in clouds])
    return ratios, cosines, tops, len(document)


def sampled_clouds(evidence: Evidence, arm: str, part: Sublayer) -> tuple[list[Floats], Ints]:
    """x, z, y and write [token, d] of the same ordinary tokens, and their documents; float32 as the model has them."""
    norm = evidence.model(arm).norms[part.norm]
    read = evidence[SAMPLES][arm].rows[part.norm].sample()
    written = evidence[WRITE_SAMPLES][arm].rows[part.write].sample()
    # Both keep the tokens of least priority in its order, so the shorter list is the beginning of the longer one.
    count = min(len(read.rows), len(written.rows))
    assert bool((read.payload[:count] == written.payload[:count]).all()), "the samples hold different tokens"
    ordinary = read.marks[:count] == 0
    x, write = (rows[:count][ordinary] for rows in (read.rows, written.rows))
    z = norm.direction(x)
    y = z * norm.gain.float().cpu() + (0 if norm.shift is None else norm.shift.float().cpu())
    document = read.payload[:count, 0][ordinary].numpy()
    return [points.numpy() for points in (x, z, y, write)], document
