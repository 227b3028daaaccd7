"""Which hidden units are never active on a text, always active, or duplicates of another?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy.anatomy import FeedForward
from armillary.probes.filter.activations.hidden import HiddenLayer
from armillary.probes.machinery import Flags, Floats, Ints, T, cells, table
from armillary.results import Table

# Cosines are first taken of sketches this wide: two rows at 0.99 are then at 0.9 or more, and unrelated rows are seven
# standard deviations below that.
SKETCH, NEAR, ROWS = 64, 0.9, 1024
# Two units that fire on the same one or two tokens correlate perfectly by chance: each must fire on at least so many.
ACTIVE_TOKENS = 8
# A token whose activations are this many times as long as the median token's is massive. Nearly all units peak on such
# tokens, so that units that share nothing else correlate there: duplicates are sought on the other tokens.
MASSIVE = 4.0


@dataclass(frozen=True, eq=False)
class Units:
    """The state of every unit of a layer [m]."""

    silent: Flags
    """Never above 1 % of the median unit's peak on this text."""
    always: Flags
    """Above zero before the activation on every token."""
    never: Flags
    """At or below zero on every token."""
    peak: Floats
    """The largest |post|, as a share of the median unit's."""
    on: Floats
    """Share of tokens on which it is above zero."""
    partner: Ints
    """An earlier unit that this one duplicates, by weights or by activations; −1 if there is none."""
    cosine: Floats
    """The smallest |cos| of their W_in (and W_gate) columns and W_out rows."""
    correlation: Floats
    """Of their activations over the sampled ordinary tokens; NaN where one of them fires on too few."""
    massive: int
    """How many sampled tokens were massive, and left out."""

    @property
    def double(self) -> Flags:
        return self.partner >= 0


def find_units(layer: HiddenLayer, ffn: FeedForward, seed: int) -> Units:
    peak = layer.peak.numpy()
    typical = float(np.median(peak))
    post = torch.from_numpy(layer.sample("post"))
    ordinary = ordinary_tokens(post)
    partner, cosine, correlation = _doubles(ffn, post[ordinary], seed)
    return Units(
        silent=(peak < T.discard_peak * typical) | (peak == 0),
        always=(layer.least > 0).numpy(),
        never=(layer.most <= 0).numpy(),
        peak=peak / typical if typical > 0 else np.zeros_like(peak),
        on=1 - layer.off[0].numpy() / max(1, layer.tokens),
        partner=partner,
        cosine=cosine,
        correlation=correlation,
        massive=int((~ordinary).sum()),
    )


def ordinary_tokens(post: Tensor) -> Tensor:
    """[token]: is the token not massive? From its activations [token, m]."""
    length = post.norm(dim=1)
    return length <= MASSIVE * length.median()


def _doubles(ffn: FeedForward, post: Tensor, seed: int) -> tuple[Ints, Floats, Floats]:
    weights = [w.float() for w in (ffn.W_in.T, ffn.W_out, *(() if ffn.W_gate is None else (ffn.W_gate.T,)))]
    centred = (post - post.mean(0)).T if len(post) else post.T
    power = centred.square()
    fires = power.sum(1).square() >= ACTIVE_TOKENS * power.square().sum(1).clamp_min(1e-300)
    active = torch.where(fires[:, None], centred, 0).float()
    by_weights, cosine = closest(weights, seed)
    by_activity, correlation = closest([active], seed)
    same_weights, same_activity = cosine > T.duplicate_cos, correlation.abs() > T.duplicate_cos
    partner = torch.where(same_weights, by_weights, torch.where(same_activity, by_activity, -1))
    # Both numbers of the named pair, whichever of them identified it.
    here = partner.clamp_min(0)
    cosine = torch.stack([_cosine(w, here).abs() for w in weights]).amin(0)
    correlation = torch.where(fires & fires[here], _cosine(active, here), torch.nan)
    double = partner >= 0
    return (
        partner.numpy(),
        torch.where(double, cosine, torch.nan).double().numpy(),
        torch.where(double, correlation, torch.nan).double().numpy(),
    )


def closest(parts: Sequence[Tensor], seed: int) -> tuple[Tensor, Tensor]:
    """For every row the earlier row most similar to it in all parts [m, d] at once, and the smallest |cos| over the
    parts.

    Similarity 0 means that no row is near; a row of zeros is similar to nothing.
    """
    m = len(parts[0])
    sketches = [_sketch(part, seed + i) for i, part in enumerate(parts)]
    partner = torch.zeros(m, dtype=torch.long)
    similarity = torch.zeros(m)
    for start in range(0, m, ROWS):
        rows = slice(start, min(m, start + ROWS))
        joint = torch.stack([(s[rows] @ s[: rows.stop].T).abs() for s in sketches]).amin(0)
        similarity[rows], partner[rows] = joint.tril(start - 1).max(1)
    exact = torch.stack([_cosine(part, partner).abs() for part in parts]).amin(0).cpu()
    return partner, torch.where(similarity > NEAR, exact, 0)


def _sketch(rows: Tensor, seed: int) -> Tensor:
    rows = rows.float().cpu()
    if rows.shape[1] > 2 * SKETCH:
        drawn = np.random.default_rng(seed).standard_normal((rows.shape[1], SKETCH), dtype=np.float32)
        rows = rows @ torch.from_numpy(drawn)
    return torch.nn.functional.normalize(rows, dim=1, eps=1e-30)


def _cosine(rows: Tensor, partner: Tensor) -> Tensor:
    """The cosine of each row with its partner's, 0 where either is zero."""
    unit = torch.nn.functional.normalize(rows.double(), dim=1, eps=1e-30)
    return (unit * unit[partner.to(rows.device)]).sum(1).cpu()


def unit_table(layers: Sequence[Units], most: int) -> tuple[Table, int]:
    """Units that stand out, at most `most` of them, and how many there are.

    Duplicates come first, then silent units: these are the ones that could be removed.
    """
    kinds = {"double": "double", "silent": "silent", "always on": "always"}
    places = [
        (what, layer, int(unit))
        for what, flags in kinds.items()
        for layer, units in enumerate(layers)
        for unit in np.flatnonzero(getattr(units, flags))
    ]

    def column(name: str, doubles_only: bool = False) -> list[float | int | None]:
        return [
            None if doubles_only and what != "double" else getattr(layers[layer], name)[unit].item()
            for what, layer, unit in places[:most]
        ]

    listed = table(
        cells("layer", "layer", [layer for _, layer, _ in places[:most]]),
        cells("unit", "hidden unit", [unit for _, _, unit in places[:most]]),
        cells(
            "what", "silent on this text, always on, or a duplicate of an earlier unit", [p[0] for p in places[:most]]
        ),
        cells("partner", "the earlier unit it duplicates; empty for the others", column("partner", True)),
        cells("peak", "its largest |activation| on this text, over the median unit's", column("peak")),
        cells("on", "share of tokens on which it is above zero before the activation", column("on")),
        cells(
            "cosine",
            "smallest |cos| of the pair's columns of W_in (and W_gate) and rows of W_out; empty unless a double",
            column("cosine", True),
        ),
        cells(
            "correlation",
            "of the pair's activations on ordinary tokens; empty unless a double, or if one fires on too few of them",
            column("correlation", True),
        ),
    )
    return listed, len(places)
