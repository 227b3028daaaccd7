"""Which tokens represent a norm site where all pairs are compared? A seeded sample, the same tokens at every site."""

import weakref
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
    recordable = True

    def __init__(self, anatomy: "Anatomy", corpus: "Corpus", capacity: int, sites: tuple[str, ...]) -> None:
        from armillary.geometry.fused import batched
        from armillary.measures import Reservoir

        self.sites = sites
        self.in_groups = self.stacked = batched(anatomy.device)
        self.state = TokenSamples(Named.of(self.sites, lambda: Reservoir.empty(capacity, anatomy.d, 4)))
        self._order = {site: place for place, site in enumerate(sites)}
        self._bar, self._rate = bar(corpus, capacity), min(1.0, capacity / max(1, corpus.tokens))
        self._stack: tuple[TokenSamples, ReservoirStack] | None = None

    def begin(self, tokens: "Tokens") -> None:
        import torch

        from armillary.measures.reservoir import hashed
        from armillary.measures.stacks import ReservoirStack, roomy

        places = tokens.places
        rank = hashed(0, places.document, places.position)
        chosen = self._chosen(places.position, rank)
        columns = (places.document, places.position, places.token, places.following)
        payload = np.stack([column[chosen] for column in columns], 1)
        sample = (places.rows[chosen], payload, rank[chosen])
        self._rows, self._payload, self._rank = (torch.from_numpy(part) for part in sample)
        rows, first = places.rows[chosen], next(iter(self.state.rows.values()))
        if self.stacked:
            # As many rows in every batch; those beyond the sample go to a slot that nobody reads.
            room = roomy(len(rows), self._rate * tokens.batch.ids.numel())
            self._slots = tokens.put(ReservoirStack.slots(first, len(rows), room))
            rows = np.concatenate((rows, np.zeros(room - len(rows), dtype=rows.dtype)))
        self._device_rows = tokens.put(rows)
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
            self._sheet = group.sheet
            gathered(group.raw[here], self._device_rows, self._room(group.raw[0])[there])

    def _room(self, like: "Tensor") -> "Tensor":
        if self._batch is None:
            self._batch = like.new_empty(len(self.sites), len(self._device_rows), like.shape[-1])
        return self._batch

    def end(self) -> None:
        from armillary.measures.stacks import ReservoirStack

        if self._batch is None:
            return
        if self._stack is None or self._stack[0] is not self.state:
            self._stack = self.state, ReservoirStack(list(self.state.rows.values()), self._batch.device)
        marks = None
        if self._sheet is not None:
            marks, order = self._sheet.kind.index_select(1, self._device_rows), self._sheet.order(self.sites)
            marks = marks if order is None else marks.index_select(0, order)
        self._stack[1].put(self._batch, self._slots, marks)

    def settle(self, left: object) -> None:
        """What the host knows of the rows that were put."""
        if self.stacked and self._stack is not None:
            self._stack[1].note(self._payload, self._rank)


def bar(corpus: "Corpus", capacity: int, last: int = 0) -> int:
    """The priority up to which a token will be sampled: the corpus is known, so no row is copied and displaced.

    First positions are never sampled, nor the `last` tokens of a window.
    """
    return bar_of(ranks_of(corpus, last), capacity)


# Of a text of ten million tokens they take a second, and every sampling instrument of every arm asks for them.
_RANKS: "list[tuple[weakref.ref[Corpus], int, Tensor]]" = []


def ranks_of(corpus: "Corpus", last: int = 0) -> "Tensor":
    """The priorities of a text's tokens, in the order of `Corpus.places`; those of the last few texts are kept."""
    from armillary.measures.reservoir import priority

    for known, without, ranks in _RANKS:
        if known() is corpus and without == last:
            return ranks
    ranks = priority(0, corpus.places(last))
    _RANKS[:] = [*(each for each in _RANKS[-2:] if each[0]() is not None), (weakref.ref(corpus), last, ranks)]
    return ranks


def bar_of(ranks: "Tensor", capacity: int) -> int:
    """Up to which priority no more than `capacity` tokens are.

    Windows of one document have tokens of equal priority. Either all or none of those are sampled, so that a smaller
    sample is the beginning of a larger one.

    >>> import torch
    >>> bar_of(torch.tensor([5, 3, 3, 9]), 3), bar_of(torch.tensor([5, 3, 3, 9, 5]), 3)
    (5, 3)
    """
    import torch

    if len(ranks) <= capacity:
        return torch.iinfo(torch.int64).max
    bar = int(ranks.kthvalue(capacity).values)
    if int((ranks <= bar).sum()) <= capacity:
        return bar
    fewer = ranks[ranks < bar]
    return int(fewer.max()) if len(fewer) else torch.iinfo(torch.int64).min


SAMPLES = Samples()
# Where a claim is decided at the last norm alone, more tokens cost little and make its interval narrower.
LAST_SAMPLES = Samples(2048, last_norm=True, name="samples of the last norm")
