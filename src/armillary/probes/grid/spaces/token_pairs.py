"""How large is |cos| between vectors of different words from different documents, in the stream and in every head?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch, Window
from armillary.probes.machinery import Floats, Ints
from armillary.probes.machinery.bench import Bench

TOKENS = 12  # of every document: the number of pairs grows with the square
RANDOM_HEADS = 4


def law(n: int) -> float:
    """Mean |cos| of two random directions in n dimensions, exactly; √(2/πn) for large n.

    >>> round(law(3), 9), round(law(1000) / math.sqrt(2 / (math.pi * 1000)), 3)
    (0.5, 1.0)
    """
    return math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / math.sqrt(math.pi)


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """Sampled tokens and, for each layer, the heads' input y [n, d] and q, k, v [n, h, k] (k and v of their group)."""

    documents: Ints
    words: Ints
    vectors: Mapping[int, Mapping[str, Tensor]]


def sample_vectors(bench: Bench, layers: Sequence[int]) -> TokenVectors:
    """Seeded tokens of every document, first ones and those the tokenizer added left out."""
    rng = np.random.default_rng([bench.seed, 61])
    chosen = {window: _places(window, rng) for window in bench.text.windows}
    parts: dict[int, dict[str, list[Tensor]]] = {layer: {name: [] for name in "yqkv"} for layer in layers}
    documents: list[int] = []
    words: list[int] = []
    for batch in bench.batches():
        at = [(row, place) for row, window in enumerate(batch.windows) for place in chosen[window]]
        if at:
            _see(bench.anatomy, batch, at, parts)
            documents += [batch.windows[row].document for row, _ in at]
            words += [batch.windows[row].ids[place] for row, place in at]
            bench.tick(batch.tokens)
    vectors = {layer: {name: torch.cat(rows) for name, rows in named.items() if rows} for layer, named in parts.items()}
    return TokenVectors(np.array(documents, dtype=np.int64), np.array(words, dtype=np.int64), vectors)


def _places(window: Window, rng: np.random.Generator) -> list[int]:
    ordinary = np.arange(max(1, window.prefix), len(window.ids) - window.suffix)
    return sorted(rng.choice(ordinary, min(TOKENS, len(ordinary)), replace=False).tolist())


def _see(anatomy: Anatomy, batch: Batch, at: list[tuple[int, int]], parts: dict[int, dict[str, list[Tensor]]]) -> None:
    rows, places = (torch.tensor(side, device=anatomy.device) for side in zip(*at, strict=True))

    def watcher(layer: int, name: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            heads = value[rows, places]
            heads = heads.repeat_interleave(anatomy.n_heads // heads.shape[1], dim=1)
            parts[layer][name].append(heads.double().cpu())
            if name == "q":
                assert given is not None, "a projection takes a tensor"
                parts[layer]["y"].append(given[rows, places].double().cpu())

        return watch

    watchers = {f"L{layer}.{name}": watcher(layer, name) for layer in parts for name in "qkv"}
    with still(anatomy.model), watching(anatomy, watchers):
        run(anatomy, batch.ids, batch.mask)


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums of |cos| [space, group, group] and numbers of pairs [group, group], a token of a pair from each group."""

    total: Floats
    count: Floats

    def means(self, weights: Floats) -> Floats:
        """[draw, space], every group counted as often as it was drawn [draw, group]."""
        pairs = np.einsum("ag,gk,ak->a", weights, self.count, weights)
        sums = np.einsum("ag,sgk,ak->as", weights, self.total, weights, optimize=True)
        return np.asarray(sums / np.maximum(pairs, 1e-300)[:, None])


def pair_sums(sampled: TokenVectors, first: Tensor, second: Tensor, groups: int) -> PairSums:
    """|cos| between the rows of two sets of vectors [n, space, width], for different words of different documents."""
    member = torch.zeros(len(first), groups, dtype=torch.float64)
    member[torch.arange(len(first)), torch.as_tensor(sampled.documents % groups)] = 1
    words = torch.as_tensor(sampled.words)
    apart = (words[:, None] != words[None]).double()
    left, right = (torch.nn.functional.normalize(side.double(), dim=-1).transpose(0, 1) for side in (first, second))
    total = member.T @ ((left @ right.mT).abs() * apart) @ member
    count = member.T @ apart @ member
    mixed = 1 - torch.eye(groups, dtype=torch.float64)
    return PairSums((total * mixed).numpy(), (count * mixed).numpy())


def space_sums(sampled: TokenVectors, layer: int, groups: int, centred: bool) -> dict[str, PairSums]:
    """The full space, each head's q, k, v and q against k, plain slices of the full space, and random heads on it."""
    vectors = {name: v - v.mean(0) if centred else v for name, v in sampled.vectors[layer].items()}
    y, k = vectors["y"], vectors["q"].shape[-1]
    rng = np.random.default_rng([layer, 67])
    random = torch.as_tensor(rng.standard_normal((RANDOM_HEADS, y.shape[1], k)))
    slices = y[:, : y.shape[1] // k * k].reshape(len(y), -1, k)
    spaces = {"full": y[:, None], "slices": slices, "random": torch.einsum("nd,rdk->nrk", y, random)}
    spaces |= {name: vectors[name] for name in "qkv"}
    sums = {name: pair_sums(sampled, v, v, groups) for name, v in spaces.items()}
    return sums | {"match": pair_sums(sampled, vectors["q"], vectors["k"], groups)}
