"""What are the mean and covariance of directions at each norm? Ordinary tokens, for either half of the documents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.measures.state import Named, State
from armillary.probes.machinery import MODEL, RANDOM, View
from armillary.probes.machinery.instrument import TokenWatch

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
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

    def see(self, site: str, view: View) -> None:
        from armillary.flow.glimpse import ORDINARY

        glimpse, tokens = view.norm, self._tokens
        left_out = glimpse.kind != ORDINARY
        if not tokens.whole:
            left_out |= ~tokens.real
        self.state.halves(site)[tokens.batch.fold].include(glimpse.z, left_out, consume=True)


COVARIANCES = Covariances()
