"""What do the parts of a layer compute for sampled tokens? A dense layer has one part, a mixture one per expert.

Of a mixture only what it read is stored; hidden values of an expert follow for the tokens that it gets.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from armillary.anatomy import FeedForward, Routed
from armillary.probes.filter.activations.hidden import HiddenLayer
from armillary.probes.filter.expert_parts import FEWEST
from armillary.probes.machinery import Floats, Ints


@dataclass(frozen=True, eq=False)
class PartRows:
    """One part on the sampled tokens that it gets, float64."""

    ffn: FeedForward
    y: Floats
    """[token, d]: what it read."""
    pre: Floats
    """[token, m]: what its activation received."""
    post: Floats
    """[token, m]: what W_out received, times the router's weight."""
    document: Ints

    @property
    def coded(self) -> bool:
        """Has it enough tokens to be coded?"""
        return len(self.document) >= FEWEST

    def active(self, values: Floats) -> Floats:
        """What its activation gives."""
        return self.ffn.activation(torch.from_numpy(values)).numpy()


def part_rows(layer: HiddenLayer, channels: Any) -> dict[str, PartRows]:
    """Every part by its name; a dense layer's only one has none."""
    if isinstance(channels, FeedForward):
        y, pre, post = (layer.sample(name) for name in ("y", "pre", "post"))
        return {"": PartRows(channels, y, pre, post, layer.groups)}
    assert isinstance(channels, Routed)
    read = torch.cat(layer.sample_rows["y"]).to(channels.router.W.device)
    weights = channels.weights(read)
    rows_of = {}
    for (name, part), weight in zip(channels.parts.items(), weights.T, strict=True):
        routed = weight.nonzero()[:, 0]
        gate, up = part.pre(read[routed]), part.up(read[routed])
        product = part.activate(gate, up) * weight[routed, None]
        y, before, after = (x.double().cpu().numpy() for x in (read[routed], gate, product))
        rows_of[name] = PartRows(part, y, before, after, layer.groups[routed.cpu().numpy()])
    return rows_of


def stacked(rows: list[Floats]) -> Floats:
    """Tokens of all parts one below the other."""
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def documents_of(parts: list[PartRows]) -> Ints:
    """The document of each of these rows."""
    return np.concatenate([rows.document for rows in parts])
