"""Which angles follow from the products of rows? In float64, and without differences of nearly equal numbers.

z is a state's direction, ρ its length; u = z/ρ. The stream is x = m·1 + r·u, its mean m taken apart where norms take it out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.probes.instruments.word_products import PRODUCTS

WORDS = PRODUCTS[:3]


@dataclass(frozen=True, eq=False)
class Readout:
    """How rows of one batch are compared with words: their lengths [word, n], what a shift adds [word, n], and |β|².

    shifts are β·e after a final norm, and Σe (times the stream's mean) where there is none.
    """

    lengths: Tensor
    shifts: Tensor
    shift2: Tensor
    normed: bool
    d: int


@dataclass(frozen=True, eq=False)
class Path:
    """All states of a batch's rows: products [state, product, n] and, each [state, n], |x|, m, r and ρ."""

    products: Tensor
    length: Tensor
    mean: Tensor
    stretch: Tensor
    radius: Tensor

    def __getitem__(self, name: str) -> Tensor:
        return self.products[:, PRODUCTS.index(name)]


def to_words(path: Path, read: Readout) -> Tensor:
    """[word, state, n]: angles of what is read out, γ⊙u√d + β or the stream itself, to the token, the next and another one."""
    if read.normed:
        scale = read.d**0.5 / path.radius.clamp_min(1e-30)
        size = (scale**2 * path["power"] + 2 * scale * path["tilted"].cumsum(0) + read.shift2).clamp_min(0).sqrt()
        share = torch.ones_like(scale)
    else:
        scale, size, share = path.stretch / path.radius.clamp_min(1e-30), path.length, path.mean
    # What all steps up to a state say, together; in place, [state, word, n].
    product = path.products[:, : len(WORDS)].cumsum(0)
    product *= scale[:, None]
    product += share[:, None] * read.shifts
    product /= (size[:, None] * read.lengths).clamp_min(1e-30)
    return product.clamp_(-1, 1).acos_().movedim(1, 0)


def apart(stepped: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """|u − u'|² of the directions of two vectors whose lengths are a and b and whose difference is √stepped long.

    >>> apart(torch.tensor([5.0]), torch.tensor([1.0]), torch.tensor([2.0]))  # a right angle
    tensor([2.])
    """
    return ((stepped - (a - b) ** 2) / (a * b).clamp_min(1e-30)).clamp(0, 4)


def arc(chord2: Tensor) -> Tensor:
    """The angle that a squared chord spans: exact for small ones too, where arccos would lose them."""
    return 2 * (chord2.sqrt() / 2).clamp_max(1).asin()


def moves(path: Path, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each [state − 1, n]: the angle moved, the share of the write along the stream, the turn against the move before."""
    chord2 = apart(path["stepped"][1:], path.radius[:-1], path.radius[1:])
    m, r = path.mean, path.stretch
    beside = r[:-1] * r[1:] * chord2
    along = d * m[:-1] * m.diff(dim=0) + r[:-1] * r.diff(dim=0) - beside / 2
    step2 = d * m.diff(dim=0) ** 2 + r.diff(dim=0) ** 2 + beside
    radial = along**2 / (step2 * path.length[:-1] ** 2).clamp_min(1e-30)
    turn = torch.zeros_like(chord2)
    if len(turn) > 1:
        turn[1:] = _turn(path, chord2)
    return arc(chord2), radial.clamp(0, 1), turn


def _turn(path: Path, chord2: Tensor) -> Tensor:
    """At b, between the great circle that came from a and the one that leads to c; 0 where one stands still.

    The steps' product, less what of both lies along b: no difference of nearly equal numbers however small the steps.
    """
    rho_a, rho_b, rho_c = (part.clamp_min(1e-30) for part in (path.radius[:-2], path.radius[1:-1], path.radius[2:]))
    came = (rho_b**2 - rho_a**2 + path["stepped"][1:-1]) / (2 * rho_b)
    goes = (rho_c**2 - rho_b**2 - path["stepped"][2:]) / (2 * rho_b)
    sine2 = chord2 * (1 - chord2 / 4)
    across = (sine2[:-1] * sine2[1:]).clamp_min(0).sqrt()
    cosine = (path["bend"][2:] - came * goes) / (rho_a * rho_c) / across.clamp_min(1e-12)
    return torch.where(across > 1e-9, cosine.clamp(-1, 1).acos(), 0.0)
