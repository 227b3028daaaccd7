"""What are the mean and covariance of directions at each norm? Ordinary tokens, for either half of the documents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.measures.state import Named, State
from armillary.probes.machinery import MODEL, RANDOM, View
from armillary.probes.machinery.instrument import TokenWatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, dtype

    from armillary.anatomy import Anatomy, Norm
    from armillary.flow.glimpse import Tokens
    from armillary.flow.site_sheet import Group, SiteSheet
    from armillary.flow.tokens import Corpus
    from armillary.measures import Moments
    from armillary.measures.stacks import MomentStack


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
        from armillary.geometry.fused import batched
        from armillary.measures import Moments

        self.sites = tuple(anatomy.norms)
        self.in_groups = batched(anatomy.device)
        # No coordinate of z exceeds √d, and massive tokens are left out: no entry is far from its column.
        even, odd = (Named.of(self.sites, lambda: Moments.empty(anatomy.d, even=True)) for _ in range(2))
        self.state = CovarianceSums(even, odd)
        self._order = {site: place for place, site in enumerate(self.sites)}
        self._stacks: dict[int, tuple[CovarianceSums, MomentStack]] = {}
        self._buffer: Tensor | None = None
        # Up to which priority a token is read; by its document and place, so that parts of a text add up to the whole.
        self._bar = None if share >= 1 else int(share * 2**64) - 2**63
        self._chosen: Tensor | None = None

    def begin(self, tokens: "Tokens") -> None:
        super().begin(tokens)
        self._sheet: SiteSheet | None = None
        if self._bar is not None:
            self._chosen = self._choose(tokens, self._bar)

    def _choose(self, tokens: "Tokens", bar: int) -> "Tensor":
        """Rows of a seeded share of the tokens, first positions left out."""
        import torch

        from armillary.measures.reservoir import hashed

        places = tokens.places
        rank = hashed(SEED, places.document, places.position)
        return torch.from_numpy(places.rows[rank <= bar]).to(tokens.device, non_blocking=True)

    def see(self, site: str, view: View) -> None:
        from armillary.flow.glimpse import ORDINARY

        glimpse, tokens, chosen = view.norm, self._tokens, self._chosen
        if chosen is not None and not len(chosen):
            return
        left_out = glimpse.kind != ORDINARY
        if not tokens.whole:
            left_out |= ~tokens.real
        z, left_out = (part if chosen is None else part.index_select(0, chosen) for part in (glimpse.z, left_out))
        self.state.halves(site)[tokens.batch.fold].include(z, left_out, consume=True)

    def see_group(self, group: "Group") -> None:
        """On a GPU: products of several sites at once. Those of a model of half precision are of directions in half
        precision, too."""
        from armillary.geometry.fused.row_statistics import directions
        from armillary.measures.stacks import padded

        chosen = self._tokens.later if self._chosen is None else self._chosen
        if not len(chosen):
            return
        stack, self._sheet = self._stack(group), group.sheet
        for here, there in group.runs(self._order):
            raw = group.raw[here]
            if stack.unsettled(there, len(chosen)):
                stack.move(there, self._middles(raw, chosen, group.norm))
            z = self._space(len(raw), padded(len(chosen)), raw[0], group.statistics.dtype)
            known = (group.statistics[here], chosen, group.centred, group.norm.eps)
            directions(raw, *known, group.bounds[here], stack.shift[there], z)
            stack.include(there, z, len(chosen))

    def _stack(self, group: "Group") -> "MomentStack":
        """The sums of this half of the documents, side by side."""
        from armillary.measures.stacks import MomentStack

        fold = self._tokens.batch.fold
        if fold not in self._stacks or self._stacks[fold][0] is not self.state:
            moments = [self.state.halves(site)[fold] for site in self.sites]
            self._stacks[fold] = self.state, MomentStack(moments, group.raw[0].device)
        return self._stacks[fold][1]

    def _middles(self, raw: "Sequence[Tensor]", chosen: "Tensor", norm: "Norm") -> "Tensor":
        """The mean direction of some 64 rows, per site."""
        from armillary.geometry.fused.row_statistics import gathered

        some = chosen[:: (len(chosen) // 64) | 1]
        rows = gathered(raw, some, raw[0].new_empty(len(raw), len(some), raw[0].shape[1]))
        return norm.direction(rows).mean(1).float()

    def _space(self, sites: int, rows: int, like: "Tensor", wide: "dtype") -> "Tensor":
        """A buffer for directions that all groups use in turn."""
        import torch

        kind = torch.float16 if torch.finfo(like.dtype).bits < 32 else wide
        size = sites * rows * like.shape[1]
        if self._buffer is None or self._buffer.numel() < size or self._buffer.dtype != kind:
            self._buffer = torch.empty(size, dtype=kind, device=like.device)
        return self._buffer[:size].view(sites, rows, like.shape[1])

    def end(self) -> None:
        """On a GPU: how many rows counted, for all sites together."""
        if self._sheet is None:
            return
        sheet, stack = self._sheet, self._stacks[self._tokens.batch.fold][1]
        chosen, order = self._tokens.later if self._chosen is None else self._chosen, self._sheet.order(self.sites)
        massive = sheet.massive if order is None else sheet.massive.index_select(0, order)
        stack.count += len(chosen) - massive.index_select(1, chosen).sum(1)


COVARIANCES = Covariances()
