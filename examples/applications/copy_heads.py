"""The grid: which heads must be kept for copying?

Heads are ranked by how much they attend, at a token's second occurrence, to what followed the first: random tokens,
repeated once. The best are silenced, and the loss on the second copy is measured on new random tokens. Controls: as
many random other heads, and the same heads on ordinary text.

python examples/applications/copy_heads.py
"""

import torch
from torch.nn.functional import cross_entropy

import armillary
from armillary.edits import Silence
from armillary.flow.attention import copied
from armillary.flow.capture import run, still
from armillary.flow.passages import losses, over_documents, passages, watched

LENGTH, ROWS, SILENCED = 24, 8, 2


def measure(name: str) -> None:
    model = armillary.load(name, progress=False)
    draw = torch.Generator().manual_seed(0)
    ranking, test = torch.randint(model.vocabulary, (2, ROWS, LENGTH), generator=draw).repeat(1, 1, 2)
    text = passages(model, documents=8, tokens=32)
    patterns = watched(model, ranking, *(f"L{i}.pattern" for i in range(model.layers)))
    scores = torch.stack([copied(pattern, 0, LENGTH).mean((0, 2)) for pattern in patterns.values()]).flatten()
    previous = torch.stack([pattern.diagonal(-1, 2, 3).mean((0, 2)) for pattern in patterns.values()]).flatten()
    order = scores.argsort(descending=True).tolist()

    def second(heads: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """With these heads silenced: the loss on the second copy [rows], and on ordinary text [documents]."""
        n = model.n_heads
        by_layer = {i: tuple(h % n for h in heads if h // n == i) for i in range(model.layers)}
        with armillary.edited(model, *(Silence(i, some) for i, some in by_layer.items() if some)), still(model.model):
            logits = run(model, test, logits=True)[:, LENGTH:-1]
            return cross_entropy(logits.mT, test[:, LENGTH + 1 :], reduction="none").mean(1), losses(model, text)

    copying, reading = second([])
    with still(model.model):
        first = cross_entropy(run(model, test, logits=True)[:, : LENGTH - 1].mT, test[:, 1:LENGTH], reduction="none")
    best = ", ".join(f"L{h // model.n_heads}H{h % model.n_heads} {scores[h]:.2f}" for h in order[:4])
    print(f"{name}: loss on the first copy {over_documents(first.mean(1), form='.2f')}, second", end=" ")
    print(f"{over_documents(copying, form='.2f')}; most copying: {best}")
    # Copying takes two steps: an earlier head must first tell every token which one stood before it.
    before_it = int(previous.argmax())
    label = f"L{before_it // model.n_heads}H{before_it % model.n_heads} {previous[before_it]:.2f}"
    step = over_documents(second([before_it])[0] - copying, form="+.2f")
    print(f"  attends most to the token before: {label}; silenced, second copy {step}")
    # Random heads that are not among the eight best.
    draws = [torch.randperm(len(order) - 8, generator=draw)[:SILENCED] for _ in range(4)]
    runs = [second([order[8 + int(i)] for i in drawn]) for drawn in draws]
    silenced = second(order[:SILENCED])
    for what, at, before in (("second copy", 0, copying), ("ordinary text", 1, reading)):
        random = torch.stack([each[at] for each in runs]).mean(0)
        shown = over_documents(silenced[at] - before, form="+.2f"), over_documents(random - before, form="+.2f")
        print(f"  {SILENCED} silenced, {what:13}: copying heads {shown[0]}; random others {shown[1]}")


for name in ("builtin:gpt", "builtin:llama"):
    measure(name)
