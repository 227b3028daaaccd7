"""Words: can a token leave early, when its state no longer turns?

A token leaves behind the first block that turns its state by less than a threshold, and is read there by the final norm
and the unembedding. The control lets tokens leave at the same layers, shuffled among them. Tokens that left are still
read by later ones as if they had stayed: what is saved is an upper bound.

python examples/applications/early_exit.py
"""

import torch
from torch.nn.functional import cross_entropy

import armillary
from armillary.flow.passages import over_documents, passages, watched
from armillary.geometry.sphere import angle

for name in ("builtin:gpt", "builtin:llama"):
    model = armillary.load(name, progress=False)
    ids, layers = passages(model, documents=16, tokens=48), range(model.layers)
    seen = watched(model, ids, *(f"L{i}.{site}" for i in layers for site in ("resid_pre", "resid_post")))
    with torch.no_grad():
        turns, losses = [], []
        for i in layers:
            before, after = (seen[f"L{i}.{site}"][:, :-1] for site in ("resid_pre", "resid_post"))
            turns.append(angle(before, after).rad2deg())
            logits = model.ln_final(after) @ model.W_U
            losses.append(cross_entropy(logits.mT, ids[:, 1:], reduction="none"))
    turn, loss = torch.stack(turns, -1), torch.stack(losses, -1)
    full = loss[..., -1]
    print(f"{name}: loss {over_documents(full.mean(1), form='.2f')}; median turn by block", end=" ")
    print(" ".join(f"{t:.0f}°" for t in turn.flatten(0, 1).median(0).values))
    draw = torch.Generator().manual_seed(0)
    for threshold in (16, 18, 20, 22, 25):
        leaves = turn < threshold
        leaves[..., -1] = True
        layer = leaves.int().argmax(-1)
        mixed = layer.flatten()[torch.randperm(layer.numel(), generator=draw)].reshape(layer.shape)
        cost, control = (loss.gather(-1, at[..., None])[..., 0] - full for at in (layer, mixed))
        saved = 1 - (layer + 1).double().mean() / model.layers
        shown = [over_documents(x.mean(1), form="+.3f") for x in (cost, control, cost - control)]
        print(f"  below {threshold}°: {saved:.0%} of blocks saved, loss {shown[0]}; shuffled {shown[1]};", end=" ")
        print(f"difference {shown[2]}")
