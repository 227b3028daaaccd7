"""How heavy are the tails of normalised features? Fourth moments of every axis, per norm site and document group."""

from dataclasses import dataclass

import numpy as np

from armillary.measures import Named, State
from armillary.probes.machinery.instrument import ARMS


@dataclass
class FourthMoments(State):
    """Per norm site [document group, axis, (count, Σz, Σz², Σz³, Σz⁴)]."""

    sums: Named

    def kurtosis(self) -> np.ndarray:
        """[document group, site, axis, 5], the sums that `kurtosis` takes."""
        return np.stack([totals.additive() for totals in self.sums.values()], 1)


@dataclass(frozen=True)
class Fourths:
    """The instrument."""

    name: str = "fourth moments"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy, corpus, seed):
        return FourthWatch(anatomy, corpus)

    def count(self, state):
        return int(min(totals.additive()[:, 0, 0].sum() for totals in state.sums.values())), "tokens"

    def bytes(self, anatomy):
        return len(self.arms) * 40 * anatomy.d * len(anatomy.norms)


class FourthWatch:
    def __init__(self, anatomy, corpus):
        from armillary.measures import Totals

        self.sites = tuple(anatomy.norms)
        self.state = FourthMoments(Named.of(self.sites, lambda: Totals(corpus.groups, (anatomy.d, 5))))

    def begin(self, tokens):
        self._tokens = tokens

    def see(self, site, view):
        import torch

        z = view.norm.z.index_select(0, self._tokens.rows).double()
        powers = torch.stack([z**n for n in range(5)], -1)
        self.state.sums[site].include(self._tokens.group[self._tokens.rows], powers)

    def end(self):
        pass


FOURTHS = Fourths()
