"""How long are tokens before and after each norm? Sums per kind of token and document, and massive activations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.measures.state import Named, State
from armillary.probes.machinery import ARMS, Floats, T, View
from armillary.probes.machinery.instrument import TokenWatch

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.glimpse import Glimpse, Tokens
    from armillary.flow.site_sheet import Group
    from armillary.flow.tokens import Corpus
    from armillary.measures import GroupedScalars, Largest, TopK

SCALARS = (
    "length",  # ‖x‖ before the norm
    "length2",  # its square
    "radius",  # ‖z‖/√d
    "radius_error",  # |radius − what ε leaves of it|
    "short",  # is the radius below 0.99?
    "near",  # is the radius within 1 % of 1?
    "before_near",  # is ‖x‖ within 1 % of the site's median?
    "cos2",  # d · cos²(z, 1)
    "mean_z",  # |mean of z's coordinates|
    "cos2_x",  # d · cos²(x, 1)
    "massive",  # has the token a massive coordinate?
)
ALL_KINDS = (0, 1, 2)
"""Ordinary tokens, first positions and massive tokens, as `flow.glimpse.KINDS` numbers them."""
TOP = 8


@dataclass
class LengthSums(State):
    """Per norm site: `SCALARS` per kind of token and document group, the largest massive activations (over the site's
    median magnitude, with document, position, token, dimension), and the norm's deviation from its module's output."""

    groups: int
    scalars: "Named[GroupedScalars]"
    massive: "Named[TopK]"
    deviation: "Named[Largest]"

    def sums(self, name: str, kinds: Sequence[int] = ALL_KINDS) -> Floats:
        """[site, group, (count, sum, sum of squares)] of one scalar over the given kinds of token."""
        column = SCALARS.index(name)
        rows = [scalars.additive()[:, column].reshape(3, self.groups, 3) for scalars in self.scalars.values()]
        return np.stack([row[list(kinds)].sum(0) for row in rows])

    def extremes(self, name: str) -> Floats:
        """[site, (min, max)] of one scalar over all tokens."""
        column = SCALARS.index(name)
        return np.array([(float(s.least[column]), float(s.greatest[column])) for s in self.scalars.values()])

    def massive_counts(self) -> list[int]:
        """How many tokens have a massive coordinate, per site."""
        return [int(count) for count in self.sums("massive").sum(1)[:, 1]]

    def deviations(self) -> list[float]:
        return [float(largest.values[0]) for largest in self.deviation.values()]


@dataclass(frozen=True)
class Lengths:
    """The instrument."""

    name: str = "lengths"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "LengthWatch":
        return LengthWatch(anatomy, corpus)

    def count(self, state: LengthSums) -> tuple[int, str]:
        return int(state.sums("length", [0]).sum(1)[:, 0].min()), "ordinary tokens"

    def bytes(self, anatomy: "Anatomy") -> int:
        return 0


class LengthWatch(TokenWatch):
    recordable = True

    def __init__(self, anatomy: "Anatomy", corpus: "Corpus") -> None:
        from armillary.flow.glimpse import KINDS
        from armillary.geometry.fused import batched
        from armillary.measures import GroupedScalars, Largest, TopK

        self.sites = tuple(anatomy.norms)
        self._norms = anatomy.norms
        self.in_groups = batched(anatomy.device)
        self.state = LengthSums(
            corpus.groups,
            Named.of(self.sites, lambda: GroupedScalars.empty(len(KINDS) * corpus.groups, SCALARS)),
            Named.of(self.sites, lambda: TopK.empty(TOP, 4)),
            Named.of(self.sites, Largest),
        )

    def begin(self, tokens: "Tokens") -> None:
        super().begin(tokens)
        self._seen: list[tuple[Group, Tensor, Tensor]] = []

    def see(self, site: str, view: View) -> None:

        glimpse, tokens = view.norm, self._tokens
        columns = _columns(glimpse)
        index = glimpse.kind * self.state.groups + tokens.group
        if not tokens.whole:
            index, columns = index.index_select(0, tokens.rows), columns.index_select(0, tokens.rows)
        self.state.scalars[site].include(index, columns)
        self.state.deviation[site].include(glimpse.deviation())
        _massive(glimpse, self.state.massive[site])

    def see_group(self, group: "Group") -> None:
        """On a GPU: what the modules received and returned at a few rows."""
        from armillary.geometry.fused.row_statistics import gathered

        chosen, raw = self._tokens.spread, group.raw[0]
        shape = (len(group.sites), len(chosen), raw.shape[1])
        given = gathered(group.raw, chosen, raw.new_empty(shape))
        returned = gathered(group.outputs, chosen, group.outputs[0].new_empty(shape))
        self._seen.append((group, given, returned))

    def end(self) -> "tuple[list[str], Tensor, Tensor] | None":
        """On a GPU: evaluate all sites together. Leaves the largest massive activations of each."""
        if not self._seen:
            return None
        import torch

        from armillary.probes.instruments.batched.lengths_sheet import include_deviations, include_sheet

        groups, given, returned = zip(*self._seen, strict=True)
        sheet, self._seen = groups[0].sheet, []
        norms = [self._norms[site] for site in sheet.sites]
        largest = include_sheet(self.state, sheet, norms)
        if len(self._tokens.spread):
            include_deviations(self.state, sheet.sites, norms, torch.cat(given), torch.cat(returned))
        return sheet.sites, *largest

    def settle(self, left: "tuple[list[str], Tensor, Tensor] | None") -> None:
        if left is not None:
            sites, ratio, payload = left
            # The next batch may be written into the same memory.
            for site, values, places in zip(sites, ratio.clone(), payload.clone(), strict=True):
                self.state.massive[site].offer(values, places)


def _columns(glimpse: "Glimpse") -> "Tensor":
    """[row, SCALARS]."""
    import torch

    d, radius, length = glimpse.norm.d, glimpse.radius, glimpse.length
    return torch.stack(
        (
            length,
            length.square(),
            radius,
            (radius - glimpse.theory).abs(),
            (radius < 1 - T.radius_within).double(),
            ((radius - 1).abs() <= T.radius_within).double(),
            ((length / glimpse.typical.length.clamp_min(1e-30) - 1).abs() <= T.radius_within).double(),
            d * (glimpse.mean_z / radius.clamp_min(1e-30)).square(),
            glimpse.mean_z.abs(),
            d * d * glimpse.mean.square() / length.square().clamp_min(1e-60),
            glimpse.massive.double(),
        ),
        1,
    )


def _massive(glimpse: "Glimpse", top: "TopK") -> None:
    import torch

    tokens, massive, x = glimpse.tokens, glimpse.massive, glimpse.x
    places = torch.stack((tokens.document, tokens.position, tokens.token), 1)
    if x.device.type == "cpu":
        # Few tokens are massive, mostly none: on the CPU only those are looked at.
        rows = massive.nonzero()[:, 0]
        if not len(rows):
            return
        x, massive, places = x[rows], massive[rows], places[rows]
    value, dimension = x.abs().max(-1)
    ratio = value.double() / glimpse.typical.magnitude
    top.include(torch.where(massive, ratio, -torch.inf), torch.cat((places, dimension[:, None]), 1))


LENGTHS = Lengths()
