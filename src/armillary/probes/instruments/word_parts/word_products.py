"""Products of states with earlier states and with words, reading each row as rarely as possible.

Products of rows are bound by memory, not by arithmetic. So only the steps from state to state are stored, and several
steps are multiplied with each other and with the words in one batched product; z·e is the cumulative sum over steps.
All batches use the same memory: fresh pages would cost as much as the products.
"""

import math

import torch
from torch import Tensor

PRODUCTS = ("own", "next", "other", "tilted", "stepped", "bend", "power")
"""With s = z − z', where z' is the state before (0 before the first): s·(γ⊙e) of the token's own, the next, a random
word; s·(γ⊙β); ‖s‖²; s·(the step before); ‖γ⊙z‖²."""
WORDS, BESIDE = 3, 4
# Most steps per block: words are read once per block, and every step takes as much memory as a state.
BLOCK = 9
# Numbers of z per chunk: they and their squares stay in the second-level caches of two cores.
CHUNK = 3 << 16


class Products:
    """Takes the rows [n, d] of a batch at each of its `states` and returns their products."""

    def __init__(self, gain: Tensor, shift: Tensor | None, states: int) -> None:
        self.gain, self._gain2 = gain, gain.square()
        self._tilt = torch.zeros_like(gain) if shift is None else gain * shift
        # Blocks of equal length: a short last block would read all words for one step.
        self._block = math.ceil(states / math.ceil(states / BLOCK))
        self._buffer, self._work = gain.new_empty(0), gain.new_empty(max(1, CHUNK // len(gain)), len(gain))

    def begin(self, rows: int) -> Tensor:
        """Start a batch of rows; returns the buffer [word, n, d] for the words' vectors times γ."""
        shape = (BESIDE + 1 + self._block + 1, rows, len(self.gain))
        if self._buffer.numel() < math.prod(shape):
            self._buffer = self.gain.new_empty(math.prod(shape))
        # Rows of the buffer: words, γ⊙β, the last step of the block before, this block's steps, the state before.
        whole = self._buffer[: math.prod(shape)].view(shape)
        self._beside, self._last = whole[:-1], whole[-1].zero_()
        self._beside[WORDS] = self._tilt
        self._beside[BESIDE].zero_()
        self._products: list[Tensor] = []
        self._power: list[Tensor] = []
        return self._beside[:WORDS]

    def take(self, z: Tensor) -> None:
        """Take the next state; z is read, not kept."""
        place, power = len(self._power) % self._block, z.new_empty(len(z))
        step = self._beside[BESIDE + 1 + place]
        for start in range(0, len(z), len(self._work)):
            some = slice(start, start + len(self._work))
            rows = z[some]
            torch.sub(rows, self._last[some], out=step[some])
            self._last[some] = rows
            torch.mv(torch.mul(rows, rows, out=self._work[: len(rows)]), self._gain2, out=power[some])
        self._power.append(power)
        if place == self._block - 1:
            self._multiply(self._block)

    def total(self) -> Tensor:
        """[state, product, n], after the last state."""
        if left := len(self._power) % self._block:
            self._multiply(left)
        return torch.cat((torch.cat(self._products), torch.stack(self._power)[:, None]), 1)

    def _multiply(self, count: int) -> None:
        """Multiply `count` steps with the words, with γ⊙β, with themselves and with the step before."""
        first = BESIDE + 1
        steps, beside = self._beside[first : first + count], self._beside[: first + count]
        every = torch.bmm(steps.transpose(0, 1), beside.permute(1, 2, 0))
        own, before = (every.diagonal(BESIDE + off, 1, 2)[..., None] for off in (1, 0))
        self._products.append(torch.cat((every[..., :BESIDE], own, before), -1).permute(1, 2, 0))
        self._beside[BESIDE].copy_(steps[-1])
