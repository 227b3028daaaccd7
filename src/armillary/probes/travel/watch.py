"""How is a word followed from state to state as a batch passes?"""

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.glimpse import Glimpse
from armillary.flow.tokens import Batch, Corpus
from armillary.measures import GroupedScalars
from armillary.measures.reservoir import priority
from armillary.probes.travel.record import TravelRecord, room, states, wide


class TravelWatch:
    """Fills a `TravelRecord`: `begin` before each batch, `see` at each norm site while it passes.

    Of the states before, two are kept, and the first: a turn takes three points, the geodesic both ends.
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
        self._words = wide(anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T)
        self._batch = 0

    def begin(self, batch: Batch) -> None:
        device = self.anatomy.device
        following = batch.following.reshape(-1)
        width = batch.ids.shape[1]
        chosen = (following >= 0) & (torch.arange(width).repeat(len(batch.ids)) > 0)
        self._rows = chosen.nonzero()[:, 0]
        self._documents = batch.documents.repeat_interleave(width)[self._rows]
        self._group = self._documents % self.record.groups
        own, following = batch.ids.reshape(-1)[self._rows], following[self._rows]
        # A random other word is another token's next word: as frequent as next words are.
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + self._batch)
        other = following[torch.randperm(len(following), generator=draw)]
        self._batch += 1
        self._targets = {
            name: self._words[ids.to(device)] for name, ids in (("own", own), ("next", following), ("other", other))
        }
        self._lengths = {name: rows.norm(dim=-1) for name, rows in self._targets.items()}
        places = torch.stack((self._documents, self._rows % width, own, following), 1)
        rank = priority(0, places)
        self._sampled = (rank <= self._bar).nonzero()[:, 0]
        self._places = places[self._sampled]
        self._trace: list[Tensor] = []
        self._rows = self._rows.to(device)
        self._before: list[Tensor] = []
        self._walked: Tensor | None = None

    def see(self, site: str, glimpse: Glimpse) -> None:
        """One state, in the order of the way; `glimpse.z` is read, not kept."""
        if site not in self._order or not len(self._rows):
            return
        index = self._order[site]
        x, u = self._state(glimpse)
        y = self._read(x, u)
        size = y.norm(dim=-1)
        angles = [
            torch.acos(((y * rows).sum(-1) / (size * self._lengths[name]).clamp_min(1e-30)).clamp(-1, 1))
            for name, rows in self._targets.items()
        ]
        length = x.norm(dim=-1)
        self._include(self.record.state[index], [length, *angles])
        if index:
            self._move(index, x, u, length)
        else:
            self._first, self._start, self._walked = u, angles, torch.zeros_like(length)
        self._before = [*self._before[-1:], u]
        self._last = (x, length)
        self._trace.append(x[self._sampled.to(x.device)])
        if index == len(self._order) - 1:
            self._arrive(u, angles)

    def _state(self, glimpse: Glimpse) -> tuple[Tensor, Tensor]:
        """The stream at the followed tokens and its unit direction, without its mean where norms take it out."""
        if self.anatomy.order == "pre":
            x, z = glimpse.x[self._rows], glimpse.z[self._rows]
        else:
            x = z = wide(glimpse.output[self._rows])
            if glimpse.norm.kind == "layernorm":
                z = z - z.mean(-1, keepdim=True)
        return x, torch.nn.functional.normalize(z, dim=-1)

    def _read(self, x: Tensor, u: Tensor) -> Tensor:
        """What is compared with words: the state after the final norm, or as it is where there is none."""
        norm = self.anatomy.ln_final
        if norm is None:
            return x
        y = u * (norm.gain.to(u) * norm.d**0.5)
        return y if norm.shift is None else y + norm.shift.to(u)

    def _move(self, index: int, x: Tensor, u: Tensor, length: Tensor) -> None:
        last, size = self._last
        moved = _angle(self._before[-1], u)
        assert self._walked is not None
        self._walked = self._walked + moved
        # Along the stream: |Δ| cos = (x·x' − x·x)/|x|, from two products instead of a third vector.
        along = ((last * x).sum(-1) - size.square()) / size.clamp_min(1e-30)
        step = (x - last).norm(dim=-1)
        radial = along.square() / step.square().clamp_min(1e-30)
        turning = torch.zeros_like(moved)
        if len(self._before) == 2:
            turning = _turn(self._before[0], self._before[1], u)
        self._include(self.record.move[index - 1], [moved, radial.clamp(0, 1), turning])

    def _arrive(self, u: Tensor, angles: list[Tensor]) -> None:
        own, following, other = angles
        start_own, start_next, start_other = self._start
        left, approached, strayed = own > start_own, following < start_next, other < start_other
        assert self._walked is not None
        flags = [flag.double() for flag in (left, approached, left & approached, left & strayed)]
        more = (torch.sign((start_next - following) - (start_other - other)) + 1) / 2
        self._include(self.record.path, [self._walked, _angle(self._first, u), *flags, more])
        if len(self._sampled):
            self.record.sample.include(torch.cat(self._trace, -1), self._places)

    def _include(self, scalars: GroupedScalars, columns: list[Tensor]) -> None:
        scalars.include(self._group, torch.stack([column.double() for column in columns], 1))


def _angle(a: Tensor, b: Tensor) -> Tensor:
    """Between unit vectors, exact for small angles too: arccos would lose them in float32."""
    return 2 * torch.asin(((a - b).norm(dim=-1) / 2).clamp(max=1))


def _turn(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The angle at b between the great circle that came from a and the one that leads to c; 0 where one stands still."""
    ab, bc, ac = (a * b).sum(-1), (b * c).sum(-1), (a * c).sum(-1)
    across = ((1 - ab.square()).clamp_min(0) * (1 - bc.square()).clamp_min(0)).sqrt()
    cosine = (ab * bc - ac) / across.clamp_min(1e-12)
    return torch.where(across > 1e-9, torch.acos(cosine.clamp(-1, 1)), torch.zeros_like(cosine))
