"""Watches heads during a pass: q, k, v and results come from the model's modules; scores are computed from q and k."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import Folded, fold, reading_norm
from armillary.anatomy.norm import Norm
from armillary.flow.attention import rotations, turned, visible
from armillary.flow.glimpse import Tokens
from armillary.flow.tokens import Corpus
from armillary.geometry.fused import batched
from armillary.measures import GroupedScalars, Largest, Named, Rows
from armillary.probes.instruments.batched.heads_batched import Held, Layers, SharesOfLayers, stacked, together
from armillary.probes.instruments.head_parts.head_nullspaces import null_shares
from armillary.probes.instruments.head_parts.head_rebuilding import Rebuilding
from armillary.probes.instruments.head_parts.head_scores import QueryScores, fields_of
from armillary.probes.instruments.heads import ERRORS, EXACT, FIELDS, HeadRows, Sampling
from armillary.probes.machinery import View

# Rebuilding scores in float64 is a proof, not a statistic: a few windows are enough.
REBUILT = 2
Shares = tuple[Tensor, Tensor, Tensor]


class HeadWatch:
    """Fills a `HeadRows`. The sampled queries are known before the pass, and nothing here waits for the device."""

    def __init__(self, anatomy: Anatomy, corpus: Corpus, seed: int) -> None:
        self.anatomy, self.sampling = anatomy, Sampling.of(corpus, seed)
        layers, heads = [f"L{layer}" for layer in range(anatomy.layers)], anatomy.n_heads
        names = tuple(f"{name} H{head}" for name in EXACT for head in range(heads))
        self.state = HeadRows(
            corpus.groups,
            heads,
            self.sampling.rate,
            Named.of(layers, lambda: GroupedScalars.empty(corpus.groups, names)),
            Named.of(layers, lambda: Rows((heads, len(FIELDS)))),
            Named.of(layers, lambda: Largest(len(ERRORS))),
            Rows((2,), torch.int64),
        )
        first = sorted(self.sampling.chosen, key=lambda w: (w.document % 2, -len(w.ids), w.document))
        self._rebuilt = set(first[:REBUILT])
        self._sides: dict[str, Tensor] = {}
        self._batched = batched(anatomy.device)
        self._known: dict[tuple[int, ...], _Unseen] = {}
        rounded = torch.finfo(anatomy.dtype).bits < 32
        folded = [fold(anatomy, layer) for layer in range(anatomy.layers)]
        self._null = [null_shares(heads, rounded) for heads in folded]
        self._bare = [(heads.a_Q, heads.a_K) for heads in folded]
        self._biased = any(_has_biases(heads) for heads in folded)
        # Where no norm stands before attention, the heads read the input of its projections.
        norms = [reading_norm(anatomy, layer)[0] for layer in range(anatomy.layers)]
        self._stream = {site or f"L{layer}.q" for layer, site in enumerate(norms)}
        parts = [f"L{layer}.{part}" for layer in range(anatomy.layers) for part in "qkvz"]
        self.sites = [*(site for site in norms if site), *parts]

    def begin(self, tokens: Tokens) -> None:
        batch, device = tokens.batch, tokens.device
        self._tokens, self._shape = tokens, batch.mask.shape
        self._rotation = rotations(self.anatomy, batch.ids.shape[1])
        rows = [i for i, window in enumerate(batch.windows) if window in self.sampling.chosen]
        windows = [batch.windows[i] for i in rows]
        places = [self.sampling.chosen[w] for w in windows]
        most = max(map(len, places), default=0)
        # Windows with fewer queries repeat their last one; the copies are dropped before rows are stored.
        query = torch.tensor([[*p, *[p[-1]] * (most - len(p))] for p in places]).long()
        unique = [i * most + j for i, p in enumerate(places) for j in range(len(p))]
        distinct = torch.tensor([[j < len(p) for j in range(most)] for p in places]).bool()
        self._rows, self._query, self._unique, self._distinct = (
            part.to(device, non_blocking=True)
            for part in (torch.tensor(rows).long(), query, torch.tensor(unique).long(), distinct)
        )
        layers = self.anatomy.layers
        scores = len(rows) * most * batch.ids.shape[1] * self.anatomy.n_heads * layers
        self._layers = Layers(self._evaluate, layers, -(-scores // together(device)) if self._batched else layers)
        self._columns: list[tuple[str, Tensor]] = []
        self._every = len(rows) == len(batch.ids)
        self._rebuild = [(i, rows[i], len(w.ids)) for i, w in enumerate(windows) if w in self._rebuilt]
        if rows:
            pairs = [(window.document, t) for window, p in zip(windows, places, strict=True) for t in p]
            self.state.places.include(torch.tensor(pairs))

    def see(self, site: str, view: View) -> None:
        if site in self._stream:
            assert view.given is not None, "a norm takes a tensor"
            x = view.given.reshape(*self._shape, -1)
            self._x = x if self._every else x[self._rows]
        layer, _, part = site.partition(".")
        if part in ("q", "k", "v"):
            self._sides[part] = view.value if self._batched else view.value.float()
        elif part == "z":
            self._see_results(int(layer[1:]), view.value)

    def end(self) -> None:
        """On a GPU: evaluate what is left of all layers together."""
        self._layers.flush()
        self._add_lengths()

    def _see_results(self, layer: int, result: Tensor) -> None:
        attention, norm = self.anatomy.blocks[layer].attention, reading_norm(self.anatomy, layer)[1]
        self._layers.add(Held(layer, attention, norm, self._rotation[layer], self._x, **self._sides, result=result))
        if len(self._rows):
            self._compare(layer, result)

    def _evaluate(self, held: Sequence[Held]) -> None:
        """Layers that are alike, as windows of one."""
        q, k = (stacked([getattr(each, side) for each in held]) for side in "qk")
        self._lengths(held, q, k)
        if len(self._rows):
            scores, shares = self._sampled(held, q, k)
            fields = fields_of(scores, shares, FIELDS)
            fields = fields.reshape(len(held), -1, *fields.shape[2:]).index_select(1, self._unique)
            for each, found in zip(held, fields.unbind(), strict=True):
                self.state.rows[f"L{each.layer}"].include(found)

    def _lengths(self, held: Sequence[Held], q: Tensor, k: Tensor) -> None:
        """Lengths at all tokens. A rotation does not change them (YaRN's factor does, but not their spread)."""
        attention = held[0].attention
        lengths = (
            torch.linalg.vector_norm(turned(attention, side, x.flatten(0, 1), None), dim=-1, dtype=torch.float32)
            for side, x in (("q", q), ("k", k))
        )
        of_queries, of_keys = lengths
        columns = torch.cat((of_queries, of_keys.repeat_interleave(attention.group, -1)), -1).flatten(0, 1)
        for each, some in zip(held, columns.chunk(len(held)), strict=True):
            if self._batched:
                self._columns.append((f"L{each.layer}", some))
            else:
                later = self._tokens.later
                self.state.lengths[f"L{each.layer}"].include(self._tokens.group[later], some.index_select(0, later))

    def _add_lengths(self) -> None:
        """The lengths of all layers, in a few products. Layers with other numbers of heads are apart."""
        if not self._columns:
            return
        tokens, groups = self._tokens, self.state.groups
        counts = tokens.counts.to(torch.float64)
        member = (tokens.group == torch.arange(groups, device=tokens.device)[:, None]).to(torch.float64) * counts
        for width in {columns.shape[1] for _, columns in self._columns}:
            some = [(name, columns) for name, columns in self._columns if columns.shape[1] == width]
            values = torch.stack([columns for _, columns in some]).double()
            inside = (tokens.counts != 0)[:, None]
            values = torch.where(inside, values, 0.0)
            GroupedScalars.add_each(
                [self.state.lengths[name] for name, _ in some],
                member.sum(1).to(torch.int64).expand(len(some), -1),
                member @ values,
                member @ values.square(),
                torch.where(inside, values, torch.inf).amin(1),
                torch.where(inside, values, -torch.inf).amax(1),
            )

    def _sampled(self, held: Sequence[Held], q: Tensor, k: Tensor) -> tuple[QueryScores, Shares]:
        """The scores of the sampled queries of the sampled windows, and what their heads cannot see; layers as
        windows."""
        attention, whole, count = held[0].attention, held[0].rotation, len(held)
        at = (slice(None), self._rows[:, None], self._query)
        results = stacked([each.result for each in held])[at].float()
        null = self._null_of([each.layer for each in held])
        keys, values = self._windows(k).flatten(0, 1).float(), None
        if null.value.read_projections:
            values = self._windows(stacked([each.v for each in held])).flatten(0, 1).float()
        q = q[at].flatten(0, 1).float()
        k_at = k[at].flatten(0, 1).float() if null.key.read_projections else None
        z = _direction(held[0].norm, stacked([each.x for each in held]).flatten(0, 1).float())
        query = self._query.repeat(count, 1)
        query_z = z[torch.arange(len(z), device=z.device)[:, None], query]
        at_queries = None if whole is None else whole.at(query)
        sees = visible(attention, z.shape[1], self.anatomy.causal, z.device)[self._query]
        real = self._tokens.real.reshape(self._shape)[self._rows]
        bare = {
            f"bare_{side}": turned(attention, side, _repeated(vectors, q), at_queries).transpose(1, 2)
            for side, vectors in (("q", null.bare_q), ("k", null.bare_k))
            if self._biased
        }
        scores = QueryScores(
            attention=attention,
            q=turned(attention, "q", q, at_queries).transpose(1, 2),
            # One layout for all that reads them: a product would copy them again.
            k=turned(attention, "k", keys, whole).transpose(1, 2).contiguous(),
            z=z,
            update=(results.transpose(2, 3) @ null.writes.to(z)[:, None]).norm(dim=-1).flatten(0, 1),
            query=query,
            sees=(sees & real[:, None]).repeat(count, 1, 1),
            distinct=self._distinct.repeat(count, 1),
            **bare,
        )
        return scores, (null.query.of(q, query_z), null.key.of(k_at, query_z), null.value.of(values, z))

    def _windows(self, x: Tensor) -> Tensor:
        """[layer, sampled window, …]."""
        return x if self._every else x.index_select(1, self._rows)

    def _null_of(self, layers: Sequence[int]) -> "_Unseen":
        """What is known of these layers' weights, side by side."""
        if tuple(layers) not in self._known:
            shares, bare = [self._null[layer] for layer in layers], [self._bare[layer] for layer in layers]
            query, key, value = (
                SharesOfLayers([getattr(each, side) for each in shares]) for side in ("query", "key", "value")
            )
            writes, bare_q, bare_k = (stacked(p) for p in ([s.writes for s in shares], *zip(*bare, strict=True)))
            self._known[tuple(layers)] = _Unseen(query, key, value, writes, bare_q, bare_k)
        return self._known[tuple(layers)]

    def _compare(self, layer: int, result: Tensor) -> None:
        folded = fold(self.anatomy, layer) if self._rebuild else None
        for i, row, t in self._rebuild:
            assert folded is not None
            z = _direction(folded.norm, self._x[i, :t].double())
            q, k = (self._sides[side][row, :t].float() for side in "qk")
            window = Rebuilding(z, q, k, result[row, :t], self._rotation[layer], self.anatomy.causal)
            self.state.errors[f"L{layer}"].include(window.errors(folded))


@dataclass(frozen=True, eq=False)
class _Unseen:
    """Null shares, and of every layer the lengths of writes and what biases alone give."""

    query: SharesOfLayers
    key: SharesOfLayers
    value: SharesOfLayers
    writes: Tensor
    bare_q: Tensor
    bare_k: Tensor


def _has_biases(heads: Folded) -> bool:
    """Do biases, of projections or of the norms of q and k, make something of a query or key that is 0?"""
    shifts = [norm.shift for norm in (heads.attention.q_norm, heads.attention.k_norm) if norm is not None]
    return any(shift is not None for shift in shifts) or bool((heads.a_Q != 0).any() | (heads.a_K != 0).any())


def _repeated(vectors: Tensor, like: Tensor) -> Tensor:
    """[layer · b, n, h, k]: those of each layer [layer, h, k], at every query of its windows."""
    layers, (rows, queries) = len(vectors), like.shape[:2]
    return vectors.to(like)[:, None, None].expand(layers, rows // layers, queries, -1, -1).flatten(0, 1)


def _direction(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm.direction(x)
