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
    from armillary.flow.site_sheet import SiteSheet
    from armillary.flow.tokens import Corpus
    from armillary.measures import Reservoir


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
        from armillary.measures import Reservoir

        self.sites = sites
        self.state = TokenSamples(Named.of(self.sites, lambda: Reservoir.empty(capacity, anatomy.d, 4)))
        self._bar = bar(corpus, capacity)

    def begin(self, tokens: "Tokens") -> None:
        import torch

        from armillary.measures.reservoir import priority

        batch = tokens.batch
        rows, width = batch.ids.shape
        places = torch.arange(rows * width).reshape(rows, width)[:, 1:][batch.mask[:, 1:]]
        columns = (batch.documents[places // width], places % width)
        payload = torch.stack((*columns, batch.ids.reshape(-1)[places], batch.following.reshape(-1)[places]), 1)
        rank = priority(0, payload)
        chosen = self._chosen(payload, rank)
        self._rows, self._payload, self._rank = places[chosen], payload[chosen], rank[chosen]
        self._device_rows = self._rows.to(tokens.device, non_blocking=True)
        self._unmarked: list[tuple[str, Reservoir, int]] = []
        self._sheet: SiteSheet | None = None

    def _chosen(self, payload: "Tensor", rank: "Tensor") -> "Tensor":
        return rank <= self._bar

    def see(self, site: str, view: View) -> None:
        from armillary.flow.site_sheet import SheetGlimpse

        glimpse, reservoir = view.norm, self.state.rows[site]
        if isinstance(glimpse, SheetGlimpse) and reservoir.kept + len(self._rows) <= reservoir.capacity:
            # The kind of token is known for all sites together, at the end.
            self._sheet = glimpse.sheet
            self._unmarked.append((site, reservoir, reservoir.kept))
            self._include(site, glimpse.raw)
            return
        marks = glimpse.kind.index_select(0, self._device_rows)
        reservoir.include(glimpse.raw, self._payload, self._rows, self._rank, marks)

    def _include(self, site: str, rows: "Tensor") -> None:
        self.state.rows[site].include(rows, self._payload, self._rows, self._rank, there=self._device_rows)

    def end(self) -> None:
        from armillary.measures import Reservoir

        if self._sheet is not None and len(self._rows):
            kinds = dict(zip(self._sheet.sites, self._sheet.kind.index_select(1, self._device_rows), strict=True))
            Reservoir.mark_each([(reservoir, start, kinds[site]) for site, reservoir, start in self._unmarked])


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
