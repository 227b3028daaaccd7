"""What are the mean and covariance of directions at each norm? Ordinary tokens, for either half of the documents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.measures.state import Named, State
from armillary.probes.machinery import MODEL, RANDOM, View
from armillary.probes.machinery.instrument import TokenWatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from armillary.anatomy import Anatomy
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
    recordable = True

    def __init__(self, anatomy: "Anatomy", share: float) -> None:
        from armillary.geometry.fused import batched
        from armillary.measures import Moments

        self.sites = tuple(anatomy.norms)
        self.in_groups = batched(anatomy.device)
        # No coordinate of z exceeds √d, and massive tokens are left out: no entry is far from its column.
        even, odd = (Named.of(self.sites, lambda: Moments.empty(anatomy.d, even=True)) for _ in range(2))
        self.state = CovarianceSums(even, odd)
        self._order = {site: place for place, site in enumerate(self.sites)}
        self._stacks: dict[int, tuple[CovarianceSums, MomentStack, set[int]]] = {}
        # Up to which priority a token is read; by its document and place, so that parts of a text add up to the whole.
        self._bar = None if share >= 1 else int(share * 2**64) - 2**63
        self._share = share
        self._chosen: Tensor | None = None

    def begin(self, tokens: "Tokens") -> None:
        super().begin(tokens)
        self._sheet: SiteSheet | None = None
        self._offered = len(tokens.later)
        if self._bar is not None:
            self._chosen = tokens.put(self._choose(tokens, self._bar))

    def _choose(self, tokens: "Tokens", bar: int) -> "NDArray[np.int64]":
        """Rows of a seeded share of the tokens, first positions left out; in groups, filled up by −1."""
        import numpy as np

        from armillary.measures.reservoir import hashed
        from armillary.measures.stacks import roomy

        places = tokens.places
        rows = places.rows[hashed(SEED, places.document, places.position) <= bar]
        self._offered = len(rows)
        if not self.in_groups:
            return rows
        room = roomy(len(rows), self._share * tokens.batch.ids.numel())
        return np.concatenate((rows, np.full(room - len(rows), -1)))

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
        import torch

        from armillary.geometry.fused.row_statistics import directions
        from armillary.measures.stacks import padded

        chosen = self._tokens.later if self._chosen is None else self._chosen
        if not len(chosen):
            return
        (stack, shifted), self._sheet = self._stack(group), group.sheet
        for here, there in group.runs(self._order):
            raw = group.raw[here]
            if there.start not in shifted:
                stack.shift[there] = torch.stack([group.sheet.scales.centres[site] for site in group.sites[here]])
                shifted.add(there.start)
            half = torch.finfo(raw[0].dtype).bits < 32
            kind = torch.float16 if half else group.statistics.dtype
            z = torch.empty(len(raw), padded(len(chosen)), stack.d, dtype=kind, device=raw[0].device)
            known = (group.statistics[here], chosen, group.centred, group.norm.eps)
            directions(raw, *known, group.bounds[here], stack.shift[there], z)
            stack.include(there, z)

    def _stack(self, group: "Group") -> "tuple[MomentStack, set[int]]":
        """The sums of this half of the documents, side by side, and where the shifts of a group of them are set."""
        import torch

        from armillary.measures.stacks import MomentStack

        fold, scales = self._tokens.batch.fold, group.sheet.scales
        if fold not in self._stacks or self._stacks[fold][0] is not self.state:
            stack = MomentStack([self.state.halves(site)[fold] for site in self.sites], group.raw[0].device)
            if scales.ready:
                stack.shift.copy_(torch.stack([scales.centres[site] for site in self.sites]))
            self._stacks[fold] = self.state, stack, set(range(len(self.sites))) if scales.ready else set()
        return self._stacks[fold][1:]

    def end(self) -> None:
        """On a GPU: how many rows counted, for all sites together."""
        if self._sheet is None:
            return
        sheet, stack = self._sheet, self._stacks[self._tokens.batch.fold][1]
        chosen, order = self._tokens.later if self._chosen is None else self._chosen, self._sheet.order(self.sites)
        massive = sheet.massive if order is None else sheet.massive.index_select(0, order)
        stack.count += ((chosen >= 0) & ~massive.index_select(1, chosen.clamp_min(0))).sum(1)

    def settle(self, left: object) -> None:
        if self._offered and self.in_groups:
            self._stacks[self._tokens.batch.fold][1].offered(self._offered)


COVARIANCES = Covariances()
