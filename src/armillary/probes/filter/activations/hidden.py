"""What values do the hidden coordinates of a feed-forward layer take on the evaluation text?

One pass per arm, shared by the chapter. Every layer is reduced batch by batch to sums per document, extremes per unit,
and the activations of a few tokens of each document.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Routed
from armillary.anatomy.folded import mlp_norm
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch
from armillary.probes.machinery import MODEL, SHUFFLED, Floats, Ints, T, once, spread_layers
from armillary.probes.machinery.bench import Bench

FIELDS = ("tokens", "below", "quiet", "carried")
"""Sums over tokens: 1; the share of coordinates below zero; the share below 1 % of the token's peak; the share of the
squared length of W_out's input that coordinates below zero carry."""
# Tokens of each document whose activations are stored, for coding and for ranks; and in how many layers.
SAMPLED, CODED_LAYERS, QUICK_LAYERS = 16, 8, 4
# Coding costs more than a pass: of some twins the activations are stored too, in the first, middle and last layer.
CODED_TWINS, QUICK_TWINS, TWIN_LAYERS = 5, 2, 3

Choose = Callable[[Tensor, Tensor], Tensor]
BELOW, QUIET = "below zero", "below 1 % of the peak"
NO_TOKENS = "No document has a second token, and first tokens are left out. Give longer documents, or more text."


def below(pre: Tensor, post: Tensor) -> Tensor:
    """The input of the activation is negative (that of the gate, where there is a gate)."""
    return pre < 0


def quiet(pre: Tensor, post: Tensor) -> Tensor:
    """The input of W_out is small beside the token's largest coordinate."""
    size = post.abs()
    return size <= T.discard_peak * size.amax(-1, keepdim=True)


DISCARDS: dict[str, Choose] = {BELOW: below, QUIET: quiet}
"""Both definitions of 'discarded'."""


@dataclass(eq=False)
class HiddenLayer:
    """One layer's hidden coordinates on one text. m is the number of hidden units."""

    sums: Floats
    """[group, field] over all tokens but first ones."""
    peak: Tensor
    """[m]: the largest |post| on any token."""
    least: Tensor
    most: Tensor
    """[m]: extremes of pre on any token."""
    off: Tensor
    """[definition, m]: on how many tokens a unit is discarded."""
    off_sum: Tensor
    """[definition, m]: the sum of post over those tokens."""
    sample_groups: list[Tensor] = field(default_factory=list)
    sample_rows: dict[str, list[Tensor]] = field(default_factory=dict)
    has: Tensor | None = None
    """[m]: on how many tokens a unit of a mixture is used at all; None where every token has every unit."""
    experts: dict[str, Floats] = field(default_factory=dict)
    """Of a mixture: expert → `sums` over the tokens that it gets."""

    @property
    def tokens(self) -> int:
        return int(self.sums[:, 0].sum())

    @property
    def used(self) -> Tensor:
        """[m]: on how many tokens a unit is used."""
        return torch.full((self.off.shape[1],), float(self.tokens)).double() if self.has is None else self.has

    @property
    def off_mean(self) -> Tensor:
        """[definition, m]: the mean output of a unit where it is discarded."""
        return self.off_sum / self.off.clamp_min(1)

    def sample(self, name: str) -> Floats:
        """[token, width] of 'y' (the input of W_in), 'pre' or 'post', in float64."""
        return torch.cat(self.sample_rows[name]).double().numpy()

    @property
    def groups(self) -> Ints:
        """The document group of each sampled token."""
        return torch.cat(self.sample_groups).numpy()


@dataclass(frozen=True, eq=False)
class HiddenLayers:
    """arm → layers, and the numbers of the layers whose activations were stored."""

    arms: dict[str, list[HiddenLayer]]
    twins: tuple[str, ...]
    """The arms of untrained twins."""
    coded: tuple[int, ...]
    coded_twins: dict[str, tuple[int, ...]]
    """arm → layers whose activations were stored, for the twins where any were."""
    gated: bool

    def sums(self, arm: str, name: str) -> Floats:
        """[group, layer, (tokens, sum)] of one field."""
        return np.stack([layer.sums[:, [0, FIELDS.index(name)]] for layer in self.arms[arm]], 1)


@once
def hidden_layers(bench: Bench) -> HiddenLayers:
    """The chapter's passes, made once per bench."""
    from armillary.probes.filter.expert_parts import gates

    coded = spread_layers(bench.anatomy, QUICK_LAYERS if bench.quick else CODED_LAYERS)
    some = bench.twins[: QUICK_TWINS if bench.quick else CODED_TWINS]
    coded_twins = dict.fromkeys(some, spread_layers(bench.anatomy, TWIN_LAYERS))
    stored = {MODEL: coded, **coded_twins}
    layers = {
        arm: hidden_pass(bench.arm(arm), stored.get(arm, ()), arm == MODEL) for arm in (MODEL, *bench.twins, SHUFFLED)
    }
    gated = gates(bench.anatomy.blocks[0].channels)
    return HiddenLayers(layers, tuple(bench.twins), coded, coded_twins, gated)


def hidden_pass(bench: Bench, coded: tuple[int, ...], every: bool) -> list[HiddenLayer]:
    """All layers of one arm. `y`, `pre` and `post` are stored in the coded ones, `post` in all of them if `every`."""
    from armillary.probes.filter.activations.mixtures import routed_watcher
    from armillary.probes.filter.expert_parts import units_of

    anatomy = bench.anatomy
    layers = [_empty(units_of(block.channels), bench.corpus.groups) for block in anatomy.blocks]
    for batch in bench.batches():
        tokens = DocumentTokens(bench, batch)
        watchers: dict[str, Watcher] = {}
        for i, layer in enumerate(layers):
            before: dict[str, Tensor] = {}
            names = ("y", "pre", "post") if i in coded else ("post",) if every else ()
            mixture = anatomy.blocks[i].channels
            if isinstance(mixture, Routed):
                watchers[mlp_norm(anatomy, i)[0]] = routed_watcher(layer, mixture, tokens, names)
                continue
            watchers[f"L{i}.mlp_pre"] = _see(before)
            watchers[f"L{i}.mlp_post"] = _reduce(layer, before, tokens, names)
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, batch.ids, batch.mask)
        bench.tick(batch.tokens)
    return layers


class DocumentTokens:
    """Which flat rows of a batch are tokens, which of these are not first, and which are sampled."""

    def __init__(self, bench: Bench, batch: Batch) -> None:
        self.real = batch.mask.flatten()
        mask = batch.mask.clone()
        mask[:, 0] = False
        self.ordinary = mask.flatten()
        self.group = bench.groups(batch)[:, None].expand(mask.shape).flatten()
        sampled = torch.zeros_like(mask)
        for row, n in enumerate(batch.mask.sum(1).tolist()):
            sampled[row, np.unique(np.linspace(1, n - 1, SAMPLED).round().astype(int)) if n > 1 else []] = True
        self.sampled = sampled.flatten()


def _empty(m: int, groups: int) -> HiddenLayer:
    inf = torch.full((m,), torch.inf, dtype=torch.float64)
    none = torch.zeros(len(DISCARDS), m, dtype=torch.float64)
    peak = torch.zeros(m, dtype=torch.float64)
    return HiddenLayer(np.zeros((groups, len(FIELDS))), peak, inf, -inf, none, none.clone())


def _see(before: dict[str, Tensor]) -> Watcher:
    def watch(given: Tensor | None, value: Tensor) -> None:
        assert given is not None, "a projection takes a tensor"
        before.update(y=given.detach(), pre=value.detach())

    return watch


def _reduce(layer: HiddenLayer, before: dict[str, Tensor], tokens: DocumentTokens, names: tuple[str, ...]) -> Watcher:
    def watch(given: Tensor | None, value: Tensor) -> None:
        rows = {name: x.reshape(-1, x.shape[-1]).float() for name, x in (*before.items(), ("post", value.detach()))}
        before.clear()
        real, ordinary = tokens.real.to(value.device), tokens.ordinary.to(value.device)
        pre, post = rows["pre"][real], rows["post"][real]
        layer.peak = torch.maximum(layer.peak, post.abs().amax(0).double().cpu())
        layer.least = torch.minimum(layer.least, pre.amin(0).double().cpu())
        layer.most = torch.maximum(layer.most, pre.amax(0).double().cpu())
        count(layer, rows["pre"][ordinary], rows["post"][ordinary], tokens.group[tokens.ordinary].numpy())
        if names:
            layer.sample_groups.append(tokens.group[tokens.sampled])
        for name in names:
            layer.sample_rows.setdefault(name, []).append(rows[name][tokens.sampled.to(value.device)].cpu())

    return watch


def shares_of(pre: Tensor, post: Tensor, present: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """[token, field], and what each definition discards [token, m]; `present` marks coordinates that a token has."""
    chosen = [choose(pre, post) for choose in DISCARDS.values()]
    if present is not None:
        chosen = [mask & present for mask in chosen]
    power = post.square()
    # A token whose coordinates are all 0 has no squared length to share out.
    carried = (power * chosen[0]).sum(-1) / power.sum(-1).clamp_min(1e-30)
    count = post.shape[-1] if present is None else present.sum(-1)
    shares = [torch.ones(len(post), device=post.device), *(mask.sum(-1) / count for mask in chosen), carried]
    return torch.stack([share.double().cpu() for share in shares], 1), chosen


def count(layer: HiddenLayer, pre: Tensor, post: Tensor, group: Ints, present: Tensor | None = None) -> None:
    shares, chosen = shares_of(pre, post, present)
    np.add.at(layer.sums, group, shares.numpy())
    if present is not None:
        layer.has = present.sum(0).double().cpu() + (0 if layer.has is None else layer.has)
    for row, mask in enumerate(chosen):
        layer.off[row] += mask.sum(0).double().cpu()
        layer.off_sum[row] += (post * mask).sum(0, dtype=torch.float64).cpu()
