"""How do the measures of many sites take a batch at once? Their sums lie side by side; each measure is a view.

A measure that is part of a stack stays what it is: it adds, is saved and is read as before.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.geometry.fused.folding import fold_in
from armillary.measures.moments import STRIP, Moments
from armillary.measures.reservoir import Reservoir

# Rows of one product: float32 sums of more would lose digits.
PART = 4096
# Numbers in the products of one batch of them.
ROOM = 1 << 26
# A product has this many strips of the triangle: fewer, larger ones suit a GPU.
TOGETHER = 2 * STRIP


class MomentStack:
    """Moments of equal width that are offered equally many rows. Set their `shift` [moment, d] before the first."""

    def __init__(self, moments: Sequence[Moments], device: torch.device) -> None:
        assert not any(moment._offered for moment in moments), "a stack begins empty"
        self._moments, self.d = moments, moments[0].d
        self.shift = torch.zeros(len(moments), self.d, device=device)
        self.sum = torch.zeros(len(moments), self.d, dtype=torch.float64, device=device)
        self.count = torch.zeros(len(moments), dtype=torch.int64, device=device)
        sizes = [(min(STRIP, self.d - i), self.d - i) for i in range(0, self.d, STRIP)]
        self.strips = [torch.zeros(len(moments), *size, dtype=torch.float64, device=device) for size in sizes]
        for place, moment in enumerate(moments):
            moment.shift, moment._sum, moment._count = self.shift[place], self.sum[place], self.count[place]
            moment._strips = [strip[place] for strip in self.strips]

    def offered(self, rows: int) -> None:
        """Note that each was offered so many rows: what the host knows."""
        for moment in self._moments:
            moment.offered(rows)

    def include(self, place: slice, z: Tensor) -> None:
        """Add rows [measure, m, d] from which the shifts were taken, those that do not count being 0; m is a multiple
        of the number of `parts`. Say by `count` how many count, and by `offered` how many were there. Products are
        summed in float32 over some thousand rows, then in float64."""
        most = max(1, ROOM // (parts(z.shape[1]) * min(TOGETHER, self.d) * self.d))
        for start in range(0, len(z), most):
            some = z[start : start + most]
            self._add(slice(place.start + start, place.start + start + len(some)), some)

    def _add(self, place: slice, z: Tensor) -> None:
        split = z.view(len(z), parts(z.shape[1]), -1, self.d)
        wide = torch.promote_types(z.dtype, torch.float32)
        self.sum[place] += split.sum(2, dtype=wide).sum(1, dtype=torch.float64)
        flat = split.flatten(0, 1)
        for top in range(0, self.d, TOGETHER):
            products = product(flat[:, :, top : top + TOGETHER].mT, flat[:, :, top:])
            products = products.view(*split.shape[:2], *products.shape[1:])
            for i in range(top, min(top + TOGETHER, self.d), STRIP):
                block = products[:, :, i - top : i - top + STRIP, i - top :]
                fold_in(self.strips[i // STRIP][place], block)


def parts(rows: int) -> int:
    return max(1, -(-rows // PART))


def padded(rows: int) -> int:
    """How many rows `MomentStack.include` takes for so many: each part has as many, in whole steps of a product."""
    count = parts(rows)
    return count * (-(-rows // (16 * count)) * 16)


def roomy(count: int, expected: float) -> int:
    """Room for `count` rows of which `expected` are usual: nearly always the same, so that recorded work fits.

    >>> roomy(40, 48.0), roomy(60, 48.0), roomy(300, 48.0)
    (112, 112, 448)
    """
    room = -(-math.ceil(expected + 6 * math.sqrt(expected) + 8) // 16) * 16
    while room < count:
        room *= 2
    return room


def product(a: Tensor, b: Tensor) -> Tensor:
    """Products in float32 at least; of half precision they are exact."""
    if a.dtype in (torch.float16, torch.bfloat16):
        if a.is_cuda and torch.version.hip is None:
            return torch.bmm(a, b, out_dtype=torch.float32)
        return torch.bmm(a.float(), b.float())
    if a.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return torch.bmm(a.double(), b.double())
    return torch.bmm(a, b)


class ReservoirStack:
    """Reservoirs that are offered the same tokens: who is kept is decided and noted once for all."""

    def __init__(self, reservoirs: Sequence[Reservoir], device: torch.device) -> None:
        first = reservoirs[0]
        assert not first.size, "a stack begins empty"
        self._reservoirs = reservoirs
        # Behind the last place is one for rows that do not count.
        room = first.capacity + 1
        self._rows = torch.empty(len(reservoirs), room, first.d, device=device)
        self._marks = torch.zeros(len(reservoirs), room, dtype=torch.int64, device=device)
        for place, reservoir in enumerate(reservoirs):
            reservoir._rows, reservoir._marks = self._rows[place, :-1], self._marks[place, :-1]
            reservoir._payload, reservoir._priority = first._payload, first._priority

    @staticmethod
    def slots(reservoir: Reservoir, count: int, room: int) -> NDArray[np.int64]:
        """Where the next rows go: `count` that are kept, and as many that are not as fill the `room`."""
        assert reservoir.size + count <= reservoir.capacity, "the bar leaves room for every token that it lets pass"
        slots = np.full(room, reservoir.capacity)
        slots[:count] = np.arange(reservoir.size, reservoir.size + count)
        return slots

    def put(self, rows: Tensor, slots: Tensor, marks: Tensor | None = None) -> None:
        """Rows [reservoir, m, d] into their slots."""
        self._rows.index_copy_(1, slots, rows.to(self._rows.dtype))
        if marks is not None:
            self._marks.index_copy_(1, slots, marks)

    def note(self, payload: Tensor, rank: Tensor) -> None:
        """The tokens of the rows that were put, and their priorities: what the host knows."""
        first, count = self._reservoirs[0], len(payload)
        place = slice(first.size, first.size + count)
        first._payload[place], first._priority[place] = payload, rank
        for reservoir in self._reservoirs:
            reservoir.size, reservoir.seen = place.stop, reservoir.seen + count
