"""By what angle does the stream turn from token to token? Sums per document, before the first block and after each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.measures.state import Named, State
from armillary.probes.machinery import ARMS, Floats, View
from armillary.probes.machinery.instrument import TokenWatch

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus
    from armillary.measures import Totals


@dataclass
class CurvatureSums(State):
    """Per state of the stream, per document group: how many turns, and the sum of their angles in degrees."""

    turns: "Named[Totals]"

    def sums(self) -> Floats:
        """[document group, state, (turns, degrees)]."""
        return np.stack([totals.additive() for totals in self.turns.values()], 1)

    @property
    def states(self) -> list[str]:
        return list(self.turns)


@dataclass(frozen=True)
class Curvatures:
    """The instrument: the angle between the steps t−1 → t and t → t+1. Steps from or to a first position, where the
    stream is often many times as long, do not count; neither does a token that does not move."""

    name: str = "curvatures"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "CurvatureWatch":
        return CurvatureWatch(anatomy, corpus)

    def count(self, state: CurvatureSums) -> tuple[int, str]:
        return int(state.sums()[..., 0].sum(0).max()), "turns from token to token"

    def bytes(self, anatomy: "Anatomy") -> int:
        return 0


class CurvatureWatch(TokenWatch):
    recordable = True

    def __init__(self, anatomy: "Anatomy", corpus: "Corpus") -> None:
        from armillary.measures import Totals

        self.sites = ["L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(anatomy.layers))]
        self.state = CurvatureSums(Named.of(self.sites, lambda: Totals(corpus.groups, (2,))))

    def see(self, site: str, view: View) -> None:
        import torch

        tokens, shape = self._tokens, self._tokens.batch.ids.shape
        if shape[1] < 4:
            return
        stream = view.value[:, 1:].to(torch.promote_types(view.value.dtype, torch.float32))
        step = stream.diff(dim=1)
        length = torch.linalg.vector_norm(step, dim=-1)
        along = (step[:, 1:] * step[:, :-1]).sum(-1) / (length[:, 1:] * length[:, :-1]).clamp_min(1e-30)
        moved = (length[:, 1:] > 0) & (length[:, :-1] > 0) & tokens.real.view(shape)[:, 3:]
        degrees = torch.rad2deg(along.clamp(-1, 1).double().acos()) * moved
        rows = torch.stack((moved.double().sum(1), degrees.sum(1)), 1)
        self.state.turns[site].include(tokens.group.view(shape)[:, 0], rows)


CURVATURES = Curvatures()
