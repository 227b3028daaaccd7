"""What do the rows of a state say of the states before and of words, read as seldom as can be?

Products of rows are bound by memory, not by arithmetic: a chunk of z is read into the cache once for all of its products, and
words are met at every second state, for it and the one before. (torch's own products would write one as large as z for every
sum, and OpenMP's barriers stall on a busy machine.)
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

PRODUCTS = ("own", "next", "other", "power", "tilted", "stepped", "corner")
"""z with γ⊙e of the token, the next and another one; |γ⊙z|²; z with γ⊙β; |z − z'|²; (z − z') with z'', of the states before."""
# Numbers of z in a chunk: with its partners and a workspace in a core's second cache (1 or 2 MB).
CHUNK = 1 << 16


@dataclass(eq=False)
class Strides:
    """The rows [n, d] of one batch from state to state, and what they meet there.

    words  [n + 1, d] γ⊙e of each row's token; the next token's is one row on
    other  [n, d] the same of another word
    gain2  γ²
    tilt   γ⊙β, where there is a shift
    steps  how many states will come
    found  [product, n] for each state so far: steps need a state before, corners two
    """

    words: Tensor
    other: Tensor
    gain2: Tensor
    tilt: Tensor | None
    steps: int
    found: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kept = (torch.empty_like(self.other), torch.empty_like(self.other))

    def take(self, z: Tensor, pool: ThreadPoolExecutor | None = None) -> None:
        """The next state: its products, and it is kept in the place of the older of two."""
        self.found.append(torch.zeros(len(PRODUCTS), len(z), dtype=z.dtype, device=z.device))
        if z.device.type != "cpu":
            self._whole(z)
            return
        size = max(1, CHUNK // z.shape[1])
        starts = range(0, len(z), size)
        lanes = 1 if pool is None else min(len(starts), torch.get_num_threads())
        if pool is None or lanes < 2:
            self._chunks(z, starts, size)
        else:
            list(pool.map(lambda lane: self._chunks(z, starts[lane::lanes], size), range(lanes)))

    def _chunks(self, z: Tensor, starts: Sequence[int], size: int) -> None:
        """NumPy throughout: its products of rows leave no temporaries, let other threads run and start none of their own."""
        index = len(self.found) - 1
        words, other, gain2 = self.words.numpy(), self.other.numpy(), self.gain2.numpy()
        last, before = (self._kept[i % 2].numpy() for i in (index - 1, index))
        rows, found, earlier = z.numpy(), self.found[-1].numpy(), self.found[index - 1].numpy()
        space = np.empty((size, z.shape[1]), rows.dtype)
        for start in starts:
            part = slice(start, min(start + size, len(rows)))
            some, to, work = rows[part], found[:, part], space[: min(size, len(rows) - start)]
            meeting = [(last[part], earlier[:, part])] if index % 2 else []
            meeting += [(some, to)] if index % 2 or index == self.steps - 1 else []
            for who, there in meeting:
                np.vecdot(who, words[part], out=there[0])
                np.vecdot(who, words[part.start + 1 : part.stop + 1], out=there[1])
                np.vecdot(who, other[part], out=there[2])
            np.square(some, out=work)
            np.vecdot(work, gain2, out=to[3])
            if self.tilt is not None:
                np.vecdot(some, self.tilt.numpy(), out=to[4])
            if index > 0:
                np.subtract(some, last[part], out=work)
                np.vecdot(work, work, out=to[5])
            if index > 1:
                np.vecdot(work, before[part], out=to[6])
            before[part] = some

    def _whole(self, z: Tensor) -> None:
        """The same at once, where memory is fast."""
        index, out = len(self.found) - 1, self.found[-1]
        last, before = self._kept[(index - 1) % 2], self._kept[index % 2]
        for row, partner in enumerate((self.words[:-1], self.words[1:], self.other)):
            out[row] = (z * partner).sum(-1)
        out[3] = z.square() @ self.gain2
        if self.tilt is not None:
            out[4] = z @ self.tilt
        if index > 0:
            step = z - last
            out[5] = step.square().sum(-1)
            if index > 1:
                out[6] = (step * before).sum(-1)
        before.copy_(z)
