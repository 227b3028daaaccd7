"""What does it cost the model when its stream is made shorter or longer?

The edited passes of `sphere.direction`: the stream after a block is multiplied by ½ or by 2 and the loss compared,
document by document, with the untouched model's. After the last block of a pre-norm model the final norm undoes any
scale, so that row is the exact-zero control.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import scaled
from armillary.flow.capture import run, still
from armillary.flow.tokens import Batch, Corpus

FACTORS = (0.5, 2.0)
LAYERS = 4
TOKENS = 384
DOCUMENTS = 12
# Logits are as wide as the vocabulary: a batch of these many tokens keeps them to a hundred megabytes.
BATCH = 512


@dataclass(frozen=True, eq=False)
class ScalingRecord:
    """Loss sums [1 + layers·factors, groups] (the untouched model first) and token counts [groups]."""

    layers: tuple[int, ...]
    factors: tuple[float, ...]
    loss: Tensor
    count: Tensor

    def __add__(self, other: "ScalingRecord") -> "ScalingRecord":
        return ScalingRecord(self.layers, self.factors, self.loss + other.loss, self.count + other.count)


def layers_of(anatomy: Anatomy) -> tuple[int, ...]:
    """A few layers spread over the depth, the last among them."""
    last = anatomy.layers - 1
    return tuple(sorted({round(i * last / (LAYERS - 1)) for i in range(LAYERS)}))


def measure_scaling(
    anatomy: Anatomy, corpus: Corpus, tick: Callable[[int], None] = lambda tokens: None
) -> ScalingRecord | None:
    """Every edit on the first few documents; None where the model gives no next-token logits."""
    if not anatomy.causal or anatomy.W_U is None:
        return None
    layers, small = layers_of(anatomy), corpus.thinned(TOKENS, DOCUMENTS)
    edits = [(layer, factor) for layer in layers for factor in FACTORS]
    loss = torch.zeros(1 + len(edits), corpus.groups, dtype=torch.float64)
    count = torch.zeros(corpus.groups, dtype=torch.float64)
    with still(anatomy.model):
        for batch in small.batches(BATCH):
            groups, kept = corpus.group(batch.documents), (batch.following >= 0)
            count.index_add_(0, groups, kept.sum(1).double())
            loss[0].index_add_(0, groups, _loss(anatomy, batch, kept))
            tick(batch.tokens)
            for row, (layer, factor) in enumerate(edits, 1):
                with scaled(anatomy, layer, factor):
                    loss[row].index_add_(0, groups, _loss(anatomy, batch, kept))
                tick(batch.tokens)
    return ScalingRecord(layers, FACTORS, loss, count)


def passes(anatomy: Anatomy) -> int:
    return 1 + len(layers_of(anatomy)) * len(FACTORS)


def _loss(anatomy: Anatomy, batch: Batch, kept: Tensor) -> Tensor:
    """Summed next-token loss per row."""
    logits = run(anatomy, batch.ids, batch.mask, logits=True).float()
    target = batch.following.clamp_min(0).to(logits.device)
    # Flat rows: cross entropy over a transposed vocabulary axis is several times slower.
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    return (nll.reshape(target.shape).double() * kept.to(nll.device)).sum(1).cpu()
