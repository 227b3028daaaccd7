"""How much does one head's silence change what the loss asks of another?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Silence
from armillary.flow.tokens import Batch
from armillary.probes.grid.backward import Slices, loss_slices, result_slices
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Floats

SIDES = ("q", "k", "v")


@dataclass(frozen=True, eq=False)
class Coupling:
    """Loss gradients of heads' slices, g of the model as it is and g' with one head silenced, per document group."""

    silenced: tuple[tuple[int, int], ...]
    """Layer and number of each head that was silenced."""
    layers: tuple[int, ...]
    """Whose heads' slices were looked at."""
    products: Floats
    """[group, silenced, layer, head, (|g|², ⟨g, g'⟩, |g'|²)]."""
    losses: Floats
    """[group, (tokens, loss, loss with the first head silenced, …)]."""

    def pairs(self, at: int) -> Floats:
        """[document, head, 3] of the silenced head's neighbours."""
        layer, head = self.silenced[at]
        others = [h for h in range(self.products.shape[3]) if h != head]
        return np.asarray(self.products[:, at, self.layers.index(layer)][:, others])

    def neighbours(self) -> Floats:
        """[document, pair, 3] of all silenced heads."""
        return np.concatenate([self.pairs(at) for at in range(len(self.silenced))], axis=1)


def measure(
    bench: Bench, batches: Sequence[Batch], layers: tuple[int, ...], chosen: tuple[tuple[int, int], ...]
) -> Coupling:
    """What silencing each of the chosen heads does to the loss gradients of these layers' heads."""
    groups = bench.corpus.groups
    products = np.zeros((groups, len(chosen), len(layers), bench.anatomy.n_heads, 3))
    losses = np.zeros((groups, 2 + len(chosen)))
    for batch in batches:
        group = bench.groups(batch).numpy()
        base, loss = loss_slices(bench.anatomy, batch, layers)
        bench.tick(3 * batch.tokens)
        np.add.at(losses[:, 0], group, (batch.following >= 0).sum(1).numpy())
        np.add.at(losses[:, 1], group, loss.numpy())
        for at, (layer, head) in enumerate(chosen):
            other, loss = loss_slices(bench.anatomy, batch, layers, [Silence(layer, (head,))])
            np.add.at(losses[:, 2 + at], group, loss.numpy())
            for place, number in enumerate(layers):
                np.add.at(products[:, at, place], group, _products(base[number], other[number]).cpu().numpy())
            bench.tick(3 * batch.tokens)
    return Coupling(chosen, layers, products, losses)


def _products(one: Slices, other: Slices) -> Tensor:
    """[document, head, 3]: |g|², ⟨g, g'⟩ and |g'|² of each head's own slices."""
    shared = one.k.shape[2] < one.q.shape[2]
    sides = SIDES[:1] if shared else SIDES
    both = ((one, one), (one, other), (other, other))
    return torch.stack([sum((a.products(b, s) for s in sides), torch.zeros(())) for a, b in both], -1)


def derivatives(anatomy: Anatomy, batch: Batch, layers: Sequence[int]) -> list[dict[str, Any]]:
    """Where the gradients of each head's result lie."""
    rows = []
    for layer, heads in result_slices(anatomy, batch, layers).items():
        for head, reached in heads.items():
            lengths = {side: _lengths(reached[layer], side) for side in SIDES}
            mine = {side: head * len(found) // anatomy.n_heads for side, found in lengths.items()}
            own = float(np.sqrt(sum(lengths[side][mine[side]] ** 2 for side in SIDES)))
            foreign = max((v for s in SIDES for i, v in enumerate(lengths[s]) if i != mine[s]), default=0.0)
            before = [_lengths(found, side).max() for at, found in reached.items() if at < layer for side in SIDES]
            rows.append(
                {
                    "head": f"L{layer}H{head}",
                    "own": own,
                    "foreign": float(foreign / max(own, 1e-300)),
                    "earlier": float(max(before) / max(own, 1e-300)) if before else None,
                }
            )
    return rows


def _lengths(found: Slices, side: str) -> Floats:
    """|yᵀg| of every head or group, summed over the documents."""
    return np.asarray(found.products(found, side).sum(0).clamp_min(0).sqrt().cpu().numpy())
