"""What are the products of a state's rows with earlier states and with words, each row read as seldom as possible?

Products of rows are bound by memory, not by arithmetic. So only the step from state to state is written, and several steps at
a time meet each other and the words in one batched product; z·e is the sum of the steps' products up to it. Batches use the
same memory in turn: fresh pages would cost as much as the products.
"""

import math

import torch
from torch import Tensor

PRODUCTS = ("own", "next", "other", "tilted", "stepped", "bend", "power")
"""With s = z − z', z' the state before (0 before the first): s with γ⊙e of the token, the next and another one, and with γ⊙β;
|s|²; s with the step before; |γ⊙z|²."""
WORDS, BESIDE = 3, 4
# Steps in a block, at most: the words are read once a block, and every step takes as much memory as a state.
BLOCK = 9
# Numbers of z that are taken at once: they and their squares stay in two cores' second caches.
CHUNK = 3 << 16


class Products:
    """The rows [n, d] of a batch from state to state, `states` of them, and what they meet there."""

    def __init__(self, gain: Tensor, shift: Tensor | None, states: int) -> None:
        self.gain, self._gain2 = gain, gain.square()
        self._tilt = torch.zeros_like(gain) if shift is None else gain * shift
        # Blocks of one length: a last one of one step would read the words for it alone.
        self._block = math.ceil(states / math.ceil(states / BLOCK))
        self._buffer, self._work = gain.new_empty(0), gain.new_empty(max(1, CHUNK // len(gain)), len(gain))

    def begin(self, rows: int) -> Tensor:
        """A batch of rows: answers where their words' vectors [word, n, d] belong, each times γ."""
        shape = (BESIDE + 1 + self._block + 1, rows, len(self.gain))
        if self._buffer.numel() < math.prod(shape):
            self._buffer = self.gain.new_empty(math.prod(shape))
        # Words, the tilt, the step before this block's, and the block's; then the state before.
        whole = self._buffer[: math.prod(shape)].view(shape)
        self._beside, self._last = whole[:-1], whole[-1].zero_()
        self._beside[WORDS] = self._tilt
        self._beside[BESIDE].zero_()
        self._met: list[Tensor] = []
        self._power: list[Tensor] = []
        return self._beside[:WORDS]

    def take(self, z: Tensor) -> None:
        """The next state: z is read, not kept."""
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
            self._meet(self._block)

    def total(self) -> Tensor:
        """[state, product, n], when all states have come."""
        if left := len(self._power) % self._block:
            self._meet(left)
        return torch.cat((torch.cat(self._met), torch.stack(self._power)[:, None]), 1)

    def _meet(self, count: int) -> None:
        """`count` steps with the words and the tilt, with themselves and with the step before."""
        first = BESIDE + 1
        steps, beside = self._beside[first : first + count], self._beside[: first + count]
        every = torch.bmm(steps.transpose(0, 1), beside.permute(1, 2, 0))
        own, before = (every.diagonal(BESIDE + off, 1, 2)[..., None] for off in (1, 0))
        self._met.append(torch.cat((every[..., :BESIDE], own, before), -1).permute(1, 2, 0))
        self._beside[BESIDE].copy_(steps[-1])
