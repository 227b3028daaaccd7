"""What are the mean and covariance of directions at each norm? Ordinary tokens, for either half of the documents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.measures.state import Named, State
from armillary.probes.machinery import MODEL, RANDOM, View
from armillary.probes.machinery.instrument import TokenWatch

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.glimpse import Tokens
    from armillary.flow.sheet import Sheet, SheetGlimpse
    from armillary.flow.tokens import Corpus
    from armillary.measures import Moments


@dataclass
class CovarianceSums(State):
    """Per norm site the moments of z over ordinary tokens, of documents with an even and with an odd number."""

    even: "Named[Moments]"
    odd: "Named[Moments]"

    def halves(self, site: str) -> "tuple[Moments, Moments]":
        return self.even[site], self.odd[site]


@dataclass(frozen=True)
class Covariances:
    """The instrument. No claim compares spectra of shuffled text, and covariances are the dearest part of a pass."""

    name: str = "covariances"
    arms: tuple[str, ...] = (MODEL, RANDOM)
    overwrites: bool = True

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "CovarianceWatch":
        return CovarianceWatch(anatomy)

    def count(self, state: CovarianceSums) -> tuple[int, str]:
        return min(first.count + state.odd[site].count for site, first in state.even.items()), "ordinary tokens"

    def bytes(self, anatomy: "Anatomy") -> int:
        # Two halves in two arms as strips, and one whole covariance each when they are decomposed.
        return 4 * 8 * anatomy.d**2 * len(anatomy.norms)


class CovarianceWatch(TokenWatch):
    def __init__(self, anatomy: "Anatomy") -> None:
        from armillary.measures import Moments

        self.sites = tuple(anatomy.norms)
        # No coordinate of z exceeds √d, and massive tokens are left out: no entry is far from its column.
        even, odd = (Named.of(self.sites, lambda: Moments.empty(anatomy.d, even=True)) for _ in range(2))
        self.state = CovarianceSums(even, odd)
        self._half: Tensor | None = None

    def begin(self, tokens: "Tokens") -> None:
        super().begin(tokens)
        self._seen: list[str] = []
        self._sheet: Sheet | None = None

    def see(self, site: str, view: View) -> None:
        from armillary.flow.glimpse import ORDINARY
        from armillary.flow.sheet import SheetGlimpse

        glimpse, tokens = view.norm, self._tokens
        if isinstance(glimpse, SheetGlimpse) and finfo_bits(glimpse.raw) < 32:
            return self._see_half(site, glimpse)
        left_out = glimpse.kind != ORDINARY
        if not tokens.whole:
            left_out |= ~tokens.real
        self.state.halves(site)[tokens.batch.fold].include(glimpse.z, left_out, consume=True)

    def _see_half(self, site: str, glimpse: "SheetGlimpse") -> None:
        """Rows of half precision on a GPU: their products are taken of directions in half precision, too."""
        import torch

        from armillary.geometry.fused.rows import half_rows

        moments, norm, raw = self.state.halves(site)[self._tokens.batch.fold], glimpse.norm, glimpse.raw
        moments.settle_shift(len(raw), lambda some: norm.direction(raw[some]), raw.device)
        if self._half is None or self._half.numel() < raw.numel():
            self._half = torch.empty(raw.numel(), dtype=torch.float16, device=raw.device)
        half = self._half[: raw.numel()].view(raw.shape)
        counts, bound = self._tokens.counts, glimpse.typical.bound
        half_rows(raw, glimpse.rows, norm.kind == "layernorm", norm.eps, counts, bound, moments.shift, half)
        moments.include_half(half)
        self._seen.append(site)
        self._sheet = glimpse.sheet

    def end(self) -> None:
        """How many rows counted, for all sites together."""
        if self._sheet is None:
            return
        from armillary.flow.glimpse import ORDINARY
        from armillary.measures import Moments

        counts = ((self._sheet.kind == ORDINARY) & self._tokens.real).sum(1)
        halves = [self.state.halves(site)[self._tokens.batch.fold] for site in self._seen]
        order = [self._sheet.sites.index(site) for site in self._seen]
        Moments.count_each(halves, [counts[i] for i in order])


def finfo_bits(rows: "Tensor") -> int:
    import torch

    return torch.finfo(rows.dtype).bits


COVARIANCES = Covariances()
