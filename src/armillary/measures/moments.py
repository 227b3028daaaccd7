"""What are the mean and the full covariance of a stream of rows, to 1e-6, at the price of a float32 product?

Rows are shifted by a pilot median before they are squared (a column at 3000 ± 1 would otherwise lose every
digit of its variance; the median, because massive rows drag a mean away from all others and a median is
never more than one deviation from it), multiplied in float32 in chunks, and summed in float64. Only the
upper triangle is computed and kept, in strips of rows: a strip is one matrix product, where a BLAS `syrk`
through SciPy would wake a second thread pool that spins against torch's own. Measured at 2048 × 768 on two
cores: `ssyrk` was 1.5 times as fast as torch's full product alone, and cost 2.5 to 3.5 times as much
between the layers of a model.

A row with an entry far outside its column is taken out of the float32 product and squared in float64. One
entry of 4096 among ordinary ones of 0.7 makes the running float32 sum so large that the following 0.49s
vanish in it: up to 1.3e-5 of the variance was lost that way on planted rows. Rows
of half precision are squared in float64 too (`_coarse` says why).

What float32 leaves is noise of about 2e-8 of the mean variance on every eigenvalue: no harm to a
covariance, but an eigenvalue that should vanish seems not to once the median one is 50 times below the
mean. `exact=True` squares every row in float64, at about twice the cost, and such an eigenvalue vanishes to
1e-11.
"""

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from armillary.errors import ValuesError
from armillary.measures.device import home

# Rows per float32 product: the error of one product grows with its rows, the cost of a flush does not.
CHUNK = 4096
# Until this many rows were offered, a batch longer than half of them sets the shift anew: a first batch of one odd
# row must not set it for good.
PILOT = 1024
# Rows of the triangle per strip. At 2048 × 768 on two cores the square took 9.6 ms, strips of 128 6.8, of 192 6.5, of
# 256 6.6; 192 store a quarter more than the bare triangle.
STRIP = 192
# An entry is far outside its column at this many times the column's mean size; Gaussian rows never reach 8.
FAR = 32.0
# Chunks no longer than this are cheap in float64, and too short to say what is usual for a column.
SHORT = 64


class Moments:
    """Count, mean and covariance of float rows [n, d]; the state is float64 on the device of the first rows."""

    def __init__(self, d: int, exact: bool = False, even: bool = False) -> None:
        """`exact` squares in float64. `even` promises rows without far entries, and saves looking for them."""
        self.d = d
        self.exact = exact
        self.even = even and not exact
        self._count = torch.zeros((), dtype=torch.int64)
        # How many rows were offered, those left out included: known without waiting for the device.
        self._offered = 0
        self.shift: Float[Tensor, " d"] = torch.zeros(d)
        self._sum = torch.zeros(d, dtype=torch.float64)
        # Created by the first rows: 2.7 MB at d = 768 that need no zeros.
        self._strips: list[Tensor] = []

    @classmethod
    def empty(cls, d: int, exact: bool = False, even: bool = False) -> "Moments":
        return cls(d, exact, even)

    @classmethod
    def of(cls, rows: Float[Tensor, "n d"], exact: bool = False) -> "Moments":
        """The moments of these rows.

        >>> m = Moments.of(torch.tensor([[3000.0, 0.0], [3002.0, 2.0]]))
        >>> m.covariance()
        tensor([[1., 1.],
                [1., 1.]], dtype=torch.float64)
        """
        moments = cls(rows.shape[1], exact)
        moments.include(rows)
        return moments

    @property
    def count(self) -> int:
        return int(self._count)

    def include(
        self,
        rows: Float[Tensor, "n d"],
        without: Bool[Tensor, " n"] | None = None,
        consume: bool = False,
        counted: bool = True,
    ) -> None:
        """Add rows of any float dtype on any device. Moves `shift` while fewer than PILOT rows were offered.

        `without` marks rows to leave out: they are blanked once centred, which saves copying the others. `consume`
        allows float32 rows to be overwritten, which saves a copy of them all. With `even` rows nothing here waits for
        the device: NaN and infinity are found when the moments are read. Where recorded work adds the rows of every
        batch, they are not `counted` here: the caller says by `offered` how many there were.
        """
        self._check(rows)
        on_cpu = rows.device.type == "cpu"
        if on_cpu and without is not None and int(without.sum()) > len(rows) // 8:
            # Many blank rows cost more than a copy of the others.
            return self.include(rows[~without], consume=True, counted=counted)
        self._settle(rows.device)
        if self._offered < PILOT and len(rows) > self._offered // 2:
            self._move(_middle(rows.detach(), self.even))
        self._offered += len(rows) if counted else 0
        for start in range(0, len(rows), CHUNK):
            # A narrower dtype is promoted in the same pass; a float64 row keeps its digits until it is centred.
            chunk = rows[start : start + CHUNK].detach()
            in_place = consume and chunk.dtype == torch.float32
            shift = self.shift.to(rows.device)
            centred = chunk.sub_(shift) if in_place else chunk - shift
            blank = None if without is None else without[start : start + CHUNK]
            if blank is not None:
                _blanked(centred, blank)
            self._add(centred, None if in_place else chunk, blank)

    @property
    def settled(self) -> bool:
        """Does no further batch move the shift?"""
        return self._offered >= PILOT

    def offered(self, rows: int) -> None:
        self._offered += rows

    def __add__(self, other: "Moments") -> "Moments":
        if self.d != other.d:
            raise ValueError(f"cannot add moments of {self.d} and of {other.d} columns")
        merged = Moments(self.d, self.exact and other.exact, self.even and other.even)
        merged._settle(self._sum.device)
        merged._count = self._count + other._count.to(self._count.device)
        merged._offered = self._offered + other._offered
        if merged._offered:
            heavy = self._offered * self.shift.double() + other._offered * other.shift.to(self.shift.device).double()
            merged.shift = (heavy / merged._offered).float()
        for part in (self, other):
            if part._offered:
                total, strips = part._about(merged.shift)
                merged._sum += total.to(merged._sum.device)
                merged._gather(strips)
        return merged

    def reset(self) -> None:
        self._offered = 0
        for part in (self._count, self._sum, *self._strips):
            part.zero_()

    def arrays(self) -> dict[str, Tensor]:
        numbers = torch.tensor([self.count, self._offered])
        strips = {f"strip{i}": strip.cpu() for i, strip in enumerate(self._strips)}
        return {"counts": numbers, "shift": self.shift.cpu(), "sum": self._sum.cpu(), **strips}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        self._count, self._offered = arrays["counts"][0].clone(), int(arrays["counts"][1])
        self.shift, self._sum = arrays["shift"].clone(), arrays["sum"].clone()
        count = sum(name.startswith("strip") for name in arrays)
        self._strips = [arrays[f"strip{i}"].clone() for i in range(count)]

    def mean(self) -> Float[Tensor, " d"]:
        self._readable()
        return (self.shift.double() + self._sum / self.count).cpu()

    def covariance(self) -> Float[Tensor, "d d"]:
        """Divided by n, not n − 1: the covariance of these rows, not an estimate for others."""
        self._readable()
        full = torch.zeros(self.d, self.d, dtype=torch.float64)
        for j, strip in enumerate(self._strips):
            i = j * STRIP
            full[i : i + STRIP, i:] = strip.cpu()
        full = full.triu() + full.triu(1).T
        offset = self._sum.cpu() / self.count
        return full / self.count - torch.outer(offset, offset)

    def _add(self, rows: Tensor, raw: Tensor | None = None, blank: Tensor | None = None) -> None:
        """Square centred rows: the usual ones in float32, the rest exactly, from raw rows where known."""
        self._count += len(rows) if blank is None else (~blank).sum().to(self._count.device)
        if self.even:
            return self._square(rows, rows.sum(dim=0))
        far = _far(rows, self.exact or _coarse(rows, raw))
        if blank is not None and len(far):
            far = far[~blank[far]]
        if len(far):
            exact = (rows if raw is None else raw)[far].to(home(rows.device)).double()
            if raw is not None:
                exact -= self.shift.to(exact.device).double()
            self._square(exact, exact.sum(dim=0))
            # Centred rows that the caller handed over are not ours to change.
            rows = rows.index_fill(0, far, 0) if raw is None else rows.index_fill_(0, far, 0)
        if len(far) < len(rows):
            rows = rows.to(torch.float32)
            # Under 'high' or 'medium' a float32 product is made of tf32 or bf16 pieces, worth three digits.
            faithful = torch.get_float32_matmul_precision() == "highest"
            self._square(rows if faithful else rows.double(), rows.sum(dim=0))

    def _square(self, rows: Tensor, total: Tensor) -> None:
        self._sum += total.to(self._sum.device)
        self._gather(rows[:, i : i + STRIP].T @ rows[:, i:] for i in range(0, self.d, STRIP))

    def _gather(self, strips: Iterable[Tensor]) -> None:
        device = self._sum.device
        if not self._strips:
            self._strips = [strip.to(device).double() for strip in strips]
            return
        for strip, addend in zip(self._strips, strips, strict=True):
            strip += addend.to(device)

    def _settle(self, device: torch.device) -> None:
        """Keep the state where the rows are."""
        device = home(device)
        if self._sum.device != device:
            self._count, self._sum, self.shift = (
                part.to(device, non_blocking=True) for part in (self._count, self._sum, self.shift)
            )
            self._strips = [strip.to(device) for strip in self._strips]

    def _move(self, shift: Tensor) -> None:
        if self._offered:
            # In place: recorded work adds to these tensors.
            total, strips = self._about(shift)
            self._sum.copy_(total)
            for strip, moved in zip(self._strips, strips, strict=True):
                strip.copy_(moved)
        self.shift.copy_(shift)

    def _about(self, shift: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The same sums about another shift: exact algebra in float64. Answers new tensors."""
        step = shift.to(self._sum.device).double() - self.shift.double()
        total = self._sum - self._count * step
        strips = []
        for j, strip in enumerate(self._strips):
            i = j * STRIP
            rows = slice(i, i + STRIP)
            # Σ(x−s−δ)(x−s−δ)ᵀ = Σ(x−s)(x−s)ᵀ − sum·δᵀ − δ·(sum − nδ)ᵀ
            moved = torch.outer(self._sum[rows], step[i:]) + torch.outer(step[rows], total[i:])
            strips.append(strip - moved)
        return total, strips

    def _check(self, rows: Tensor) -> None:
        if rows.shape[1] != self.d:
            raise ValueError(f"these moments are of {self.d} columns, the rows have {rows.shape[1]}")

    def _readable(self) -> None:
        if self.count == 0:
            raise ValueError("no rows were included: there is no mean and no covariance")
        if not bool(self._sum.isfinite().all()):
            raise ValuesError("the rows contain NaN or infinity: they have no covariance.")


def _blanked(rows: Tensor, blank: Tensor) -> None:
    """Set the marked rows to 0. On the CPU only they are written; on a GPU all are, because counting them would
    wait."""
    if rows.device.type == "cpu":
        rows.index_fill_(0, blank.nonzero()[:, 0], 0)
    else:
        rows.masked_fill_(blank[:, None], 0)


def _middle(rows: Tensor, even: bool) -> Tensor:
    """Each column's middle over some 64 rows spread over the batch: within a quarter of a deviation of it.

    The median; or, of rows without far entries, the mean, which is the cheaper.
    """
    pilot = rows[:: (len(rows) // 64) | 1].to(home(rows.device)).to(torch.float32)
    if even:
        return pilot.mean(dim=0)
    if not bool(pilot.isfinite().all()):
        raise _broken(rows)
    return pilot.median(dim=0).values


def _coarse(centred: Tensor, raw: Tensor | None) -> bool:
    """Do the rows, or a column once centred, use only the first half of float32's digits?

    So do numbers of half precision, also when a caller widened them, and what is left of a column at 30 000
    ± 1. Few distinct values make the same rounding error again and again, and squares of whole steps leave
    remainders 0 and 1 by 4, never 2 and 3: such rows lost up to 2.6e-6 of their variance in float32
    products.
    """
    if raw is not None and not bool(_last_digits(raw).any()):
        return True
    sample = centred[:: (len(centred) // 16) | 1]
    return bool((sample.any(dim=0) & ~_last_digits(centred)).any())


def _last_digits(rows: Tensor) -> Tensor:
    """Which columns use the last 12 of float32's 23 bits, by some 16 rows; half precisions leave 13 empty."""
    sample = rows[:: (len(rows) // 16) | 1].to(torch.float32).contiguous()
    return (sample.view(torch.int32) & 0xFFF).any(dim=0)


def _far(rows: Tensor, everything: bool) -> Tensor:
    """Indices of the rows to square in float64. Two looks over rows in cache: a tenth of the whole cost."""
    n = len(rows)
    peak = torch.maximum(rows.amax(dim=0), -rows.amin(dim=0))
    if not bool(peak.isfinite().all()):
        raise _broken(rows)
    if everything or n <= SHORT:
        return torch.arange(n, device=rows.device)
    # An odd stride: sequences of 2^k tokens must not put all their massive first tokens into the sample.
    usual = FAR * rows[:: (n // 256) | 1].abs().mean(dim=0)
    columns = (peak > usual).nonzero()[:, 0]
    if not len(columns):
        return columns
    return (rows[:, columns].abs() > usual[columns]).any(dim=1).nonzero()[:, 0]


def _broken(rows: Tensor) -> ValueError:
    bad = int((~rows.isfinite()).any(dim=1).sum())
    return ValueError(f"{bad} of {len(rows)} rows hold NaN or infinity: they have no covariance; find their cause")
