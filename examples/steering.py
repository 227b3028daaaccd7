"""Can a model be steered by one direction, and how long must it be?

One direction is added to every state after block 3, at several lengths (in units of the mean length of a state): the
unembedding of a word. Measured are that word's probability and what the text's own loss pays. The control is a random
direction of the same length.

python examples/steering.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch

import armillary
from armillary.anatomy import Anatomy
from armillary.edits.edit import changing
from armillary.flow.capture import run, still
from armillary.flow.passages import losses, over_documents, passages, watched

LAYER, WORDS = 3, (" water", " house", " king")


@dataclass(frozen=True, eq=False)
class Add:
    """Add one vector to every state after block `layer`."""

    layer: int
    vector: torch.Tensor
    example: ClassVar[str] = "Add(layer=3, vector=torch.ones(256))"

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        with changing(anatomy, f"L{self.layer}.resid_post", lambda x, given: x + self.vector):
            yield


gpt = armillary.load("builtin:gpt", progress=False)
ids = passages(gpt, documents=10, tokens=24)
states = watched(gpt, ids, f"L{LAYER}.resid_post")[f"L{LAYER}.resid_post"][:, 1:]
unit = states.norm(dim=-1).mean()
untouched = losses(gpt, ids)
draw = torch.Generator().manual_seed(0)
words = [gpt.tokenizer(word, add_special_tokens=False).input_ids[0] for word in WORDS]
mean = gpt.W_U.mean(1)


def steered(vector: torch.Tensor, word: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The word's log-probability [documents], and the loss added [documents]."""
    with armillary.edited(gpt, Add(LAYER, vector)), still(gpt.model):
        logits = run(gpt, ids, logits=True)
    log_p = logits.log_softmax(-1)
    own = -log_p[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].mean(1)
    return log_p[..., word].mean(1), own - untouched


print(f"mean log-probability of {', '.join(w.strip() for w in WORDS)}, and what the text's loss pays")
with still(gpt.model):
    before = run(gpt, ids, logits=True).log_softmax(-1)[..., words].mean((1, 2))
print(f"length 0: {over_documents(before, form='.1f')}")
print("length  the word's direction                        a random direction")
for length in (0.125, 0.25, 0.5, 1.0):
    cells = []
    for kind in ("word", "random"):
        effects = []
        for word in words:
            way = gpt.W_U[:, word] - mean if kind == "word" else torch.randn(gpt.d, generator=draw)
            effects.append(steered((length * unit * way / way.norm()).detach(), word))
        gains, paid = (torch.stack(part).mean(0) for part in zip(*effects, strict=True))
        cells.append(f"{over_documents(gains, form='.1f')}  {over_documents(paid, form='+.2f')}")
    print(f"{length:5}   {'   '.join(cells)}")
