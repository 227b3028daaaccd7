"""How much does zeroing one head's result change the loss gradient of another head?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Silence
from armillary.flow.tokens import Batch
from armillary.probes.grid.backpropagation.backward import Slices, loss_slices, result_slices
from armillary.probes.machinery import Floats, cells, table
from armillary.probes.machinery.bench import Bench
from armillary.results import Quantity, Table

SIDES = "qkv"
# A head that writes less than this share of the stream writes nothing but rounding.
NOTHING = 1e-5


def relative_change(stats: Floats) -> Floats:
    """|g − g'|/|g| from (|g|², ⟨g, g'⟩, |g'|²) along the last axis; NaN of a gradient that vanishes."""
    change = np.maximum(stats[..., 0] - 2 * stats[..., 1] + stats[..., 2], 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt(change / stats[..., 0]))


def coupling(stats: Floats) -> Floats:
    """The relative change over the share of the stream that the silenced head wrote, |w|/|x|, from (|g|², ⟨g, g'⟩,
    |g'|², |w|², |x|²); NaN of a head that writes nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        written = np.sqrt(stats[..., 3] / stats[..., 4])
        return np.asarray(np.where(written > NOTHING, relative_change(stats) / written, np.nan))


def _cosine(stats: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(stats[..., 1] / np.sqrt(stats[..., 0] * stats[..., 2]))


def _median(values: Floats) -> float:
    return float(np.nanmedian(values)) if np.isfinite(values).any() else float("nan")


def median_coupling(stats: Floats) -> Floats:
    """[draw]: of the pairs [draw, pair, 5] that have one."""
    values = coupling(stats)
    medians = np.full(len(values), np.nan)
    defined = np.isfinite(values).any(-1)
    medians[defined] = np.nanmedian(values[defined], axis=-1)
    return medians


@dataclass(frozen=True, eq=False)
class Coupling:
    """Loss gradients of heads' slices per document group: g of the unedited model, g' with one head silenced."""

    silenced: tuple[tuple[int, int], ...]
    """Layer and number of each head that was silenced."""
    layers: tuple[int, ...]
    """The layers whose heads' slices were measured."""
    products: Floats
    """[group, silenced, layer, head, (|g|², ⟨g, g'⟩, |g'|²)]."""
    written: Floats
    """[group, silenced, (|w|², |x|²)]: of the head's write, and of the stream that it is added to."""
    losses: Floats
    """[group, (tokens, loss, loss with the first head silenced, …)]."""

    @property
    def names(self) -> list[str]:
        return [f"L{layer}H{head}" for layer, head in self.silenced]

    def pairs(self, at: int) -> Floats:
        """[document, head, 5] of the silenced head's neighbours in its layer, for `coupling`."""
        layer, head = self.silenced[at]
        others = [h for h in range(self.products.shape[3]) if h != head]
        products = self.products[:, at, self.layers.index(layer)][:, others]
        written = np.broadcast_to(self.written[:, at, None], (*products.shape[:2], 2))
        return np.concatenate([products, written], -1)

    def neighbours(self) -> Floats:
        """[document, pair, 5] of all silenced heads."""
        return np.concatenate([self.pairs(at) for at in range(len(self.silenced))], axis=1)

    def cosines(self) -> list[float]:
        """Of g and g', the median neighbour of each silenced head."""
        return [_median(_cosine(self.pairs(at).sum(0))) for at in range(len(self.silenced))]

    def shares(self) -> Floats:
        """The share of the stream that each silenced head writes."""
        squares = self.written.sum(0)
        return np.asarray(np.sqrt(squares[:, 0] / np.maximum(squares[:, 1], 1e-300)))

    def changes(self) -> list[float]:
        """Relative change at the median neighbour of each silenced head, not divided by what it writes."""
        return [_median(relative_change(self.pairs(at).sum(0))) for at in range(len(self.silenced))]

    def in_layers(self, later: bool) -> list[float]:
        """Relative change at the heads of later (or earlier) layers, median; NaN where none was measured."""
        changes = relative_change(self.products.sum(0))
        return [
            _median(changes[at, [other > layer if later else other < layer for other in self.layers]])
            for at, (layer, _) in enumerate(self.silenced)
        ]

    def costs(self) -> Floats:
        """Nats per token that silencing each head costs."""
        losses = self.losses.sum(0)
        return np.asarray((losses[2:] - losses[1]) / max(losses[0], 1.0))

    def map(self) -> Quantity:
        """The effect of silencing each chosen head on every head of the measured layers."""
        values = relative_change(self.products.sum(0)).reshape(len(self.silenced), -1)
        heads = [f"L{layer}H{head}" for layer in self.layers for head in range(self.products.shape[3])]
        # A silenced head gets no gradient through its own result: its own entry is not a coupling.
        for row, name in enumerate(self.names):
            values[row, heads.index(name)] = np.nan
        return Quantity(
            "change of the loss gradient of a head's slices",
            "|g − g'|/|g| at the head across when the head down is silenced; a head's own entry is empty",
            "relative change",
            ("silenced", "head"),
            {"silenced": self.names, "head": heads},
            values,
        )


def measure_coupling(
    bench: Bench, batches: Sequence[Batch], layers: tuple[int, ...], chosen: tuple[tuple[int, int], ...]
) -> Coupling:
    """The effect of silencing each of the chosen heads on the loss gradients of these layers' heads."""
    groups = bench.corpus.groups
    products = np.zeros((groups, len(chosen), len(layers), bench.anatomy.n_heads, 3))
    written = np.zeros((groups, len(chosen), 2))
    losses = np.zeros((groups, 2 + len(chosen)))
    for batch in batches:
        group = bench.groups(batch).numpy()
        np.add.at(written, group, _written(bench, batch, chosen))
        base, loss = loss_slices(bench.anatomy, batch, layers)
        bench.tick(3 * batch.tokens)
        np.add.at(losses[:, 0], group, (batch.following >= 0).sum(1).numpy())
        np.add.at(losses[:, 1], group, loss.numpy())
        plain = {number: base[number].products(base[number], _own(base[number])) for number in layers}
        for at, (layer, head) in enumerate(chosen):
            other, loss = loss_slices(bench.anatomy, batch, layers, [Silence(layer, (head,))])
            np.add.at(losses[:, 2 + at], group, loss.numpy())
            for place, number in enumerate(layers):
                more = _products(base[number], other[number], plain[number])
                np.add.at(products[:, at, place], group, more.cpu().numpy())
            bench.tick(3 * batch.tokens)
    return Coupling(chosen, layers, products, written, losses)


def _written(bench: Bench, batch: Batch, chosen: Sequence[tuple[int, int]]) -> Floats:
    """[document, head, (|w|², |x|²)]. Where a norm follows attention, a head's write is its part of what leaves it."""
    parts = ("z", "attn_out", "resid_pre")
    states = bench.states(batch, sorted({f"L{layer}.{part}" for layer, _ in chosen for part in parts}))
    mask = batch.mask.to(bench.anatomy.device)[..., None].double()
    rows = []
    for layer, head in chosen:
        z, out, stream = (states[f"L{layer}.{part}"].double() * mask for part in parts)
        weight = bench.anatomy.blocks[layer].attention.W_O.double()
        heads = z.reshape(*z.shape[:-1], *weight.shape[:2])
        write = heads[:, :, head] @ weight[head]
        together = (z @ weight.flatten(0, 1)).square().sum((1, 2)).clamp_min(1e-300)
        scale = out.square().sum((1, 2)) / together
        rows.append(torch.stack((write.square().sum((1, 2)) * scale, stream.square().sum((1, 2))), -1))
    return np.asarray(torch.stack(rows, 1).cpu().numpy())


def _own(slices: Slices) -> str:
    """The sides that belong to one head alone: W_K and W_V may be shared by a group."""
    return SIDES[:1] if slices.k.shape[2] < slices.q.shape[2] else SIDES


def _products(base: Slices, silenced: Slices, square: Tensor) -> Tensor:
    """[document, head, 3]: |g|², which is known, ⟨g, g'⟩ and |g'|² of each head's own slices."""
    sides = _own(base)
    return torch.stack((square, base.products(silenced, sides), silenced.products(silenced, sides)), -1)


@dataclass(frozen=True)
class Derivative:
    """Lengths of the gradient of one head's result."""

    head: str
    own: float
    """At its own slices."""
    foreign: float
    """The largest at another head's slices of its layer, over its own."""
    earlier: float
    """The largest at an earlier layer, over its own; NaN where none was measured."""


def derivatives(anatomy: Anatomy, batch: Batch, layers: Sequence[int]) -> list[Derivative]:
    """At which slices the gradients of each head's result are not zero."""
    rows = []
    for layer, heads in result_slices(anatomy, batch, layers).items():
        for head, gradients in heads.items():
            lengths = {side: _lengths(gradients[layer], side) for side in SIDES}
            place = {side: head * len(values) // anatomy.n_heads for side, values in lengths.items()}
            own = float(np.sqrt(sum(lengths[side][place[side]] ** 2 for side in SIDES)))
            foreign = max((v for s in SIDES for i, v in enumerate(lengths[s]) if i != place[s]), default=0.0)
            earlier = [_lengths(slices, side).max() for at, slices in gradients.items() if at < layer for side in SIDES]
            scale = max(own, 1e-300)
            rows.append(Derivative(f"L{layer}H{head}", own, foreign / scale, max(earlier, default=np.nan) / scale))
    return rows


def _lengths(slices: Slices, side: str) -> Floats:
    """|yᵀg| of every head or group, summed over the documents."""
    return np.asarray(slices.products(slices, side).sum(0).clamp_min(0).sqrt().cpu().numpy())


def derivative_table(rows: Sequence[Derivative]) -> Table:
    meanings = {
        "head": "the head whose result is differentiated",
        "own": "length of the gradient at its own slices: W_Q, and W_K and W_V of its group",
        "foreign": "largest length at another head's slice of W_Q, or another group's of W_K and W_V, over its own",
        "earlier": "largest length at a measured head of an earlier layer, over its own; of each layer's first head",
    }
    return table(*(cells(name, meaning, [getattr(row, name) for row in rows]) for name, meaning in meanings.items()))
