"""Which hidden units does a text never wake, never silence, or find twice?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy.anatomy import FeedForward
from armillary.probes.filter.hidden import Layer
from armillary.probes.machinery.evidence import Flags, Floats, Ints
from armillary.probes.machinery.thresholds import THRESHOLDS as T

# Cosines are first taken of sketches so many numbers wide: two rows at 0.99 are then at 0.9 and more, and rows of no
# relation are seven deviations away from it.
SKETCH, NEAR, ROWS = 64, 0.9, 1024
# Two units that fire on the same one or two tokens correlate perfectly by chance: each must speak on as many as these.
SPEAKS = 8


@dataclass(frozen=True, eq=False)
class Units:
    """What became of every unit of a layer [m]."""

    silent: Flags
    """Never above 1 % of the peak that the median unit reaches on this text."""
    always: Flags
    """Above zero before the activation on every token."""
    never: Flags
    """Below zero, or at it, on every token."""
    peak: Floats
    """The largest |post|, as a share of the median unit's."""
    on: Floats
    """Share of tokens on which it is above zero."""
    partner: Ints
    """An earlier unit of which this one is a double by weights or by activations, −1 if there is none."""
    cosine: Floats
    """The smallest |cos| of their W_in (and W_gate) columns and W_out rows."""
    correlation: Floats
    """Of their activations over the kept tokens; NaN where one of them speaks on too few."""

    @property
    def double(self) -> Flags:
        return self.partner >= 0


def find_units(layer: Layer, ffn: FeedForward, seed: int) -> Units:
    peak = layer.peak.numpy()
    typical = float(np.median(peak))
    post = torch.cat(layer.kept["post"]).double()
    partner, cosine, correlation = _doubles(ffn, post, seed)
    return Units(
        silent=(peak < T.discard_peak * typical) | (peak == 0),
        always=(layer.least > 0).numpy(),
        never=(layer.most <= 0).numpy(),
        peak=peak / typical if typical > 0 else np.zeros_like(peak),
        on=1 - layer.off[0].numpy() / max(1, layer.tokens),
        partner=partner,
        cosine=cosine,
        correlation=correlation,
    )


def _doubles(ffn: FeedForward, post: Tensor, seed: int) -> tuple[Ints, Floats, Floats]:
    weights = [w.float() for w in (ffn.W_in.T, ffn.W_out, *(() if ffn.W_gate is None else (ffn.W_gate.T,)))]
    centred = (post - post.mean(0)).T
    power = centred.square()
    speaks = power.sum(1).square() >= SPEAKS * power.square().sum(1).clamp_min(1e-300)
    active = torch.where(speaks[:, None], centred, 0).float()
    by_weights, cosine = closest(weights, seed)
    by_activity, correlation = closest([active], seed)
    alike, together = cosine > T.duplicate_cos, correlation.abs() > T.duplicate_cos
    partner = torch.where(alike, by_weights, torch.where(together, by_activity, -1))
    # Both numbers of the pair that is named, whichever of them gave it away.
    here = partner.clamp_min(0)
    cosine = torch.stack([_cosine(w, here).abs() for w in weights]).amin(0)
    spoken = torch.where(speaks & speaks[here], _cosine(active, here), torch.nan)
    found = partner >= 0
    return (
        partner.numpy(),
        torch.where(found, cosine, torch.nan).double().numpy(),
        torch.where(found, spoken, torch.nan).double().numpy(),
    )


def closest(parts: Sequence[Tensor], seed: int) -> tuple[Tensor, Tensor]:
    """For every row the earlier row most like it in all parts [m, d] at once, and the smallest |cos| over the parts.

    Likeness 0 stands for none that is near; a row of zeros is like nothing.
    """
    m = len(parts[0])
    sketches = [_sketch(part, seed + i) for i, part in enumerate(parts)]
    partner = torch.zeros(m, dtype=torch.long)
    likeness = torch.zeros(m)
    for start in range(0, m, ROWS):
        rows = slice(start, min(m, start + ROWS))
        joint = torch.stack([(s[rows] @ s[: rows.stop].T).abs() for s in sketches]).amin(0)
        likeness[rows], partner[rows] = joint.tril(start - 1).max(1)
    exact = torch.stack([_cosine(part, partner).abs() for part in parts]).amin(0).cpu()
    return partner, torch.where(likeness > NEAR, exact, 0)


def _sketch(rows: Tensor, seed: int) -> Tensor:
    rows = rows.float().cpu()
    if rows.shape[1] > 2 * SKETCH:
        drawn = np.random.default_rng(seed).standard_normal((rows.shape[1], SKETCH), dtype=np.float32)
        rows = rows @ torch.from_numpy(drawn)
    return torch.nn.functional.normalize(rows, dim=1, eps=1e-30)


def _cosine(rows: Tensor, partner: Tensor) -> Tensor:
    """The cosine of each row with its partner's, 0 where either is nothing."""
    unit = torch.nn.functional.normalize(rows.double(), dim=1, eps=1e-30)
    return (unit * unit[partner.to(rows.device)]).sum(1).cpu()


def unit_rows(layer: int, units: Units) -> list[dict[str, Any]]:
    """The units worth a look, for a table."""
    kinds = {"silent": units.silent, "always on": units.always, "double": units.double}

    def number(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    return [
        {
            "layer": layer,
            "unit": int(unit),
            "what": what,
            "partner": int(units.partner[unit]) if what == "double" else None,
            "peak": float(units.peak[unit]),
            "on": float(units.on[unit]),
            "cosine": number(units.cosine[unit]) if what == "double" else None,
            "correlation": number(units.correlation[unit]) if what == "double" else None,
        }
        for what, flags in kinds.items()
        for unit in np.flatnonzero(flags)
    ]
