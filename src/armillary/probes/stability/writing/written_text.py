"""Numbers of every window of tokens: where its states lie, how long they are, and whether the text repeats itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.probes.machinery import Floats
from armillary.probes.stability.writing.generating import Generations
from armillary.probes.stability.writing.ring_text import Ring, TokenSeries

ANGLE, NEIGHBOURS, LENGTH, RANK = "angle to the mean", "distance to real text", "log length", "effective rank"
STATES = {
    ANGLE: ("angle between a state's direction and the mean direction of real text", "degrees"),
    NEIGHBOURS: ("angle to the tenth nearest state of real text", "degrees"),
    LENGTH: ("logarithm of ‖x‖", "nats"),
    RANK: ("exp of the entropy of the eigenvalues of a window's directions", "dimensions"),
}
ENTROPY, REPEATED, WORDS, PAIRS = "entropy", "repeated triples", "distinct words", "distinct pairs"
TEXT = {
    ENTROPY: ("of the prediction", "nats"),
    REPEATED: ("share of token triples that have occurred within one window's length before", "share"),
    WORDS: ("different tokens over all tokens of a window", "share"),
    PAIRS: ("different pairs of tokens over all pairs of a window", "share"),
}
NEIGHBOUR = 10
# So many states of real text are searched for neighbours.
BANK = 1024


def unit_of(name: str) -> str:
    """The unit of a quantity, which may be named with its site.

    >>> unit_of("log length at ln_final"), unit_of("distinct pairs")
    ('nats', 'share')
    """
    return {**STATES, **TEXT}[name.partition(" at ")[0]][1]


@dataclass(frozen=True, eq=False)
class Bank:
    """Directions of real text at one norm: unit vectors [n, d], their mean, and their places on the ring."""

    units: Tensor
    mean: Tensor
    places: Tensor

    @classmethod
    def of(cls, anatomy: Anatomy, ring: Ring, site: str) -> "Bank":
        units = _units(anatomy, site, ring.read.states[site][0])
        places = torch.linspace(0, len(units) - 1, min(BANK, len(units))).long()
        return cls(units[places], torch.nn.functional.normalize(units.mean(0), dim=0), places)

    def nearest(self, units: Tensor, places: Tensor | None, apart: int, ring: int) -> Tensor:
        """Degrees to the tenth nearest [n]; states within `apart` tokens of a text's own place do not count."""
        cosines = units @ self.units.T
        if places is not None:
            distance = (places[:, None] - self.places[None]).abs()
            cosines = cosines.masked_fill(torch.minimum(distance, ring - distance) < apart, -1.0)
        near = cosines.nan_to_num(-1.0).topk(min(NEIGHBOUR, cosines.shape[1]), dim=1).values[:, -1]
        return near.clamp(-1, 1).arccos().rad2deg()


@dataclass(frozen=True, eq=False)
class Measured:
    """Values by window: of real text [start, quantity], and of every arm [prompt, window, quantity]."""

    names: tuple[str, ...]
    """State quantities first, each with its site, then those of the text."""
    states: int
    """How many of them are of states."""
    real: Floats
    arms: Mapping[str, Floats]


def measure(anatomy: Anatomy, ring: Ring, written: Generations, window: int, sites: Sequence[str]) -> Measured:
    banks = {site: Bank.of(anatomy, ring, site) for site in sites}
    half, total = window // 2, len(ring.ids)
    places = (torch.arange(0, total, half)[:, None] + torch.arange(window)) % total
    real = TokenSeries(
        ring.ids[places], ring.read.entropy[0][places], {s: x[0][places] for s, x in ring.read.states.items()}
    )
    before = ring.ids[(places - window) % total]
    values = _values(anatomy, real, before, banks, places, total)
    arms = {}
    for arm, tokens in written.arms.items():
        # Before the first window stands the text that the prompt ends.
        history = torch.stack([ring.stretch(start, -window) for start in written.starts[: len(tokens.ids)]])
        ids = torch.cat((history, tokens.ids), 1).unfold(1, window, window)
        cut = TokenSeries(
            tokens.ids.unfold(1, window, window).flatten(0, 1),
            tokens.entropy.unfold(1, window, window).flatten(0, 1),
            {s: x.unfold(1, window, window).transpose(2, 3).flatten(0, 1) for s, x in tokens.states.items()},
        )
        flat = _values(anatomy, cut, ids[:, :-1].flatten(0, 1), banks, None, total)
        arms[arm] = flat.reshape(len(tokens.ids), -1, flat.shape[1])
    names = tuple(f"{name} at {site}" for site in sites for name in STATES)
    return Measured((*names, *TEXT), len(names), values, arms)


def _values(
    anatomy: Anatomy, tokens: TokenSeries, before: Tensor, banks: Mapping[str, Bank], places: Tensor | None, ring: int
) -> Floats:
    """[window, quantity]; NaN of a window in which a state has overflowed."""
    columns = []
    for site, bank in banks.items():
        x = tokens.states[site]
        units = _units(anatomy, site, x)
        flat = None if places is None else places.flatten()
        near = bank.nearest(units.flatten(0, 1), flat, 2 * x.shape[1], ring).reshape(x.shape[:2])
        columns += [
            (units @ bank.mean).clamp(-1, 1).arccos().rad2deg().mean(1),
            torch.where(torch.isfinite(units).all(-1), near, torch.nan).mean(1),
            x.double().norm(dim=-1).log().mean(1),
            _effective_rank(units),
        ]
    columns += [tokens.entropy.mean(1), *_repetition(tokens.ids, before)]
    values = torch.stack([column.double() for column in columns], 1)
    return np.where(np.isfinite(values.numpy()), values.numpy(), np.nan)


def _units(anatomy: Anatomy, site: str, x: Tensor) -> Tensor:
    """Unit vectors along what the norm at a site would give before gain and shift; NaN of what has overflowed."""
    z = anatomy.norms[site].direction(x.to(anatomy.device)).cpu()
    return torch.nn.functional.normalize(z, dim=-1)


def _effective_rank(units: Tensor) -> Tensor:
    """Of each window [n, t, d], from its t × t products."""
    centred = torch.nan_to_num(units - units.mean(1, keepdim=True))
    values = torch.linalg.eigvalsh(centred @ centred.mT).clamp_min(0)
    share = values / values.sum(1, keepdim=True).clamp_min(1e-30)
    rank = torch.special.entr(share).sum(1).exp()
    return torch.where(torch.isfinite(units).all(2).all(1), rank, torch.nan)


def _repetition(ids: Tensor, before: Tensor) -> list[Tensor]:
    """Share of triples that stood in the window's length before them, of distinct tokens, and of distinct pairs."""
    rows: list[tuple[float, float, float]] = []
    for old, new in zip(before.tolist(), ids.tolist(), strict=True):
        both, length = old + new, len(new)
        triples = list(zip(both, both[1:], both[2:], strict=False))
        late = range(len(old) - 2, len(triples))
        seen = sum(triples[i] in triples[max(0, i - length) : i] for i in late)
        pairs = list(pairwise(new))
        rows.append((seen / len(late), len(set(new)) / length, len(set(pairs)) / len(pairs)))
    return list(torch.tensor(rows, dtype=torch.float64).T)
