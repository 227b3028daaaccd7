"""The filter: which feed-forward units can go? Those that write least, or that are doubles of another.

Units are ranked by how much what they write varies from token to token, on one half of the documents, and replaced by
their mean; the loss is measured on the other half. The control replaces as many random units of each layer.

python examples/applications/prune_units.py
"""

import torch
from torch.nn.functional import normalize

import armillary
from armillary.edits import Ablate
from armillary.flow.passages import losses, over_documents, passages, watched


def measure(name: str) -> None:
    model = armillary.load(name, progress=False)
    ids, layers = passages(model, documents=24, tokens=32), range(model.layers)
    ranking, test = ids[::2], ids[1::2]
    seen = watched(model, ranking, *(f"L{i}.mlp_post" for i in layers))
    post = {i: seen[f"L{i}.mlp_post"].flatten(0, 1) for i in layers}
    means = {i: x.mean(0) for i, x in post.items()}
    with torch.no_grad():
        # A unit writes its value times its row of W_out.
        size = {i: post[i].std(0) * model.blocks[i].feed_forward.W_out.norm(dim=1) for i in layers}
        dead = sum(int((size[i] < 1e-3 * size[i].median()).sum()) for i in layers)
        doubles = 0
        for i in layers:
            alike = normalize(post[i] - means[i], dim=0)
            doubles += int(((alike.T @ alike).triu(1) > 0.95).any(0).sum())
    untouched = losses(model, test)
    draw = torch.Generator().manual_seed(0)

    def cost(share: float, scores: dict[int, torch.Tensor]) -> torch.Tensor:
        """What it adds to the loss to replace the share of units with the lowest scores by their means."""
        edits = []
        for i in layers:
            gone = scores[i] < scores[i].quantile(share)
            edits.append(Ablate(i, lambda pre, post, gone=gone: gone.expand(post.shape), "mean", means[i]))
        with armillary.edited(model, *edits):
            return losses(model, test) - untouched

    print(f"{name}: {model.layers * model.m} units, {dead} dead, {doubles} doubles (correlation above 0.95)")
    for share in (0.25, 0.5, 0.75):
        least = cost(share, size)
        random = cost(share, {i: torch.rand(model.m, generator=draw) for i in layers})
        shown = [over_documents(x, form="+.3f") for x in (least, random, least - random)]
        print(f"  {share:.0%} that write least {shown[0]}; random {shown[1]}; difference {shown[2]}")


for name in ("builtin:gpt", "builtin:llama"):
    measure(name)
