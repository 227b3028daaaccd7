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
    from armillary.flow.site_sheet import SheetGlimpse, SiteSheet
    from armillary.flow.tokens import Corpus
    from armillary.measures import Moments


# Other than the samples' seed: a sample must not consist of the tokens that a covariance reads.
SEED = 1


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
        return CovarianceWatch(anatomy, share(anatomy, corpus))

    def count(self, state: CovarianceSums) -> tuple[int, str]:
        return min(first.count + state.odd[site].count for site, first in state.even.items()), "ordinary tokens"

    def bytes(self, anatomy: "Anatomy") -> int:
        # Two halves in two arms as strips, and one whole covariance each when they are decomposed.
        return 4 * 8 * anatomy.d**2 * len(anatomy.norms)


# Tokens per dimension that a covariance reads. Its eigenvalues are known to about √(d/n): 6 % of the largest.
ENOUGH = 256


def share(anatomy: "Anatomy", corpus: "Corpus") -> float:
    """The share of the tokens that covariances read: all, unless the text is long."""
    return min(1.0, ENOUGH * anatomy.d / max(1, corpus.tokens))


class CovarianceWatch(TokenWatch):
    def __init__(self, anatomy: "Anatomy", share: float) -> None:
        from armillary.measures import Moments

        self.sites = tuple(anatomy.norms)
        # No coordinate of z exceeds √d, and massive tokens are left out: no entry is far from its column.
        even, odd = (Named.of(self.sites, lambda: Moments.empty(anatomy.d, even=True)) for _ in range(2))
        self.state = CovarianceSums(even, odd)
        self._half: Tensor | None = None
        # Up to which priority a token is read; by its document and place, so that parts of a text add up to the whole.
        self._bar = None if share >= 1 else int(share * 2**64) - 2**63
        self._chosen: Tensor | None = None

    def begin(self, tokens: "Tokens") -> None:
        super().begin(tokens)
        self._seen: list[str] = []
        self._sheet: SiteSheet | None = None
        if self._bar is not None:
            self._chosen = self._choose(tokens, self._bar)

    def _choose(self, tokens: "Tokens", bar: int) -> "Tensor":
        """Rows of a seeded share of the tokens, first positions left out."""
        import torch

        from armillary.measures.reservoir import priority

        batch = tokens.batch
        rows, width = batch.ids.shape
        places = torch.arange(rows * width).reshape(rows, width)[:, 1:][batch.mask[:, 1:]]
        rank = priority(SEED, torch.stack((batch.documents[places // width], places % width), 1))
        return places[rank <= bar].to(tokens.device, non_blocking=True)

    def _of(self, rows: "Tensor", dim: int = 0) -> "Tensor":
        """The rows that are read."""
        return rows if self._chosen is None else rows.index_select(dim, self._chosen)

    def see(self, site: str, view: View) -> None:
        from armillary.flow.glimpse import ORDINARY
        from armillary.flow.site_sheet import SheetGlimpse

        glimpse, tokens = view.norm, self._tokens
        if self._chosen is not None and not len(self._chosen):
            return
        if isinstance(glimpse, SheetGlimpse) and finfo_bits(glimpse.raw) < 32:
            return self._see_half(site, glimpse)
        left_out = glimpse.kind != ORDINARY
        if not tokens.whole:
            left_out |= ~tokens.real
        self.state.halves(site)[tokens.batch.fold].include(self._of(glimpse.z), self._of(left_out), consume=True)

    def _see_half(self, site: str, glimpse: "SheetGlimpse") -> None:
        """Rows of half precision on a GPU: their products are taken of directions in half precision, too."""
        import torch

        from armillary.geometry.fused.row_statistics import half_rows

        moments, norm, raw = self.state.halves(site)[self._tokens.batch.fold], glimpse.norm, self._of(glimpse.raw)
        moments.settle_shift(len(raw), lambda some: norm.direction(raw[some]), raw.device)
        if self._half is None or self._half.numel() < raw.numel():
            self._half = torch.empty(raw.numel(), dtype=torch.float16, device=raw.device)
        half = self._half[: raw.numel()].view(raw.shape)
        counts, bound, rows = self._of(self._tokens.counts), glimpse.typical.bound, self._of(glimpse.rows, 1)
        half_rows(raw, rows, norm.kind == "layernorm", norm.eps, counts, bound, moments.shift, half)
        moments.include_half(half)
        self._seen.append(site)
        self._sheet = glimpse.sheet

    def end(self) -> None:
        """How many rows counted, for all sites together."""
        if self._sheet is None:
            return
        from armillary.flow.glimpse import ORDINARY
        from armillary.measures import Moments

        counts = self._of((self._sheet.kind == ORDINARY) & self._tokens.real, 1).sum(1)
        halves = [self.state.halves(site)[self._tokens.batch.fold] for site in self._seen]
        order = [self._sheet.sites.index(site) for site in self._seen]
        Moments.count_each(halves, [counts[i] for i in order])


def finfo_bits(rows: "Tensor") -> int:
    import torch

    return torch.finfo(rows.dtype).bits


COVARIANCES = Covariances()
