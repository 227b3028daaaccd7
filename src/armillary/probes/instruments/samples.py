"""Which tokens represent a norm site where all pairs are compared? A seeded sample, the same tokens at every site."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.measures.state import Named, State
from armillary.probes.machinery import ARMS, View

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.glimpse import Tokens
    from armillary.flow.site_sheet import Group, SiteSheet
    from armillary.flow.tokens import Corpus
    from armillary.measures import Reservoir
    from armillary.measures.stacks import ReservoirStack


@dataclass(frozen=True, eq=False)
class Sampled:
    """Ordinary tokens of one site: x before the norm, z on the sphere (float64), and where each came from."""

    x: "Tensor"
    z: "Tensor"
    document: NDArray[np.int64]
    token: NDArray[np.int64]
    following: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.document)

    def distinct(self) -> "Sampled":
        """One token of each word form: the same word in two places is nearly one point, and says nothing of shape."""
        _, first = np.unique(self.token, return_index=True)
        chosen = np.sort(first)
        columns = (self.document[chosen], self.token[chosen], self.following[chosen])
        return Sampled(self.x[chosen], self.z[chosen], *columns)


@dataclass(frozen=True, eq=False)
class SharedTokens:
    """The same tokens at several sites: x before each norm (float32), and where each came from."""

    x: "dict[str, Tensor]"
    document: NDArray[np.int64]
    token: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.document)


@dataclass
class TokenSamples(State):
    """Per norm site rows of x with document, position, token, following token, and the kind of token as mark."""

    rows: "Named[Reservoir]"

    def ordinary(self, anatomy: "Anatomy", site: str) -> Sampled:
        sample = self.rows[site].sample()
        document, _, token, following = sample.payload.numpy().T
        chosen = sample.marks.numpy() == 0
        x = sample.rows[chosen].double()
        z = anatomy.norms[site].direction(x)
        return Sampled(x, z, document[chosen], token[chosen], following[chosen])

    def shared(self, sites: Iterable[str]) -> SharedTokens:
        """The tokens that are ordinary at all of these sites, in order of priority: the first m are a sample too."""
        samples = {site: self.rows[site].sample() for site in dict.fromkeys(sites)}
        marks = np.stack([sample.marks.numpy() for sample in samples.values()])
        chosen = (marks == 0).all(0)
        document, _, token, _ = next(iter(samples.values())).payload.numpy().T
        x = {site: sample.rows[chosen] for site, sample in samples.items()}
        return SharedTokens(x, document[chosen], token[chosen])


@dataclass(frozen=True)
class Samples:
    """The instrument: `capacity` tokens per site, first positions left out; of every norm, or of the last alone."""

    capacity: int = 768
    last_norm: bool = False
    name: str = "samples"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "SampleWatch":
        return SampleWatch(anatomy, corpus, self.capacity, tuple(anatomy.norms)[-1 if self.last_norm else 0 :])

    def count(self, state: TokenSamples) -> tuple[int, str]:
        return min(int((r.sample().marks == 0).sum()) for r in state.rows.values()), "ordinary tokens"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 4 * self.capacity * anatomy.d * (1 if self.last_norm else len(anatomy.norms))


class SampleWatch:
    def __init__(self, anatomy: "Anatomy", corpus: "Corpus", capacity: int, sites: tuple[str, ...]) -> None:
        from armillary.geometry.fused import batched
        from armillary.measures import Reservoir

        self.sites = sites
        self.in_groups = batched(anatomy.device)
        self.state = TokenSamples(Named.of(self.sites, lambda: Reservoir.empty(capacity, anatomy.d, 4)))
        self._order = {site: place for place, site in enumerate(sites)}
        self._bar = bar(corpus, capacity)
        self._stack: tuple[TokenSamples, ReservoirStack] | None = None

    def begin(self, tokens: "Tokens") -> None:
        import torch

        from armillary.measures.reservoir import hashed

        places = tokens.places
        rank = hashed(0, places.document, places.position)
        chosen = self._chosen(places.position, rank)
        columns = (places.document, places.position, places.token, places.following)
        payload = np.stack([column[chosen] for column in columns], 1)
        found = (places.rows[chosen], payload, rank[chosen])
        self._rows, self._payload, self._rank = (torch.from_numpy(part) for part in found)
        self._device_rows = self._rows.to(tokens.device, non_blocking=True)
        # On a GPU: the rows of this batch [site, row, d], made by the first site.
        self._batch: Tensor | None = None
        self._sheet: SiteSheet | None = None

    def _chosen(self, position: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.bool_]:
        return rank <= self._bar

    def see(self, site: str, view: View) -> None:
        glimpse = view.norm
        marks = glimpse.kind.index_select(0, self._device_rows)
        self.state.rows[site].include(glimpse.raw, self._payload, self._rows, self._rank, marks)

    def see_group(self, group: "Group") -> None:
        """On a GPU: the sampled rows of several sites; what kind of token they are is known at the end."""
        from armillary.geometry.fused.row_statistics import gathered

        for here, there in group.runs(self._order):
            if len(self._rows):
                self._sheet = group.sheet
                gathered(group.raw[here], self._device_rows, self._room(group.raw[0])[there])

    def _room(self, like: "Tensor") -> "Tensor":
        if self._batch is None:
            self._batch = like.new_empty(len(self.sites), len(self._rows), like.shape[-1])
        return self._batch

    def end(self) -> None:
        if self._batch is None:
            return
        from armillary.measures.stacks import ReservoirStack

        if self._stack is None or self._stack[0] is not self.state:
            self._stack = self.state, ReservoirStack(list(self.state.rows.values()), self._batch.device)
        marks = None
        if self._sheet is not None:
            marks, order = self._sheet.kind.index_select(1, self._device_rows), self._sheet.order(self.sites)
            marks = marks if order is None else marks.index_select(0, order)
        self._stack[1].append(self._batch, self._payload, self._rank, marks)


def bar(corpus: "Corpus", capacity: int, last: int = 0) -> int:
    """The priority up to which a token will be sampled: the corpus is known, so no row is copied and displaced.

    First positions are never sampled, nor the `last` tokens of a window.
    """
    import torch

    from armillary.measures.reservoir import priority

    places = corpus.places(last)
    if len(places) <= capacity:
        return torch.iinfo(torch.int64).max
    return int(priority(0, places).kthvalue(capacity).values)


SAMPLES = Samples()
# Where a claim is decided at the last norm alone, more tokens cost little and make its interval narrower.
LAST_SAMPLES = Samples(2048, last_norm=True, name="samples of the last norm")
