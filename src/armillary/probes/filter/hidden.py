"""What do a feed-forward's hidden coordinates do while the text passes?

One pass an arm over the evaluation text, shared by the chapter. Every layer is reduced batch by batch: sums per document,
extremes per unit, and the activations of a few tokens of each document; nothing else is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, Floats, Ints
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import layers_of

FIELDS = ("tokens", "below", "quiet", "carried")
"""Sums over tokens: 1; share of coordinates below zero; share below 1 % of the token's peak; share of the squared length
of what W_out gets that coordinates below zero carry."""
# So many tokens of each document are kept for coding and for ranks, and in so many layers.
KEPT, CODED_LAYERS, QUICK_LAYERS = 16, 8, 4

Choose = Callable[[Tensor, Tensor], Tensor]
BELOW, QUIET = "below zero", "below 1 % of the peak"


def below(pre: Tensor, post: Tensor) -> Tensor:
    """What the activation got is negative (the gate's product where there is a gate)."""
    return pre < 0


def quiet(pre: Tensor, post: Tensor) -> Tensor:
    """What W_out gets is next to nothing beside the token's largest."""
    size = post.abs()
    return size <= T.discard_peak * size.amax(-1, keepdim=True)


DISCARDS: dict[str, Choose] = {BELOW: below, QUIET: quiet}
"""Both meanings of 'discarded'."""


@dataclass(eq=False)
class Layer:
    """One layer's hidden coordinates on one text."""

    sums: Floats
    """[group, field] over all tokens but first ones."""
    peak: Tensor
    """[m] the largest |post| on any token."""
    least: Tensor
    most: Tensor
    """[m] extremes of pre on any token."""
    off: Tensor
    """[definition, m]: for how many tokens a unit is discarded."""
    off_sum: Tensor
    """[definition, m]: the sum of post there."""
    documents: list[Tensor] = field(default_factory=list)
    kept: dict[str, list[Tensor]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return int(self.sums[:, 0].sum())

    @property
    def off_mean(self) -> Tensor:
        """[definition, m]: what a unit gives on average where it is discarded."""
        return self.off_sum / self.off.clamp_min(1)

    def sample(self, name: str) -> Floats:
        """[token, width] of 'y' (what W_in gets), 'pre' or 'post', in float64."""
        return torch.cat(self.kept[name]).double().numpy()

    @property
    def sampled(self) -> Ints:
        """The document group of each kept token."""
        return torch.cat(self.documents).numpy()


@dataclass(frozen=True, eq=False)
class Streams:
    """arm → layers, and the layers in which everything was kept of a few tokens."""

    arms: dict[str, list[Layer]]
    coded: tuple[int, ...]
    gated: bool


def streams(bench: Bench) -> Streams:
    """The chapter's passes, made once."""
    if "filter" not in bench.kept:
        arms = [MODEL, SHUFFLED] if bench.twin is None else [MODEL, RANDOM, SHUFFLED]
        coded = layers_of(bench.anatomy, QUICK_LAYERS if bench.quick else CODED_LAYERS)
        found = {arm: _pass(bench.arm(arm), () if arm == SHUFFLED else coded, arm == MODEL) for arm in arms}
        gated = bench.anatomy.blocks[0].feed_forward.W_gate is not None
        bench.kept["filter"] = Streams(found, coded, gated)
    made: Streams = bench.kept["filter"]
    return made


def _pass(bench: Bench, coded: tuple[int, ...], every: bool) -> list[Layer]:
    """All layers of one arm; `y`, `pre` and `post` are kept in the coded ones, `post` in all of them if `every`."""
    anatomy = bench.anatomy
    layers = [_empty(anatomy, bench.corpus.groups) for _ in anatomy.blocks]
    for batch in bench.batches():
        tokens = _Tokens(bench, batch)
        watchers: dict[str, Watcher] = {}
        for i, layer in enumerate(layers):
            before: dict[str, Tensor] = {}
            names = ("y", "pre", "post") if i in coded else ("post",) if every else ()
            watchers[f"L{i}.mlp_pre"] = _see(before)
            watchers[f"L{i}.mlp_post"] = _reduce(layer, before, tokens, names)
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, batch.ids, batch.mask)
        bench.tick(batch.tokens)
    return layers


class _Tokens:
    """Which flat rows of a batch are tokens, which of these are not first, and which are kept."""

    def __init__(self, bench: Bench, batch: Batch) -> None:
        self.real = batch.mask.flatten()
        mask = batch.mask.clone()
        mask[:, 0] = False
        self.ordinary = mask.flatten()
        self.group = bench.groups(batch)[:, None].expand(mask.shape).flatten()
        kept = torch.zeros_like(mask)
        for row, n in enumerate(batch.mask.sum(1).tolist()):
            kept[row, np.unique(np.linspace(1, n - 1, KEPT).round().astype(int)) if n > 1 else []] = True
        self.kept = kept.flatten()


def _empty(anatomy: Anatomy, groups: int) -> Layer:
    m = anatomy.m
    inf = torch.full((m,), torch.inf, dtype=torch.float64)
    none = torch.zeros(len(DISCARDS), m, dtype=torch.float64)
    return Layer(np.zeros((groups, len(FIELDS))), torch.zeros(m, dtype=torch.float64), inf, -inf, none, none.clone())


def _see(before: dict[str, Tensor]) -> Watcher:
    def watch(given: Tensor | None, output: Tensor) -> None:
        assert given is not None, "a projection takes a tensor"
        before.update(y=given.detach(), pre=output.detach())

    return watch


def _reduce(layer: Layer, before: dict[str, Tensor], tokens: _Tokens, names: tuple[str, ...]) -> Watcher:
    def watch(given: Tensor | None, output: Tensor) -> None:
        assert given is not None, "a projection takes a tensor"
        rows = {name: x.reshape(-1, x.shape[-1]).float() for name, x in (*before.items(), ("post", given.detach()))}
        before.clear()
        real, ordinary = tokens.real.to(given.device), tokens.ordinary.to(given.device)
        pre, post = rows["pre"][real], rows["post"][real]
        layer.peak = torch.maximum(layer.peak, post.abs().amax(0).double().cpu())
        layer.least = torch.minimum(layer.least, pre.amin(0).double().cpu())
        layer.most = torch.maximum(layer.most, pre.amax(0).double().cpu())
        _count(layer, rows["pre"][ordinary], rows["post"][ordinary], tokens.group[tokens.ordinary].numpy())
        if names:
            layer.documents.append(tokens.group[tokens.kept])
        for name in names:
            layer.kept.setdefault(name, []).append(rows[name][tokens.kept.to(given.device)].cpu())

    return watch


def _count(layer: Layer, pre: Tensor, post: Tensor, group: Ints) -> None:
    chosen = [choose(pre, post) for choose in DISCARDS.values()]
    power = post.square()
    # A token whose every coordinate is nothing has no energy to share out.
    carried = (power * chosen[0]).sum(-1) / power.sum(-1).clamp_min(1e-30)
    shares = [torch.ones(len(post)), *(c.float().mean(-1) for c in chosen), carried]
    np.add.at(layer.sums, group, torch.stack([s.double().cpu() for s in shares], 1).numpy())
    for row, mask in enumerate(chosen):
        layer.off[row] += mask.sum(0).double().cpu()
        layer.off_sum[row] += (post * mask).sum(0, dtype=torch.float64).cpu()
