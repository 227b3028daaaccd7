"""Which non-linearity does a trained model need more: that of its norms, or that of its activations?

Either becomes its first-order expansion f(b) + J(b)(x − b). Around the token's own state x that would be f(x) itself,
so b is another state there: the mean of all tokens, the previous token's, or half way to that. Control: random x − b.
"""

from contextlib import ExitStack
from functools import partial

import torch
from torch.func import jvp

import armillary
from armillary.edits.edit import changing
from armillary.flow.passages import losses, over_documents, passages

gpt = armillary.load("builtin:gpt", progress=False)
ids = passages(gpt, documents=24)
draw = torch.Generator().manual_seed(0)
layers = range(gpt.layers)
NORMS = [f"L{i}.{norm}" for i in layers for norm in ("ln1", "ln2")] + ["ln_final"]
BASES = {
    "the mean of all tokens": lambda x: torch.zeros_like(x[:, 1:]) + x[:, 1:].mean((0, 1)),
    "the previous token": lambda x: x[:, :-1],
    "a state half way to the previous token": lambda x: (x[:, 1:] + x[:, :-1]) / 2,
}


def expanded(f, x, base, random):
    """f to first order around a base for each token, or the same with random steps."""
    b = base(x)
    step = x[:, 1:] - b
    if random:
        noise = torch.randn(step.shape, generator=draw)
        step = noise * step.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
    value, slope = jvp(f, (b,), (step,))
    return torch.cat([f(x[:, :1]), value + slope], 1)


def cost(what, base, random=False):
    """By how much the loss of each document rises, in nats per token."""
    received = {}
    with ExitStack() as edits:
        for site in {"norms": NORMS, "norms before feed-forward": NORMS[1::2]}.get(what, ()):
            edits.enter_context(changing(gpt, site, lambda y, x, f=gpt.norms[site]: expanded(f, x, base, random)))
        for i in layers if what == "activations" else ():
            edits.enter_context(changing(gpt, f"L{i}.mlp_pre", lambda x, _, i=i: received.setdefault(i, x)))
            f = gpt.blocks[i].feed_forward.activation
            change = partial(lambda i, f, y, _: expanded(f, received.pop(i), base, random), i, f)
            edits.enter_context(changing(gpt, f"L{i}.mlp_post", change))
        return losses(gpt, ids) - before


before = losses(gpt, ids)
print(f"Loss {over_documents(before, form='.2f')} nats per token. It rises by … when these are linearised:")
for name, base in BASES.items():
    print(f"around {name}")
    for what in ("norms", "norms before feed-forward", "activations"):
        costs = [over_documents(cost(what, base, random), form="+.2f") for random in (False, True)]
        print(f"  {what:26} {costs[0]:22} random steps {costs[1]}")
