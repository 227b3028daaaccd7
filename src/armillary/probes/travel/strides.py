"""What do the rows of a state say of the states before and of words, read as seldom as can be?

Products of rows are bound by memory, not by arithmetic. So only the step from state to state is written, and eight steps at a
time meet each other and the words in one batched product; z·e is the sum of the steps' products up to it. Batches use the
same memory in turn: fresh pages would cost as much as the products.
"""

import math

import torch
from torch import Tensor

PRODUCTS = ("own", "next", "other", "stepped", "bend", "power", "tilted")
"""With s = z − z', z' the state before (0 before the first): s with γ⊙e of the token, the next and another one; |s|²; s with the
step before; |γ⊙z|²; z with γ⊙β."""
WORDS, BLOCK = 3, 8
# Numbers whose squares are taken at once: they stay in two cores' second caches.
CHUNK = 3 << 16


class Strides:
    """The rows [n, d] of a batch from state to state, and what they meet there."""

    def __init__(self, gain: Tensor, shift: Tensor | None) -> None:
        self.gain, self._gain2 = gain, gain.square()
        self._tilt = None if shift is None else gain * shift
        self._buffer, self._work = gain.new_empty(0), gain.new_empty(max(1, CHUNK // len(gain)), len(gain))

    def begin(self, rows: int) -> Tensor:
        """A batch of rows: answers where their words' vectors [word, n, d] belong, each times γ."""
        shape = (WORDS + 1 + BLOCK, rows, len(self.gain))
        if self._buffer.numel() < math.prod(shape):
            self._buffer = self.gain.new_empty(math.prod(shape))
        # Words, the step before this block's, and the block's.
        self._beside = self._buffer[: math.prod(shape)].view(shape)
        self._beside[WORDS].zero_()
        self._last: Tensor | None = None
        self._met: list[Tensor] = []
        self._alone: list[Tensor] = []
        return self._beside[:WORDS]

    def take(self, z: Tensor) -> None:
        """The next state; z must stay as it is until the one after."""
        place, alone = len(self._alone) % BLOCK, z.new_zeros(2, len(z))
        step = self._beside[WORDS + 1 + place]
        if self._last is None:
            step.copy_(z)
        else:
            torch.sub(z, self._last, out=step)
        self._last = z
        for start in range(0, len(z), len(self._work)):
            some = slice(start, start + len(self._work))
            rows = z[some]
            torch.mv(torch.mul(rows, rows, out=self._work[: len(rows)]), self._gain2, out=alone[0, some])
            if self._tilt is not None:
                torch.mv(rows, self._tilt, out=alone[1, some])
        self._alone.append(alone)
        if place == BLOCK - 1:
            self._meet(BLOCK)

    def found(self) -> Tensor:
        """[state, product, n], when all states have come."""
        if left := len(self._alone) % BLOCK:
            self._meet(left)
        return torch.cat((torch.cat(self._met), torch.stack(self._alone)), 1)

    def _meet(self, count: int) -> None:
        """`count` steps with the words, with themselves and with the step before."""
        first = WORDS + 1
        steps, beside = self._beside[first : first + count], self._beside[: first + count]
        every = torch.bmm(steps.transpose(0, 1), beside.permute(1, 2, 0))
        own, before = (every.diagonal(WORDS + off, 1, 2)[..., None] for off in (1, 0))
        self._met.append(torch.cat((every[..., :WORDS], own, before), -1).permute(1, 2, 0))
        self._beside[WORDS].copy_(steps[-1])
