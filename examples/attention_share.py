"""How much of the way to the next word does attention go, and how much the feed-forward layers?

Every state is sent through the final norm, and its angle to the unembedding of the true next word is measured before
and after each sublayer. The control is the next word of another token, which is as frequent.

python examples/attention_share.py
"""

import torch

import armillary
from armillary.flow.passages import over_documents, passages, watched
from armillary.geometry.sphere import angle


def gains(model, ids, targets):
    """Degrees gained towards the targets, [documents, tokens, layers] by attention and by the feed-forward."""
    layers = range(model.layers)
    sites = [f"L{i}.{site}" for i in layers for site in ("resid_pre", "attn_out", "resid_post")]
    seen = watched(model, ids, *sites)
    words = model.W_U.T[targets]
    attention, feed_forward = [], []
    for i in layers:
        before, write, after = (seen[f"L{i}.{site}"][:, :-1] for site in ("resid_pre", "attn_out", "resid_post"))
        start, middle, end = (angle(model.ln_final(x), words).rad2deg() for x in (before, before + write, after))
        # First tokens read no context.
        attention.append((start - middle)[:, 1:])
        feed_forward.append((middle - end)[:, 1:])
    return torch.stack(attention, -1), torch.stack(feed_forward, -1)


with torch.no_grad():
    for name in ("builtin:gpt", "builtin:llama"):
        model = armillary.load(name, progress=False)
        ids = passages(model, documents=24)
        following = ids[:, 1:]
        other = following.roll(1, 0)  # the next word at the same place of another document
        print(f"{name}: degrees gained towards …  by attention, by feed-forward; attention's share")
        true, random = gains(model, ids, following), gains(model, ids, other)
        for what, (attention, feed_forward) in {
            "the next word": true,
            "another word": random,
            "the difference": (true[0] - random[0], true[1] - random[1]),
        }.items():
            a, f = attention.sum(-1), feed_forward.sum(-1)
            # Between two numbers that are near zero a share means nothing.
            share = over_documents(a, a + f, ".2f") if abs((a + f).mean()) > 1 else "none"
            means = over_documents(a.mean(1), form="+.1f"), over_documents(f.mean(1), form="+.1f")
            print(f"  {what:15} {'  '.join(means)}  {share}")
        print("  layer by layer, the difference:", end="")
        for i in range(model.layers):
            a, f = (float((t - r)[..., i].mean()) for t, r in zip(true, random, strict=True))
            print(f"  {a:+.1f} {f:+.1f}", end="")
        print()
