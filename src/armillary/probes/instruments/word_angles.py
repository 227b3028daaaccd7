"""Which angles follow from the products of rows? In float64, and without differences of nearly equal numbers.

z is a state's direction, ρ its length; u = z/ρ. The stream is x = m·1 + r·u, its mean m taken apart where norms take it out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.probes.instruments.word_products import PRODUCTS

Floats = NDArray[np.float64]
WORDS = PRODUCTS[:3]


@dataclass(frozen=True, eq=False)
class Read:
    """How rows of one batch are compared with words: their lengths [word, n], what a shift adds [word, n], and |β|².

    shifts are β·e after a final norm, and Σe (times the stream's mean) where there is none.
    """

    lengths: Floats
    shifts: Floats
    shift2: float
    normed: bool
    d: int


@dataclass(frozen=True, eq=False)
class Way:
    """All states of a batch's rows: products [state, product, n] and, each [state, n], |x|, m, r and ρ."""

    products: Floats
    length: Floats
    mean: Floats
    stretch: Floats
    radius: Floats

    def __getitem__(self, name: str) -> Floats:
        return self.products[:, PRODUCTS.index(name)]


def to_words(way: Way, read: Read) -> Floats:
    """[word, state, n]: angles of what is read out, γ⊙u√d + β or the stream itself, to the token, the next and another one."""
    if read.normed:
        scale = read.d**0.5 / np.maximum(way.radius, 1e-30)
        size = np.sqrt(np.maximum(scale**2 * way["power"] + 2 * scale * way["tilted"].cumsum(0) + read.shift2, 0))
        share = np.ones_like(scale)
    else:
        scale, size, share = way.stretch / np.maximum(way.radius, 1e-30), way.length, way.mean
    # What all steps up to a state say, together; in place, [state, word, n].
    product = way.products[:, : len(WORDS)].cumsum(0)
    product *= scale[:, None]
    product += share[:, None] * read.shifts
    product /= np.maximum(size[:, None] * read.lengths, 1e-30)
    return np.moveaxis(np.arccos(np.clip(product, -1, 1, out=product), out=product), 1, 0)


def apart(stepped: Floats, a: Floats, b: Floats) -> Floats:
    """|u − u'|² of the directions of two vectors whose lengths are a and b and whose difference is √stepped long.

    >>> apart(np.array([5.0]), np.array([1.0]), np.array([2.0]))  # a right angle
    array([2.])
    """
    return np.clip((stepped - (a - b) ** 2) / np.maximum(a * b, 1e-30), 0, 4)


def arc(chord2: Floats) -> Floats:
    """The angle that a squared chord spans: exact for small ones too, where arccos would lose them."""
    return np.asarray(2 * np.arcsin(np.minimum(np.sqrt(chord2) / 2, 1)))


def moves(way: Way, d: int) -> tuple[Floats, Floats, Floats]:
    """Each [state − 1, n]: the angle moved, the share of the write along the stream, the turn against the move before."""
    chord2 = apart(way["stepped"][1:], way.radius[:-1], way.radius[1:])
    m, r = way.mean, way.stretch
    beside = r[:-1] * r[1:] * chord2
    along = d * m[:-1] * np.diff(m, axis=0) + r[:-1] * np.diff(r, axis=0) - beside / 2
    step2 = d * np.diff(m, axis=0) ** 2 + np.diff(r, axis=0) ** 2 + beside
    radial = along**2 / np.maximum(step2 * way.length[:-1] ** 2, 1e-30)
    turn = np.zeros_like(chord2)
    if len(turn) > 1:
        turn[1:] = _turn(way, chord2)
    return arc(chord2), np.clip(radial, 0, 1), turn


def _turn(way: Way, chord2: Floats) -> Floats:
    """At b, between the great circle that came from a and the one that leads to c; 0 where one stands still.

    The steps' product, less what of both lies along b: no difference of nearly equal numbers however small the steps.
    """
    rho_a, rho_b, rho_c = (np.maximum(part, 1e-30) for part in (way.radius[:-2], way.radius[1:-1], way.radius[2:]))
    came = (rho_b**2 - rho_a**2 + way["stepped"][1:-1]) / (2 * rho_b)
    goes = (rho_c**2 - rho_b**2 - way["stepped"][2:]) / (2 * rho_b)
    sine2 = chord2 * (1 - chord2 / 4)
    across = np.sqrt(np.maximum(sine2[:-1] * sine2[1:], 0))
    cosine = (way["bend"][2:] - came * goes) / (rho_a * rho_c) / np.maximum(across, 1e-12)
    return np.where(across > 1e-9, np.arccos(np.clip(cosine, -1, 1)), 0.0)
