"""How is a word followed from state to state as a batch passes?"""

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.glimpse import Glimpse
from armillary.flow.tokens import Batch, Corpus
from armillary.measures.reservoir import priority
from armillary.probes.instruments.word_angles import Floats, Read, Way, apart, arc, moves, to_words
from armillary.probes.instruments.word_products import Strides
from armillary.probes.instruments.words_record import TravelRecord, room, states, wide


class TravelWatch:
    """Fills a `TravelRecord`: `begin` before each batch, `see` at each norm site while it passes.

    Of the states before, two are kept, and the first: a turn takes three points, the geodesic both ends. While a batch
    passes, products of rows are taken; the angles follow when it has passed, for all states at once.
    """

    def __init__(self, anatomy: Anatomy, corpus: Corpus, seed: int) -> None:
        self.anatomy, self.seed = anatomy, seed
        self.states = states(anatomy)
        self._order = {site: i for i, site in enumerate(self.states)}
        sampled = room(anatomy, corpus.tokens)
        self.record = TravelRecord.empty(corpus.groups, tuple(self.states.values()), anatomy.d, sampled)
        places = [(w.document, t) for w in corpus.windows for t in range(1, len(w.ids) - 1)]
        # The corpus is known: who will be sampled is settled before, and only their states are ever copied.
        ranks = priority(0, torch.tensor(places)) if places else torch.zeros(0, dtype=torch.long)
        self._bar = int(ranks.kthvalue(sampled).values) if len(ranks) > sampled else torch.iinfo(torch.int64).max
        self._words, norm = anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T, anatomy.ln_final
        plain = torch.ones_like(wide(self._words[0]))
        shift = None if norm is None or norm.shift is None else norm.shift.to(plain)
        self._strides = Strides(plain if norm is None else norm.gain.to(plain), shift, len(self.states))
        self._batch = 0

    def begin(self, batch: Batch) -> None:
        following, width = batch.following.reshape(-1), batch.ids.shape[1]
        chosen = (following >= 0) & (torch.arange(width).repeat(len(batch.ids)) > 0)
        self._rows = chosen.nonzero()[:, 0]
        self._documents = batch.documents.repeat_interleave(width)[self._rows]
        own, following = batch.ids.reshape(-1), following[self._rows]
        # A random other word is another token's next word: as frequent as next words are.
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + self._batch)
        other = torch.zeros_like(own)
        other[self._rows] = following[torch.randperm(len(following), generator=draw)]
        self._batch += 1
        if len(self._rows):
            self._meet(own, other)
        places = torch.stack((self._documents, self._rows % width, own[self._rows], following), 1)
        sampled = priority(0, places) <= self._bar
        self._places, self._sampled = places[sampled], self._rows[sampled].to(self.anatomy.device)
        self._trace: list[Tensor] = []
        self._seen: list[tuple[Tensor, ...]] = []

    def _meet(self, own: Tensor, other: Tensor) -> None:
        """The vectors that this batch's rows will be multiplied with, and how rows compare with words."""
        vectors, norm = self._strides.begin(len(own)), self.anatomy.ln_final
        for place, ids in zip(vectors, (own, own.roll(-1), other), strict=True):
            place.copy_(self._words[ids.to(self._words.device)])
        lengths, shift2, shifts = vectors.norm(dim=-1), 0.0, vectors.sum(-1)
        if norm is not None:
            beta = torch.zeros_like(vectors[0, 0]) if norm.shift is None else norm.shift.to(vectors)
            shifts, shift2 = vectors @ beta, float(beta.double().square().sum())
        vectors.mul_(self._strides.gain)
        at = _numbers(torch.stack((lengths, shifts))[..., self._rows])
        self._read = Read(at[0], at[1], shift2, norm is not None, self.anatomy.d)

    def see(self, site: str, glimpse: Glimpse) -> None:
        """One state, in the order of the way; `glimpse.z` is read, not kept."""
        if site not in self._order or not len(self._rows):
            return
        index = self._order[site]
        x, z, length, mean, stretch, radius = self._state(glimpse)
        self._strides.take(z)
        self._seen.append((length, mean, stretch, radius))
        if index == 0:
            self._first = z.clone()
        self._trace.append(x[self._sampled])
        if index == len(self._order) - 1:
            self._arrive((z - self._first).square().sum(-1))

    def _state(self, glimpse: Glimpse) -> tuple[Tensor, ...]:
        """The stream x and its direction z, without its mean where norms take it out; |x|, that mean, r and |z|."""
        centred = glimpse.norm.kind == "layernorm"
        if self.anatomy.order == "pre":
            mean = glimpse.mean if centred else torch.zeros_like(glimpse.mean)
            stretch = (glimpse.power * glimpse.norm.d).clamp_min(0).sqrt()
            return glimpse.x, glimpse.z, glimpse.length, mean, stretch, glimpse.radius * glimpse.norm.d**0.5
        x = wide(glimpse.output)
        mean = x.mean(-1) if centred else x.new_zeros(len(x))
        z = x - mean[:, None] if centred else x.contiguous()
        radius = z.norm(dim=-1)
        return x, z, x.norm(dim=-1), mean, radius, radius

    def _arrive(self, reached2: Tensor) -> None:
        """All states were seen: what was multiplied becomes angles, and is counted."""
        parts = (self._strides.found(), *(torch.stack(part) for part in zip(*self._seen, strict=True)))
        way = Way(*(_numbers(part[..., self._rows]) for part in parts))
        angles, (moved, radial, turning) = to_words(way, self._read), moves(way, self.anatomy.d)
        reached = arc(apart(_numbers(reached2[self._rows]), way.radius[0], way.radius[-1]))
        group = self._documents % self.record.groups
        self._include("state", group, np.stack([way.length, *angles], -1))
        self._include("move", group, np.stack([moved, radial, turning], -1))
        self._include("path", group, _whole(angles, moved.sum(0), reached)[None])
        if len(self._sampled):
            self.record.sample.include(torch.cat(self._trace, -1), self._places)

    def _include(self, part: str, group: Tensor, columns: Floats) -> None:
        """Columns [step, n, scalar] into one measure."""
        if len(columns):
            getattr(self.record, part).include(group, torch.from_numpy(np.concatenate(columns, -1)))


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.detach().double().cpu().numpy())


def _whole(angles: Floats, walked: Floats, reached: Floats) -> Floats:
    """[n, scalar] of the whole way: from angles [word, state, n]."""
    (start_own, start_next, start_other), (own, following, other) = angles[:, 0], angles[:, -1]
    left, approached, strayed = own > start_own, following < start_next, other < start_other
    more = (np.sign((start_next - following) - (start_other - other)) + 1) / 2
    flags = (left, approached, left & approached, left & strayed)
    return np.stack([walked, reached, *(flag.astype(np.float64) for flag in flags), more], -1)
