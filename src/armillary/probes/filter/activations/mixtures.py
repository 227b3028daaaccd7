"""What values do the hidden coordinates of a mixture of experts take? Of the routed sum, and of every expert.

A token has the coordinates of the experts that it gets, side by side, each as the router weighs it; shared experts are
among them. So the routed sum is one feed-forward layer of which a token has a part.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import FeedForward, Routed
from armillary.flow.capture import Watcher
from armillary.probes.filter.activations.hidden import FIELDS, DocumentTokens, HiddenLayer, count, shares_of
from armillary.probes.filter.expert_parts import columns_of, parts_of
from armillary.probes.machinery import Evidence, cells
from armillary.probes.machinery.tables import interval_cells, table
from armillary.results import Table


def whole(channels: Any) -> FeedForward:
    """All experts side by side, as one feed-forward layer's weights."""
    if isinstance(channels, FeedForward):
        return channels
    parts = list(parts_of(channels).values())
    gate = [part.W_gate for part in parts if part.W_gate is not None]
    return FeedForward(
        W_in=torch.cat([part.W_in for part in parts], 1),
        W_out=torch.cat([part.W_out for part in parts]),
        b_in=None,
        b_out=None,
        activation=parts[0].activation,
        activation_name=parts[0].activation_name,
        W_gate=torch.cat(gate, 1) if len(gate) == len(parts) else None,
    )


@dataclass(frozen=True, eq=False)
class Expanded:
    """All coordinates of a layer for n tokens, experts side by side: [n, all units] each."""

    pre: Tensor
    """What activations receive; 0 where a token does not have the coordinate."""
    post: Tensor
    """What W_out receives, times the router's weight."""
    through: Tensor
    """The same with the activation left out."""
    present: Tensor
    """Which coordinates a token has."""


def expand(mixture: Routed, y: Tensor) -> Expanded:
    """For rows y [n, d]."""
    sides: list[tuple[Tensor, ...]] = []
    for part, weight in zip(mixture.parts.values(), mixture.weights(y).T, strict=True):
        pre, up, share = part.pre(y), part.up(y), weight[:, None]
        routed = (share != 0).expand_as(pre)
        sides.append((pre * routed, part.activate(pre, up) * share, part.joined(pre, up) * share, routed))
    return Expanded(*(torch.cat(side, 1) for side in zip(*sides, strict=True)))


def routed_watcher(layer: HiddenLayer, mixture: Routed, tokens: DocumentTokens, names: tuple[str, ...]) -> Watcher:
    """Reduce what a mixture reads to sums of the routed sum and of every expert."""

    def watch(given: Tensor | None, value: Tensor) -> None:
        y = value.detach().reshape(-1, value.shape[-1]).float()
        all_units = expand(mixture, y)
        pre, post, present = all_units.pre, all_units.post, all_units.present
        real, ordinary = tokens.real.to(y.device), tokens.ordinary.to(y.device)
        layer.peak = torch.maximum(layer.peak, post[real].abs().amax(0).double().cpu())
        # A unit says nothing about tokens that another expert gets.
        least = pre[real].masked_fill(~present[real], torch.inf).amin(0)
        most = pre[real].masked_fill(~present[real], -torch.inf).amax(0)
        layer.least = torch.minimum(layer.least, least.double().cpu())
        layer.most = torch.maximum(layer.most, most.double().cpu())
        group = tokens.group[tokens.ordinary].numpy()
        count(layer, pre[ordinary], post[ordinary], group, present[ordinary])
        _count_experts(layer, mixture, (pre[ordinary], post[ordinary], present[ordinary]), group)
        rows = {"y": y, "post": post}
        if names:
            layer.sample_groups.append(tokens.group[tokens.sampled])
        # Hidden values follow from what the layer read; a mixture is too wide to keep them twice.
        for name in (each for each in names if each != "pre"):
            layer.sample_rows.setdefault(name, []).append(rows[name][tokens.sampled.to(y.device)].cpu())

    return watch


def _count_experts(layer: HiddenLayer, mixture: Routed, rows: tuple[Tensor, Tensor, Tensor], group: Any) -> None:
    for name, columns in columns_of(mixture).items():
        pre, post, present = (each[:, columns] for each in rows)
        routed = present[:, 0].cpu()
        sums = layer.experts.setdefault(name, np.zeros((len(layer.sums), len(FIELDS))))
        if routed.any():
            shares, _ = shares_of(pre[present[:, 0]], post[present[:, 0]])
            np.add.at(sums, group[routed.numpy()], shares.numpy())


def expert_table(evidence: Evidence, layers: list[HiddenLayer]) -> Table | None:
    """One row per expert, and one per layer for the routed sum; None without experts."""
    rows = [
        (f"L{number}", name, sums)
        for number, layer in enumerate(layers)
        for name, sums in [*layer.experts.items(), *([("routed sum", layer.sums)] if layer.experts else [])]
    ]
    if not rows:
        return None
    stacked = np.stack([sums for _, _, sums in rows], 1)
    shares = {name: evidence.intervals(stacked[..., [0, FIELDS.index(name)]]) for name in FIELDS[1:]}
    return table(
        cells("layer", "the layer", [row[0] for row in rows]),
        cells("expert", "the expert, or the routed sum of those that a token gets", [row[1] for row in rows]),
        cells("tokens", "tokens that it gets, first ones left out", stacked[..., 0].sum(0).astype(int)),
        interval_cells("below", "share of its coordinates below zero", shares["below"]),
        interval_cells("quiet", "share of its coordinates below 1 % of their token's peak", shares["quiet"]),
        interval_cells("carried", "share of the squared length that those below zero carry", shares["carried"]),
    )
