"""What does each head do at every token, and where on the sphere does the token stand?"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import reading_norm
from armillary.flow.attention import biases, capped, log_softmax, placed, rotations, visible
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch, Corpus
from armillary.probes.machinery import Ints, spread_layers
from armillary.probes.machinery.bench import DOCUMENTS, TOKENS, Bench

LAYERS = 8
MEASURES = ("write", "entropy", "score")
"""Length of what a head writes, entropy of its attention over the largest, mean score over keys."""
# A query of fewer keys has little choice.
FIRST_QUERY = 8


@dataclass(frozen=True, eq=False)
class Readings:
    """Tokens from the ninth of a window on: their places [token, (document, position, token)]; per layer the direction
    z that its heads read [token, d], and what each head does [token, head, MEASURES]."""

    places: Ints
    z: Mapping[int, Tensor]
    heads: Mapping[int, Tensor]


def region_text(corpus: Corpus) -> Corpus:
    """The evaluation text of a full survey, also where it should be quick: with few documents, regions of one half say
    less about the other than they could."""
    return corpus.thinned(TOKENS, DOCUMENTS)


def region_documents(corpus: Corpus) -> int:
    """How many documents have a token that counts."""
    return len({window.document for window in region_text(corpus).windows if len(window.ids) > FIRST_QUERY})


def read_heads(bench: Bench) -> Readings:
    layers = spread_layers(bench.anatomy, LAYERS)
    parts = []
    for batch in bench.batches(region_text(bench.corpus).windows):
        parts.append(_Batch(bench.anatomy, batch, layers).read())
        bench.tick(batch.tokens)
    return Readings(
        torch.cat([places for places, _, _ in parts]).numpy(),
        {layer: torch.cat([z[layer] for _, z, _ in parts]) for layer in layers},
        {layer: torch.cat([heads[layer] for _, _, heads in parts]) for layer in layers},
    )


class _Batch:
    """One batch passing some layers."""

    def __init__(self, anatomy: Anatomy, batch: Batch, layers: tuple[int, ...]) -> None:
        self._anatomy, self._batch, self._layers = anatomy, batch, layers
        self._real = batch.mask.to(anatomy.device)
        late = torch.arange(batch.ids.shape[1]) >= FIRST_QUERY
        self._chosen = (batch.mask & late).to(anatomy.device)
        self._rotation = rotations(anatomy, batch.ids.shape[1])
        self._sides: dict[str, Tensor] = {}
        self._z: dict[int, Tensor] = {}
        self._heads: dict[int, Tensor] = {}

    def read(self) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
        watchers = {f"L{layer}.{side}": self._side(side) for layer in self._layers for side in "qk"}
        watchers |= {f"L{layer}.z": self._results(layer) for layer in self._layers}
        for layer in self._layers:
            # Where no norm stands before attention, the heads read the input of its projections.
            site = reading_norm(self._anatomy, layer)[0] or f"L{layer}.q"
            watchers[site] = self._direction(layer, watchers.get(site))
        with still(self._anatomy.model), watching(self._anatomy, watchers):
            run(self._anatomy, self._batch.ids, self._batch.mask)
        at = self._chosen.cpu().nonzero()
        columns = (self._batch.documents[at[:, 0]], at[:, 1], self._batch.ids[at[:, 0], at[:, 1]])
        return torch.stack(columns, 1), self._z, self._heads

    def _side(self, side: str) -> Watcher:
        return lambda given, value: self._sides.update({side: value.detach().float()})

    def _direction(self, layer: int, also: Watcher | None) -> Watcher:
        norm = reading_norm(self._anatomy, layer)[1]

        def watch(given: Tensor | None, value: Tensor) -> None:
            assert given is not None, "a norm takes a tensor"
            x = given.detach().reshape(*self._chosen.shape, -1)[self._chosen].float()
            self._z[layer] = (x if norm is None else norm.direction(x)).cpu()
            if also is not None:
                also(given, value)

        return watch

    def _results(self, layer: int) -> Watcher:
        attention = self._anatomy.blocks[layer].attention
        W_O = attention.W_O.detach().float()
        gram = W_O @ W_O.transpose(1, 2)

        def watch(given: Tensor | None, value: Tensor) -> None:
            results = value.detach().float()
            squared = torch.einsum("bthk,hkl,bthl->bth", results, gram.to(results), results)
            q, k = placed(attention, self._sides["q"], self._sides["k"], self._rotation[layer])
            scores = capped(attention, torch.einsum("bihk,bjhk->bhij", q, k))
            added = biases(attention, scores.shape[-1], scores.device)
            scores = scores if added is None else scores + added.to(scores)
            sees = visible(attention, scores.shape[-1], self._anatomy.causal, scores.device)
            sees = (sees & self._real[:, None])[:, None]
            count = sees.sum(-1).clamp_min(1)
            logs = log_softmax(attention, scores.masked_fill(~sees, -torch.inf))
            entropy = -(logs.exp() * logs.masked_fill(~sees, 0)).sum(-1) / count.clamp_min(2).log()
            mean = scores.masked_fill(~sees, 0).sum(-1) / count
            columns = (squared.clamp_min(0).sqrt(), entropy.transpose(1, 2), mean.transpose(1, 2))
            self._heads[layer] = torch.stack(columns, -1)[self._chosen].double().cpu()

        return watch
