"""How many bits does a quantised stream take, as a bitstream that gives it back? NumPy only.

An entropy is a promise; a bitstream keeps it. Symbols are coded by range asymmetric numeral systems (J. Duda,
arXiv:1311.2540) with static tables. Rows are coded side by side, each into words of its own, so that NumPy works on all
of them at once and each row's bits are known. Everything that a decoder needs is counted: words, last states, tables,
and whatever lies too far out for a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Shares are rounded to 2⁻¹⁴; a state holds 16 to 32 bits and sheds 16 at a time, so it sheds at most once a symbol.
PRECISION, WORD = 14, 16
TOTAL, LEAST = 1 << PRECISION, 1 << WORD
# Symbols farther out than this are one symbol, the escape, in a table, and are written out.
REACH = 1000
ESCAPE = REACH + 1
_ROOM = 2 * REACH + 2
_NONE = np.zeros(0, dtype=np.int32)
# A table's entry: a share, and how far its symbol lies from the one before.
ENTRY_BITS, STATE_BITS, ESCAPED_BITS = PRECISION + 11, 32, 32


@dataclass(frozen=True, eq=False)
class Code:
    """A static table: symbols, ascending, and how often each comes, out of TOTAL."""

    symbols: Ints
    shares: Ints

    @property
    def starts(self) -> Ints:
        return np.cumsum(self.shares) - self.shares

    @property
    def bits(self) -> int:
        return ENTRY_BITS * len(self.symbols)


@dataclass(frozen=True, eq=False)
class Coded:
    """Rows of symbols as bits, and all it takes to get them back."""

    codes: tuple[Code, ...]
    kinds: Ints
    """Which code each row is written in."""
    states: Ints
    """Each row's last state, where decoding begins."""
    words: tuple[NDArray[np.uint16], ...]
    escaped: tuple[NDArray[np.int32], ...]
    lengths: Ints

    @property
    def bits(self) -> Ints:
        """Of each row, tables apart."""
        words = [WORD * len(row) + ESCAPED_BITS * len(far) for row, far in zip(self.words, self.escaped, strict=True)]
        return np.array(words, dtype=np.int64) + STATE_BITS


def quantise(values: Float[np.ndarray, "*n"], step: float, phase: float = 0.0) -> Int[np.ndarray, "*n"]:
    """The nearest point of a grid of this step; `phase` (in steps, less than ½) shifts the grid, and 0 stays symbol 0.

    >>> quantise(np.array([-0.4, 0.2, 0.6, 3.1]), 1.0)
    array([0, 0, 1, 3])
    """
    if not step > 0 or not abs(phase) < 0.5:
        raise ValueError(f"a quantiser's step must be positive and its phase below ½; got {step} and {phase}")
    return np.rint(values / step + phase).astype(np.int64)


def entropy(symbols: Int[np.ndarray, " n"]) -> float:
    """Bits a symbol that no code with one fixed table for all of them can beat.

    >>> entropy(np.array([0, 0, 1, 1]))
    1.0
    """
    _, counts = np.unique(symbols, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum()) + 0.0


def code_lengths(symbols: Int[np.ndarray, "*n"]) -> tuple[Float[np.ndarray, "*n"], int]:
    """Bits of every symbol under one static table made from them all, and the bits of that table.

    `encode` writes so many bits, but for the 32 at the end of each row: this is for rows too short to bear those.

    >>> bits, table = code_lengths(np.array([0, 0, 1, 1]))
    >>> bits.tolist(), table == 2 * ENTRY_BITS
    ([1.0, 1.0, 1.0, 1.0], True)
    """
    far = np.abs(symbols) > REACH
    place = np.where(far, ESCAPE, symbols) + REACH
    code = _code(np.bincount(place.ravel(), minlength=_ROOM))
    bits = np.zeros(_ROOM)
    bits[code.symbols + REACH] = PRECISION - np.log2(code.shares)
    return np.asarray(bits[place] + ESCAPED_BITS * far), code.bits


def encode(rows: Sequence[Ints], kinds: Sequence[int] | None = None) -> Coded:
    """Code rows of symbols, which may differ in length; rows of one kind (0, 1, …) share a table made from them all.

    >>> rows = [np.array([0, 0, 0, 1, -1, 0]), np.array([5, 0])]
    >>> [row.tolist() for row in decode(encode(rows))]
    [[0, 0, 0, 1, -1, 0], [5, 0]]
    """
    which = np.zeros(len(rows), dtype=np.int64) if kinds is None else np.array(kinds)
    if not rows or not all(len(row) for row in rows) or set(which.tolist()) != set(range(int(which.max()) + 1)):
        raise ValueError("there is nothing to code: give rows that are not empty, of kinds 0, 1, … without a gap")
    lengths = np.array([len(row) for row in rows])
    flat, row = np.concatenate(rows), np.repeat(np.arange(len(rows)), lengths)
    far = np.abs(flat) > REACH
    escaped = tuple(part[np.abs(part) > REACH].astype(np.int32) for part in rows) if far.any() else (_NONE,) * len(rows)
    # A place in a table with room for every symbol of every kind.
    place = which[row] * _ROOM + np.where(far, ESCAPE, flat) + REACH
    counts = np.bincount(place, minlength=_ROOM * (int(which.max()) + 1)).reshape(-1, _ROOM)
    codes = tuple(_code(count) for count in counts)
    table = np.zeros((2, *counts.shape), dtype=np.int64)
    for kind, code in enumerate(codes):
        table[:, kind, code.symbols + REACH] = code.shares, code.starts
    # Where a short row has ended nothing is coded, and any share will do.
    share = np.ones((int(lengths.max()), len(rows)), dtype=np.int64)
    start = np.zeros_like(share)
    turn = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    share[turn, row], start[turn, row] = (values.ravel()[place] for values in table)
    states, words = _push(share, start, lengths)
    return Coded(codes, which, states, words, escaped, lengths)


def decode(coded: Coded) -> list[Ints]:
    """The rows that were coded, from their bits alone."""
    first = np.cumsum([0, *(len(code.symbols) for code in coded.codes)])
    symbols, shares, starts = (
        np.concatenate([getattr(code, name) for code in coded.codes]) for name in ("symbols", "shares", "starts")
    )
    owner = np.stack(
        [np.repeat(np.arange(len(c.shares)), c.shares) + at for c, at in zip(coded.codes, first, strict=False)]
    )
    words = np.zeros((len(coded.words), max(map(len, coded.words)) + 1), dtype=np.int64)
    for row, stream in enumerate(coded.words):
        words[row, : len(stream)] = stream
    state, read = coded.states.copy(), np.zeros(len(coded.words), dtype=np.int64)
    decoded = np.zeros((int(coded.lengths.max()), len(state)), dtype=np.int64)
    for t in range(len(decoded)):
        live = np.flatnonzero(coded.lengths > t)
        slot = state[live] & (TOTAL - 1)
        entry = owner[coded.kinds[live], slot]
        x = shares[entry] * (state[live] >> PRECISION) + slot - starts[entry]
        short = x < LEAST
        state[live] = np.where(short, (x << WORD) | words[live, read[live]], x)
        read[live] += short
        decoded[t, live] = symbols[entry]
    rows = [decoded[:n, row] for row, n in enumerate(coded.lengths)]
    for values, far in zip(rows, coded.escaped, strict=True):
        values[values == ESCAPE] = far
    return rows


def _code(counts: Ints) -> Code:
    """Counts as shares of TOTAL, none of them 0; what rounding leaves goes to the commonest, which it hurts least."""
    present = np.flatnonzero(counts)
    count = counts[present]
    shares = 1 + count * (TOTAL - len(count)) // count.sum()
    shares[np.argmax(count)] += TOTAL - shares.sum()
    return Code(present - REACH, shares)


def _push(share: Ints, start: Ints, lengths: Ints) -> tuple[Ints, tuple[NDArray[np.uint16], ...]]:
    """Last states, and each row's words in the order in which a decoder wants them: coding goes from the end."""
    state = np.full(len(lengths), LEAST, dtype=np.int64)
    # Above this a state would not fit after the next symbol, and sheds its low word.
    limit = share << (2 * WORD - PRECISION)
    shed = np.zeros(share.shape, dtype=bool)
    low = np.zeros(share.shape, dtype=np.uint16)
    for t in range(len(share) - 1, -1, -1):
        live = lengths > t
        shed[t] = (state >= limit[t]) & live
        low[t] = state & (LEAST - 1)
        quotient, rest = np.divmod(np.where(shed[t], state >> WORD, state), share[t])
        state = np.where(live, (quotient << PRECISION) + rest + start[t], state)
    return state, tuple(low[shed[:, row], row] for row in range(len(lengths)))
