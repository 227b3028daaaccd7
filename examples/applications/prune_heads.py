"""Attention: which heads can go? Those that write least.

Heads are ranked by the power of what they write to the stream, on one half of the documents. The k that write least are
silenced, and the loss is measured on the other half. The control silences k random heads.

python examples/applications/prune_heads.py
"""

import torch

import armillary
from armillary.edits import Silence
from armillary.flow.passages import losses, over_documents, passages, watched

DRAWS = 3
gpt = armillary.load("builtin:gpt", progress=False)
ids = passages(gpt, documents=24, tokens=48)
ranking, test = ids[::2], ids[1::2]
layers = range(gpt.layers)
seen = watched(gpt, ranking, *(f"L{i}.{site}" for i in layers for site in ("z", "resid_pre")))
with torch.no_grad():
    writes = [torch.einsum("bthk,hkd->bthd", seen[f"L{i}.z"], gpt.blocks[i].attention.W_O) for i in layers]
    # Over the stream's own power: a write of the same length moves a long state less.
    streams = [seen[f"L{i}.resid_pre"].square().mean() for i in layers]
    power = torch.cat([w.square().mean((0, 1, 3)) / s for w, s in zip(writes, streams, strict=True)])
untouched = losses(gpt, test)


def cost(heads: torch.Tensor) -> torch.Tensor:
    """What it adds to the loss to silence heads, numbered through all layers."""
    by_layer = {i: tuple(int(h) % gpt.n_heads for h in heads if int(h) // gpt.n_heads == i) for i in layers}
    with armillary.edited(gpt, *(Silence(layer, chosen) for layer, chosen in by_layer.items() if chosen)):
        return losses(gpt, test) - untouched


order = power.argsort()
names = [f"L{int(h) // gpt.n_heads}H{int(h) % gpt.n_heads}" for h in order]
print(f"write least: {', '.join(names[:4])}; write most: {', '.join(names[-4:])}")
print(f"{len(power)} heads; nats per token that silencing adds")
draw = torch.Generator().manual_seed(0)
for k in (3, 7, 14):
    least = cost(order[:k])
    random = torch.stack([cost(torch.randperm(len(power), generator=draw)[:k]) for _ in range(DRAWS)]).mean(0)
    shown = [over_documents(x, form="+.3f") for x in (least, random, least - random)]
    print(f"{k:2} that write least {shown[0]}; random {shown[1]}; difference {shown[2]}")
