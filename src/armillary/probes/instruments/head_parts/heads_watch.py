"""Watches heads during a pass: q, k, v and results come from the model's modules; scores are computed from q and k."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import Folded, fold, reading_norm
from armillary.anatomy.norm import Norm
from armillary.anatomy.positions.rotary import Rotation
from armillary.flow.attention import rotations, turned, visible
from armillary.flow.glimpse import Tokens
from armillary.flow.tokens import Corpus
from armillary.geometry.fused import batched
from armillary.measures import GroupedScalars, Largest, Named, Rows
from armillary.probes.instruments.batched.heads_batched import (
    Held,
    SharesOfLayers,
    alike,
    head_lengths,
    stacked,
    together,
)
from armillary.probes.instruments.head_parts.chosen_queries import ChosenQueries
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

    recordable = True

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
        self._turns: dict[int, list[Rotation | None]] = {}
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
        batch, width = tokens.batch, tokens.batch.ids.shape[1]
        if width not in self._turns:
            self._turns[width] = rotations(self.anatomy, width)
        self._tokens, self._shape, self._rotation = tokens, batch.mask.shape, self._turns[width]
        self._chosen = ChosenQueries.of(batch, self.sampling.chosen, self._rebuilt, tokens.device)
        if len(self._chosen):
            self.state.places.include(torch.tensor(self._chosen.places))
        self._held: list[Held] = []

    def see(self, site: str, view: View) -> None:
        if site in self._stream:
            assert view.given is not None, "a norm takes a tensor"
            self._x = view.given.reshape(*self._shape, -1)
        layer, _, part = site.partition(".")
        if part in ("q", "k", "v"):
            self._sides[part] = view.value if self._batched else view.value.float()
        elif part == "z":
            self._see_results(int(layer[1:]), view.value)

    def _see_results(self, layer: int, result: Tensor) -> None:
        attention, norm = self.anatomy.blocks[layer].attention, reading_norm(self.anatomy, layer)[1]
        held = Held(layer, attention, norm, self._rotation[layer], self._x, **self._sides, result=result)
        if self._batched:
            self._held.append(held)
            return
        later, (lengths,) = self._tokens.later, head_lengths([held])
        index = self._tokens.group[later]
        self.state.lengths[f"L{layer}"].include(index, lengths.flatten(0, 1).index_select(0, later))
        self._evaluate([held])

    def end(self) -> list[Held]:
        """On a GPU: add the lengths of all layers. Leaves what the layers showed: which queries of it are evaluated
        differs from batch to batch."""
        if self._held:
            self._add_lengths(self._held)
        held, self._held, self._sides = self._held, [], {}
        return held

    def settle(self, left: list[Held]) -> None:
        """On a GPU: evaluate the sampled queries, layers that are alike together."""
        if left and len(self._chosen):
            scores = self._chosen.query.numel() * self._shape[1] * self.anatomy.n_heads * len(left)
            for held in alike(left, -(-scores // together(self._tokens.device))):
                self._evaluate(held)

    def _evaluate(self, held: Sequence[Held]) -> None:
        """Layers that are alike, as windows of one."""
        if not len(self._chosen):
            return
        scores, shares = self._sampled(held)
        fields = fields_of(scores, shares, FIELDS)
        fields = fields.reshape(len(held), -1, *fields.shape[2:]).index_select(1, self._chosen.unique)
        for each, rows in zip(held, fields.unbind(), strict=True):
            self.state.rows[f"L{each.layer}"].include(rows)
            self._compare(each)

    def _add_lengths(self, held: Sequence[Held]) -> None:
        """The lengths of all layers, in a few products. Layers with other numbers of heads are apart."""
        tokens, groups = self._tokens, self.state.groups
        counts = tokens.counts.to(torch.float64)
        member = (tokens.group == torch.arange(groups, device=tokens.device)[:, None]).to(torch.float64) * counts
        inside = (tokens.counts != 0)[:, None]
        for some in alike(held, 1):
            values = torch.where(inside, head_lengths(some).flatten(1, 2).double(), 0.0)
            GroupedScalars.add_each(
                [self.state.lengths[f"L{each.layer}"] for each in some],
                member.sum(1).to(torch.int64).expand(len(some), -1),
                member @ values,
                member @ values.square(),
                torch.where(inside, values, torch.inf).amin(1),
                torch.where(inside, values, -torch.inf).amax(1),
            )

    def _sampled(self, held: Sequence[Held]) -> tuple[QueryScores, Shares]:
        """The scores of the sampled queries of the sampled windows, and what their heads cannot see; layers as
        windows."""
        attention, whole, count, chosen = held[0].attention, held[0].rotation, len(held), self._chosen
        at = (chosen.rows[:, None], chosen.query)
        null = self._null_of([each.layer for each in held])

        def windows(name: str) -> Tensor:
            return torch.cat([chosen.windows(getattr(each, name)) for each in held]).float()

        def at_queries_of(name: str) -> Tensor:
            return torch.cat([getattr(each, name)[at] for each in held]).float()

        keys, values = windows("k"), windows("v") if null.value.read_projections else None
        results = at_queries_of("result")
        results = results.view(count, -1, *results.shape[1:])
        q = at_queries_of("q")
        k_at = at_queries_of("k") if null.key.read_projections else None
        z = _direction(held[0].norm, windows("x"))
        query = chosen.query.repeat(count, 1)
        query_z = z[torch.arange(len(z), device=z.device)[:, None], query]
        at_queries = None if whole is None else whole.at(query)
        sees = visible(attention, z.shape[1], self.anatomy.causal, z.device)[chosen.query]
        real = self._tokens.real.reshape(self._shape)[chosen.rows]
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
            update=(results.transpose(2, 3) @ null.writes.to(results)[:, None]).norm(dim=-1).flatten(0, 1),
            query=query,
            sees=(sees & real[:, None]).repeat(count, 1, 1),
            distinct=chosen.distinct.repeat(count, 1),
            **bare,
        )
        return scores, (null.query.of(q, query_z), null.key.of(k_at, query_z), null.value.of(values, z))

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

    def _compare(self, held: Held) -> None:
        rebuilt = self._chosen.rebuilt
        folded = fold(self.anatomy, held.layer) if rebuilt else None
        for row, t in rebuilt:
            assert folded is not None
            z = _direction(folded.norm, held.x[row, :t].double())
            q, k = (getattr(held, side)[row, :t].float() for side in "qk")
            window = Rebuilding(z, q, k, held.result[row, :t], held.rotation, self.anatomy.causal)
            self.state.errors[f"L{held.layer}"].include(window.errors(folded))


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
