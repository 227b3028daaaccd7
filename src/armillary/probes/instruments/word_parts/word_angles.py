"""Angles from products of rows, in float64 and without differences of nearly equal numbers.

z is a state's direction, ρ = ‖z‖ and u = z/ρ. The stream is x = m·1 + r·u; m is its mean where norms centre, else 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.probes.instruments.word_parts.word_products import PRODUCTS

WORDS = PRODUCTS[:3]


@dataclass(frozen=True, eq=False)
class WordReadout:
    """What the angles of one batch to words need: the words' lengths [word, n], their shifts [word, n], and ‖β‖².

    A shift is β·e after a final norm, and Σe (to be multiplied by the stream's mean) where there is none.
    """

    lengths: Tensor
    shifts: Tensor
    shift2: Tensor
    normed: bool
    d: int
    eps: float
    """ε of the final norm."""


@dataclass(frozen=True, eq=False)
class TokenPath:
    """All states of a batch's rows: products [state, product, n] and, each [state, n], ‖x‖, m, r and ρ."""

    products: Tensor
    length: Tensor
    mean: Tensor
    stretch: Tensor
    radius: Tensor

    def __getitem__(self, name: str) -> Tensor:
        return self.products[:, PRODUCTS.index(name)]


def to_words(path: TokenPath, readout: WordReadout) -> Tensor:
    """[word, state, n]: angles of γ⊙z + β to the token's own, the next and a random word, z = u√d·r/√(r² + dε).

    Without a final norm they are the angles of the stream itself.
    """
    if readout.normed:
        shrunk = path.stretch / (path.stretch**2 + readout.d * readout.eps).clamp_min(1e-60).sqrt()
        scale = readout.d**0.5 * shrunk / path.radius.clamp_min(1e-30)
        size = (scale**2 * path["power"] + 2 * scale * path["tilted"].cumsum(0) + readout.shift2).clamp_min(0).sqrt()
        share = torch.ones_like(scale)
    else:
        scale, size, share = path.stretch / path.radius.clamp_min(1e-30), path.length, path.mean
    # The sum over steps is the product with the state itself; [state, word, n], in place to save memory.
    product = path.products[:, : len(WORDS)].cumsum(0)
    product *= scale[:, None]
    product += share[:, None] * readout.shifts
    product /= (size[:, None] * readout.lengths).clamp_min(1e-30)
    return product.clamp_(-1, 1).acos_().movedim(1, 0)


def chord(stepped: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """‖u − u'‖² of the directions of two vectors of lengths a and b whose difference has the squared length `stepped`.

    >>> chord(torch.tensor([5.0]), torch.tensor([1.0]), torch.tensor([2.0]))  # a right angle
    tensor([2.])
    """
    return ((stepped - (a - b) ** 2) / (a * b).clamp_min(1e-30)).clamp(0, 4)


def arc(chord2: Tensor) -> Tensor:
    """The angle of a squared chord; exact also for small angles, which arccos would lose."""
    return 2 * (chord2.sqrt() / 2).clamp_max(1).asin()


def moves(path: TokenPath, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each [state − 1, n]: the angle moved, the share of the write along the stream, the angle to the move before."""
    chord2 = chord(path["stepped"][1:], path.radius[:-1], path.radius[1:])
    m, r = path.mean, path.stretch
    beside = r[:-1] * r[1:] * chord2
    along = d * m[:-1] * m.diff(dim=0) + r[:-1] * r.diff(dim=0) - beside / 2
    step2 = d * m.diff(dim=0) ** 2 + r.diff(dim=0) ** 2 + beside
    radial = along**2 / (step2 * path.length[:-1] ** 2).clamp_min(1e-30)
    turning = torch.zeros_like(chord2)
    if len(turning) > 1:
        turning[1:] = _turning(path, chord2)
    return arc(chord2), radial.clamp(0, 1), turning


def _turning(path: TokenPath, chord2: Tensor) -> Tensor:
    """At state b, the angle between the great circle from a and the one to c; 0 where a move is 0.

    It is the product of both steps without their parts along b, which stays exact for small steps.
    """
    rho_a, rho_b, rho_c = (part.clamp_min(1e-30) for part in (path.radius[:-2], path.radius[1:-1], path.radius[2:]))
    arriving = (rho_b**2 - rho_a**2 + path["stepped"][1:-1]) / (2 * rho_b)
    leaving = (rho_c**2 - rho_b**2 - path["stepped"][2:]) / (2 * rho_b)
    sine2 = chord2 * (1 - chord2 / 4)
    across = (sine2[:-1] * sine2[1:]).clamp_min(0).sqrt()
    cosine = (path["bend"][2:] - arriving * leaving) / (rho_a * rho_c) / across.clamp_min(1e-12)
    return torch.where(across > 1e-9, cosine.clamp(-1, 1).acos(), 0.0)
