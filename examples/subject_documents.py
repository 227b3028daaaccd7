"""Does a head with a subject attend and write more in documents on that subject? And where does it write?

`vo.subjects` says which heads have a subject. A document is the more on a head's subject, the nearer its words come to
the tokens that the head's strongest directions promote. Attention to other tokens than the first, and the length of
what the head writes, are compared with that over documents, by rank correlation. The control gives every head the
subject of another one.

python examples/subject_documents.py
"""

import numpy as np
import torch
from scipy.stats import spearmanr
from torch.nn.functional import normalize

import armillary
from armillary.flow.passages import passages, watched

DIRECTIONS, TOP = 8, 10
gpt = armillary.load("builtin:gpt", progress=False)
rows = armillary.survey(gpt, claims="vo.subjects", quick=True, progress=False)["vo.subjects"].to_frame()
heads = [(layer, head) for layer in range(gpt.layers) for head in range(gpt.n_heads)]
subject = rows["subject"].to_numpy(dtype=bool)
ids = passages(gpt, documents=34, tokens=48)
seen = watched(gpt, ids, *(f"L{i}.{site}" for i in range(gpt.layers) for site in ("pattern", "z")))
with torch.no_grad():
    words = normalize(gpt.W_E - gpt.W_E.mean(0), dim=-1)
    weights, near, attends, writes = [], [], [], []
    for layer, h in heads:
        head = gpt.blocks[layer].attention.head(h)
        # Folded with the norm's gain, as the claim reads it.
        weights.append(gpt.blocks[layer].ln1.gain[:, None] * head.W_V @ head.W_O)
        directions = torch.linalg.svd(weights[-1]).Vh[:DIRECTIONS]
        reach = directions @ gpt.W_U
        reach = torch.where((reach.amax(1) < -reach.amin(1))[:, None], -reach, reach)
        topics = words[reach.topk(TOP).indices].mean(1)
        near.append((words[ids] @ topics.T).amax(-1).mean(1))
        attends.append(1 - seen[f"L{layer}.pattern"][:, h, 1:, 0].mean(1))
        writes.append((seen[f"L{layer}.z"][:, 1:, h] @ head.W_O).norm(dim=-1).mean(1))


def own_and_other(what: list[torch.Tensor], chosen: np.ndarray) -> str:
    """Mean correlation of the chosen heads with nearness to their own subject; to others'; chance of as much."""
    near_, what_ = (np.stack([x.numpy() for x, c in zip(part, chosen, strict=True) if c]) for part in (near, what))
    n = len(near_)
    table = spearmanr(near_, what_, axis=1).statistic[:n, n:]  # [subject of, measured in]
    draw = np.random.default_rng(0)
    mixed = [table[draw.permutation(n), np.arange(n)].mean() for _ in range(999)]
    own = table.diagonal().mean()
    chance = (1 + sum(m >= own for m in mixed)) / 1000
    return f"own subject {own:+.2f}; subject of another head {np.mean(mixed):+.2f}; p = {chance:.3f}"


print(f"{int(subject.sum())} of {len(subject)} heads have a subject. Correlation over {len(ids)} documents:")
for name, what in {"attention": attends, "length of the write": writes}.items():
    print(f"  {name}, heads with a subject: {own_and_other(what, subject)}")
    print(f"  {name}, heads without:        {own_and_other(what, ~subject)}")

# 'Back to the space of the embeddings': the axes in which words differ most.
leading = gpt.d // 8
with torch.no_grad():
    axes = torch.linalg.svd(gpt.W_E - gpt.W_E.mean(0), full_matrices=False).Vh[:leading]
    shares = torch.stack([(w @ axes.T).square().sum() / w.square().sum() for w in weights]).reshape(gpt.layers, -1)
    draw = torch.Generator().manual_seed(0)
    turns = [torch.linalg.qr(torch.randn(gpt.d, gpt.d, generator=draw)).Q for _ in range(4)]
    random = torch.stack([(w @ turn @ axes.T).square().sum() / w.square().sum() for w in weights for turn in turns])
print(f"share of a head's write in the {leading} leading axes of the embedding, mean by layer:")
print("  " + "  ".join(f"{share:.3f}" for share in shares.mean(1)))
low, high = random.quantile(torch.tensor([0.025, 0.975]))
print(f"  random writes of the same spectrum: {random.mean():.3f}, 95 % of them {low:.3f} to {high:.3f}")
