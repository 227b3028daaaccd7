"""How much noise does the stream bear before refinement stops?

Gaussian noise is added after one block. SNR is the state's power over the noise's. Beside it stands what the block
refines: by how many nats the next word's loss falls when it is read behind this block and not before it (the slope of
`words.refine`). The control has the same power along the state itself: the next norm takes it out, and what stays is
that later writes weigh more or less beside a shorter or longer state.

python examples/noise.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.stats import spearmanr
from torch.nn.functional import cross_entropy

import armillary
from armillary.anatomy import Anatomy
from armillary.edits.edit import changing
from armillary.flow.passages import losses, over_documents, passages, watched


@dataclass(frozen=True)
class Noise:
    """Add noise of power |x|²/snr to every state after block `layer`: in all directions, or along the state alone."""

    layer: int
    snr: float
    along: bool = False
    example: ClassVar[str] = "Noise(layer=3, snr=10)"

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        def change(x: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
            draw = torch.Generator().manual_seed(self.layer)
            if self.along:
                return x * (1 + torch.randn(x.shape[:2], generator=draw)[..., None] / self.snr**0.5)
            size = x.norm(dim=-1, keepdim=True) / (self.snr * anatomy.d) ** 0.5
            return x + size * torch.randn(x.shape, generator=draw)

        with changing(anatomy, f"L{self.layer}.resid_post", change):
            yield


gpt = armillary.load("builtin:gpt", progress=False)
ids = passages(gpt, documents=12, tokens=24)
untouched = losses(gpt, ids)


def lens(states: torch.Tensor) -> float:
    """The next word's loss, read off these states."""
    return float(cross_entropy((gpt.ln_final(states[:, :-1]) @ gpt.W_U).flatten(0, 1), ids[:, 1:].flatten()))


def cost(*edits: Noise) -> torch.Tensor:
    with armillary.edited(gpt, *edits):
        return losses(gpt, ids) - untouched


layers, strengths = range(gpt.layers), (1, 10, 100)
seen = watched(gpt, ids, "L0.resid_pre", *(f"L{i}.resid_post" for i in layers))
with torch.no_grad():
    curve = [lens(x) for x in seen.values()]
print(f"loss {float(untouched.mean()):.3f}; read off the first state {curve[0]:.2f}")
print("after   the block refines by   noise costs at SNR 1, 10, 100")
costs = [[cost(Noise(i, snr)) for snr in strengths] for i in layers]
for i, row in enumerate(costs):
    each = "  ".join(over_documents(c, form="+.3f") for c in row)
    print(f"block {i}  {curve[i] - curve[i + 1]:+.2f}                 {each}")
falls = [curve[i] - curve[i + 1] for i in layers]
at_ten = [float(row[1].mean()) for row in costs]
print(f"rank correlation of both, SNR 10, over {gpt.layers} blocks: {spearmanr(falls, at_ten).statistic:+.2f}")
for snr in (*strengths, 1000):
    print(f"after every block, SNR {snr:4}: {over_documents(cost(*(Noise(i, snr) for i in layers)), form='+.3f')}")
along = cost(*(Noise(i, 10, along=True) for i in layers))
print(f"control, along the state, after every block, SNR 10: {over_documents(along, form='+.3f')}")
