"""Follows every token of a batch from state to state, and adds its angles to a `WordSums`."""

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.norm import Norm
from armillary.flow.glimpse import Glimpse, Tokens
from armillary.flow.site_sheet import Group, SiteSheet
from armillary.flow.tokens import Corpus
from armillary.geometry.fused import batched, fused
from armillary.geometry.fused.paths import Paths
from armillary.geometry.fused.row_statistics import gathered
from armillary.geometry.multiply import wide
from armillary.measures import GroupedScalars
from armillary.measures.device import home
from armillary.measures.reservoir import hashed
from armillary.measures.stacks import ReservoirStack, roomy
from armillary.probes.instruments.samples import bar
from armillary.probes.instruments.word_parts.word_angles import TokenPath, WordReadout, arc, chord, moves, to_words
from armillary.probes.instruments.word_parts.word_products import Products
from armillary.probes.instruments.words import WordSums, sampled_tokens, states
from armillary.probes.machinery import View


class WordWatch:
    """Fills a `WordSums`. During a batch it takes products of rows; at its end it computes the angles of all states.

    The first state is kept, because the geodesic needs both ends.
    """

    def __init__(self, anatomy: Anatomy, corpus: Corpus, seed: int) -> None:
        self.anatomy, self.seed = anatomy, seed
        self.states = states(anatomy)
        self.sites = tuple(self.states)
        self._order = {site: i for i, site in enumerate(self.states)}
        sampled = sampled_tokens(anatomy, corpus.tokens)
        self.state = WordSums.empty(corpus.groups, tuple(self.states.values()), anatomy.d, sampled)
        self._bar, self._rate = bar(corpus, sampled, last=1), min(1.0, sampled / max(1, corpus.tokens))
        self._stack: tuple[WordSums, ReservoirStack] | None = None
        self._words, norm = anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T, anatomy.ln_final
        plain = torch.ones_like(wide(self._words[0]))
        shift = None if norm is None or norm.shift is None else norm.shift.to(plain)
        self._products = Products(plain if norm is None else norm.gain.to(plain), shift, len(self.states))
        # On a GPU with Triton the products are taken by a kernel; states of post-norm models are no directions.
        self._paths: Paths | None = None
        self.in_groups = False
        self._places_in_sheet: Tensor | None = None
        alike = len({anatomy.norms[site].kind for site in self.sites}) == 1
        if batched(self._words.device) and fused(self._words) and anatomy.order == "pre" and alike:
            gain = self._products.gain
            tilt = torch.zeros_like(gain) if shift is None else gain * shift
            self._paths = Paths(self._words, gain, tilt, len(self.states))
            self._vocabulary = _vocabulary(self._words, norm)
            self.in_groups = True
        self.recordable = self.in_groups

    def begin(self, tokens: Tokens) -> None:
        batch, places = tokens.batch, tokens.places
        counted = places.following >= 0
        rows, following = places.rows[counted], torch.from_numpy(places.following[counted])
        self._rows, self._group, self._tokens = tokens.put(rows), tokens.group, tokens
        own = batch.ids.reshape(-1)
        # The random word is another token's next word, so that both are equally frequent.
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + tokens.batch.number)
        mixed = following.numpy()[torch.randperm(len(following), generator=draw).numpy()]
        other = np.zeros(len(own), dtype=np.int64)
        other[rows] = mixed
        self._sheet: SiteSheet | None = None
        if len(rows) and self._paths is None:
            self._prepare(own, torch.from_numpy(other))
        self._other = tokens.put(other)
        document, position = places.document[counted], places.position[counted]
        rank = hashed(0, document, position)
        sampled = rank <= self._bar
        columns = (document, position, places.token[counted], places.following[counted])
        self._places = torch.from_numpy(np.stack([column[sampled] for column in columns], 1))
        self._rank = torch.from_numpy(rank[sampled])
        chosen = rows[sampled]
        if self._paths is not None:
            # As many rows in every batch; those beyond the sample go to a slot that nobody reads.
            room = roomy(len(chosen), self._rate * own.numel())
            self._slots = tokens.put(ReservoirStack.slots(self.state.sample, len(chosen), room))
            chosen = np.concatenate((chosen, np.zeros(room - len(chosen), dtype=chosen.dtype)))
        self._sampled = tokens.put(chosen)
        self._trace: list[Tensor] = []
        self._seen: list[tuple[Tensor, ...]] = []

    def _prepare(self, own: Tensor, other: Tensor) -> None:
        """Load the word vectors that this batch's rows are multiplied with."""
        vectors, norm = self._products.begin(len(own)), self.anatomy.ln_final
        for place, ids in zip(vectors, (own, own.roll(-1), other), strict=True):
            place.copy_(self._words[ids.to(self._words.device, non_blocking=True)])
        lengths, shift2, shifts = vectors.norm(dim=-1), vectors.new_zeros((), dtype=torch.float64), vectors.sum(-1)
        if norm is not None:
            beta = torch.zeros_like(vectors[0, 0]) if norm.shift is None else norm.shift.to(vectors)
            shifts, shift2 = vectors @ beta, beta.double().square().sum()
        vectors.mul_(self._products.gain)
        at = self._numbers(torch.stack((lengths, shifts)))
        self._readout = WordReadout(at[0], at[1], shift2, norm is not None, self.anatomy.d, norm.eps if norm else 0.0)

    def prepare(self) -> None:
        """The same for the kernel, which reads the word vectors where they are."""
        if self._paths is None or not len(self._rows):
            return
        own, norm = self._tokens.token, self.anatomy.ln_final
        ids = (own, own.roll(-1), self._other)
        self._paths.begin(len(own), *ids)
        at = self._numbers(torch.stack([self._vocabulary[:, each] for each in ids], 1))
        shift2 = at.new_zeros(()) if norm is None or norm.shift is None else norm.shift.double().square().sum()
        self._readout = WordReadout(at[0], at[1], shift2, norm is not None, self.anatomy.d, norm.eps if norm else 0.0)

    def see(self, site: str, view: View) -> None:
        """Take one state. States come in order; the shared z is read, not kept."""
        if not len(self._rows):
            return
        x, z, length, mean, stretch, radius = self._state(view.norm)
        self._products.take(z)
        self._seen.append((length, mean, stretch, radius))
        if self._order[site] == 0:
            self._first = z.clone()
        self._trace.append(x[self._sampled])
        if self._order[site] == len(self._order) - 1:
            self._squared = (z - self._first).square().sum(-1)

    def see_group(self, group: Group) -> None:
        """On a GPU: take the states of several sites."""
        if not len(self._rows):
            return
        assert self._paths is not None
        for here, _ in group.runs(self._order):
            self._sheet = group.sheet
            raw = group.raw[here]
            self._paths.take(raw, group.statistics[here], group.centred, group.norm.eps)
            out = raw[0].new_empty(len(raw), len(self._sampled), raw[0].shape[1])
            self._trace += gathered(raw, self._sampled, out)

    def _state(self, glimpse: Glimpse) -> tuple[Tensor, ...]:
        """The stream x, its direction z (centred where norms centre), ‖x‖, the mean, the length without it, and ‖z‖."""
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

    def end(self) -> None:
        """Turn the products of all states into angles and add them up."""
        if not len(self._rows):
            return
        path = self._path()
        angles, (moved, radial, turning) = to_words(path, self._readout), moves(path, self.anatomy.d)
        squared = self._squared if self._paths is None else self._paths.ends
        geodesic = arc(chord(self._numbers(squared), path.radius[0], path.radius[-1]))
        self._include(self.state.state, torch.stack([path.length, *angles], -1))
        self._include(self.state.move, torch.stack([moved, radial, turning], -1))
        self._include(self.state.path, _whole(angles, moved.sum(0), geodesic)[None])
        if self._paths is not None:
            self._put(torch.cat(self._trace, -1))
        elif len(self._sampled):
            trace = torch.cat(self._trace, -1)
            self.state.sample.include(trace, self._places, torch.arange(len(trace)), self._rank)

    def _put(self, trace: Tensor) -> None:
        if self._stack is None or self._stack[0] is not self.state:
            self._stack = self.state, ReservoirStack([self.state.sample], trace.device)
        self._stack[1].put(trace[None], self._slots)

    def settle(self, left: object) -> None:
        """What the host knows of the rows that were put."""
        if self._paths is not None and self._stack is not None and len(self._rows):
            self._stack[1].note(self._places, self._rank)

    def _path(self) -> TokenPath:
        if self._paths is None:
            parts = (self._products.total(), *(torch.stack(part) for part in zip(*self._seen, strict=True)))
            return TokenPath(*map(self._numbers, parts))
        assert self._sheet is not None
        d, sheet = self.anatomy.d, self._sheet
        if self._places_in_sheet is None:
            places = torch.tensor([sheet.sites.index(site) for site in self.sites])
            self._places_in_sheet = places.to(sheet.tokens.device, non_blocking=True)
        at = self._places_in_sheet
        length2, mean, power, radius2 = (
            self._numbers(sheet[name].index_select(0, at)) for name in ("length2", "mean", "power", "radius2")
        )
        centred = self.anatomy.norms[self.sites[0]].kind == "layernorm"
        mean = mean if centred else torch.zeros_like(mean)
        stretch = (power * d).clamp_min(0).sqrt()
        return TokenPath(self._numbers(self._paths.total()), length2.sqrt(), mean, stretch, radius2.sqrt())

    def _include(self, measure: GroupedScalars, columns: Tensor) -> None:
        """Columns [step, n, scalar] into one measure."""
        if len(columns):
            measure.include(self._group[self._rows], torch.cat(list(columns), -1))

    def _numbers(self, values: Tensor) -> Tensor:
        """The measured rows, in float64."""
        return values.index_select(-1, self._rows).to(home(values.device)).double()


def _whole(angles: Tensor, length: Tensor, geodesic: Tensor) -> Tensor:
    """[n, PATH] from angles [word, state, n]."""
    (start_own, start_next, start_other), (own, following, other) = angles[:, 0], angles[:, -1]
    left, approached, approached_other = own > start_own, following < start_next, other < start_other
    strayed = other - start_other
    gained = (own - start_own - strayed, start_next - following + strayed)
    left_more, more = ((gain.sign() + 1) / 2 for gain in gained)
    flags = (left, approached, left & approached, left & approached_other)
    return torch.stack([length, geodesic, *(flag.double() for flag in flags), left_more, more], -1)


def _vocabulary(words: Tensor, norm: Norm | None) -> Tensor:
    """[length, shift; v] of every word vector, in float32: what `WordReadout` needs of them."""
    beta = None if norm is None or norm.shift is None else norm.shift.to(words.device, torch.float32)
    blocks = []
    for some in torch.split(words, 1 << 14):
        vectors = wide(some)
        shifts = vectors.sum(-1) if norm is None else torch.zeros_like(vectors[:, 0])
        blocks.append(torch.stack((vectors.norm(dim=-1), shifts if beta is None else vectors @ beta)))
    return torch.cat(blocks, 1)
