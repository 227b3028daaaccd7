"""The sphere: a model whose norms have no gain and no shift, and that computes the same.

A norm sends a state to the sphere; gain and shift come after, and the next matrix can do their work. So they are
multiplied into it, and the norm is left as the pure sphere. The control drops them without folding.

python examples/applications/fold_gains.py
"""

import torch

import armillary
from armillary.anatomy import Anatomy, Norm
from armillary.flow.capture import run, still
from armillary.flow.passages import losses, over_documents, passages


def fold(weights: torch.Tensor, bias: torch.Tensor | None, norm: Norm) -> None:
    """x γ W + β W + b in place of (x γ + β) W + b. These are the running model's own weights [..., d, width]."""
    if norm.shift is not None and bias is not None:
        bias += norm.shift @ weights
    weights *= norm.gain[:, None]


def purify(model: Anatomy, drop_only: bool = False) -> None:
    """Take gain and shift out of all norms but the last, for good."""
    with torch.no_grad():
        for block in model.blocks:
            a, f = block.attention, block.feed_forward
            if not drop_only:
                for weights, bias in ((a.W_Q, a.b_Q), (a.W_K, a.b_K), (a.W_V, a.b_V)):
                    fold(weights, bias, block.ln1)
                for weights, bias in ((f.W_in, f.b_in), (f.W_gate, f.b_gate)):
                    if weights is not None:
                        fold(weights, bias, block.ln2)
            for norm in (block.ln1, block.ln2):
                norm.gain.fill_(1)
                if norm.shift is not None:
                    norm.shift.fill_(0)


for name in ("builtin:gpt", "builtin:llama"):
    model = armillary.load(name, progress=False)
    ids = passages(model, documents=6, tokens=48)
    with still(model.model):
        logits = run(model, ids, logits=True)
    before = losses(model, ids)
    norms = [norm for site, norm in model.norms.items() if site != "ln_final"]
    freed = sum(norm.gain.numel() + (0 if norm.shift is None else norm.shift.numel()) for norm in norms)
    purify(model)
    with still(model.model):
        change = float((run(model, ids, logits=True) - logits).abs().max() / logits.std())
    dropped = armillary.load(name, progress=False)
    purify(dropped, drop_only=True)
    print(f"{name}: {len(norms)} norms become pure spheres, {freed} parameters fewer")
    print(f"  largest change of a logit, over the logits' spread, below 1e-4: {change < 1e-4}")
    print(f"  loss, folded {over_documents(losses(model, ids) - before, form='+.3f')} nats per token")
    print(f"  control: dropped without folding {over_documents(losses(dropped, ids) - before, form='+.3f')}")
