"""How do the measures of many sites take a batch at once? Their sums lie side by side; each measure is a view.

A measure that is part of a stack stays what it is: it adds, is saved and is read as before.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.geometry.fused.folding import fold_in
from armillary.measures.moments import PILOT, STRIP, Moments
from armillary.measures.reservoir import Reservoir

# Rows of one product: float32 sums of more would lose digits.
PART = 4096
# Numbers in the products of one batch of them.
ROOM = 1 << 26
# A product has this many strips of the triangle: fewer, larger ones suit a GPU.
TOGETHER = 2 * STRIP


class MomentStack:
    """Moments of equal width that are offered equally many rows."""

    def __init__(self, moments: Sequence[Moments], device: torch.device) -> None:
        self._moments, self.d = moments, moments[0].d
        self.shift = torch.zeros(len(moments), self.d, device=device)
        self.sum = torch.zeros(len(moments), self.d, dtype=torch.float64, device=device)
        self.count = torch.zeros(len(moments), dtype=torch.int64, device=device)
        sizes = [(min(STRIP, self.d - i), self.d - i) for i in range(0, self.d, STRIP)]
        self.strips = [torch.zeros(len(moments), *size, dtype=torch.float64, device=device) for size in sizes]
        for place, moment in enumerate(moments):
            old = (moment.shift, moment._sum, moment._count, *moment._strips) if moment._offered else ()
            moment.shift, moment._sum, moment._count = self.shift[place], self.sum[place], self.count[place]
            moment._strips = [strip[place] for strip in self.strips]
            for new, kept in zip((moment.shift, moment._sum, moment._count, *moment._strips), old, strict=False):
                new.copy_(kept)

    def unsettled(self, place: slice, rows: int) -> bool:
        """Should a batch of so many rows set the shift anew?"""
        offered = self._moments[place.start]._offered
        return offered < PILOT and rows > offered // 2

    def move(self, place: slice, shifts: Tensor) -> None:
        """Set the shifts [measure, d]."""
        for number, moment in enumerate(self._moments[place]):
            if moment._offered:
                total, strips = moment._about(shifts[number])
                moment._sum.copy_(total)
                for mine, moved in zip(moment._strips, strips, strict=True):
                    mine.copy_(moved)
        self.shift[place] = shifts

    def include(self, place: slice, z: Tensor, rows: int) -> None:
        """Add rows [measure, m, d] from which the shifts were taken, those that do not count being 0; m is a multiple
        of the number of `parts`. Say by `count` how many count. Products are summed in float32 over some thousand
        rows, then in float64."""
        for moment in self._moments[place]:
            moment._offered += rows
        most = max(1, ROOM // (parts(z.shape[1]) * self.d**2))
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
        self._reservoirs = reservoirs
        self._rows = torch.empty(len(reservoirs), first.capacity, first.d, device=device)
        self._marks = torch.zeros(len(reservoirs), first.capacity, dtype=torch.int64, device=device)
        for place, reservoir in enumerate(reservoirs):
            kept = reservoir.kept
            self._rows[place, :kept], self._marks[place, :kept] = reservoir._rows[:kept], reservoir._marks[:kept]
            reservoir._rows, reservoir._marks = self._rows[place], self._marks[place]
            reservoir._payload, reservoir._priority = first._payload, first._priority

    def append(self, rows: Tensor, payload: Tensor, rank: Tensor, marks: Tensor | None = None) -> None:
        """Rows [reservoir, m, d] of the tokens of a payload and their priorities, all of which have room."""
        first, count = self._reservoirs[0], len(payload)
        place = slice(first.kept, first.kept + count)
        assert place.stop <= first.capacity, "the bar leaves room for every token that it lets pass"
        self._rows[:, place] = rows
        if marks is not None:
            self._marks[:, place] = marks
        first._payload[place], first._priority[place] = payload, rank
        for reservoir in self._reservoirs:
            reservoir.kept, reservoir.seen = place.stop, reservoir.seen + count
