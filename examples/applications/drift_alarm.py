"""Stability: an alarm for text that the model does not know, by one angle.

The reference is the mean direction of some documents behind the last block. A new text's score is the angle of its own
mean direction to it. How well does the angle tell other text from ordinary text (AUC: 0.5 is chance)? The model's own
loss is the alarm to beat, but needs the next words; the state's length is a cheap control.

python examples/applications/drift_alarm.py
"""

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import armillary
from armillary.flow.passages import passages, watched
from armillary.geometry.resample import auc
from armillary.geometry.sphere import angle

TOKENS = 32
gpt = armillary.load("builtin:gpt", progress=False)
site = f"L{gpt.layers - 1}.resid_post"
draw = torch.Generator().manual_seed(0)
ids = passages(gpt, documents=48, tokens=TOKENS)
reference, ordinary = ids[::2], ids[1::2]


def recoded(change) -> torch.Tensor:
    """The ordinary documents with their letters changed, tokenised anew."""
    texts = [change(gpt.tokenizer.decode(row)) for row in ordinary]
    return torch.tensor([gpt.tokenizer(text, add_special_tokens=False).input_ids[:TOKENS] for text in texts])


shuffle = torch.stack([row[torch.randperm(TOKENS, generator=draw)] for row in ordinary])
others = {
    "another ordinary half": None,
    "words shuffled": shuffle,
    "random tokens": torch.randint(gpt.vocabulary, ordinary.shape, generator=draw),
    "in capitals": recoded(str.upper),
    "spelled backwards": recoded(lambda text: text[::-1]),
    "one token repeated": ordinary[:, :1].expand(-1, TOKENS),
}
centre = gpt.ln_final.direction(watched(gpt, reference, site)[site][:, 1:]).mean((0, 1))


def scores(tokens: torch.Tensor) -> dict[str, np.ndarray]:
    x = watched(gpt, tokens, site)[site]
    mean = gpt.ln_final.direction(x[:, 1:]).mean(1)  # first tokens are apart
    logits = gpt.ln_final(x[:, :-1]) @ gpt.W_U
    loss = cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)
    scores = {"angle": angle(mean, centre), "loss": loss, "length": x[:, 1:].norm(dim=-1).mean(1)}
    return {name: value.numpy(force=True) for name, value in scores.items()}


known = scores(ordinary)
print(f"{len(ordinary)} texts of {TOKENS} tokens each; AUC [95 % interval over texts]")
for what, tokens in others.items():
    if tokens is None:  # the alarm must be silent: one half of the ordinary texts against the other
        new, old = ({name: value[part::2] for name, value in known.items()} for part in (0, 1))
    else:
        new, old = scores(tokens), known
    cells = []
    for name in known:
        rng = np.random.default_rng(0)
        drawn = [auc(rng.choice(new[name], len(new[name])), rng.choice(old[name], len(old[name]))) for _ in range(200)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        cells.append(f"{name} {auc(new[name], old[name]):.2f} [{low:.2f}, {high:.2f}]")
    print(f"  {what:21} {';  '.join(cells)}")
