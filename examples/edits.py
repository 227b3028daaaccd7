"""What does it cost a model when something in it is changed? Any edit, in a `with` statement, undone on leaving.

python examples/edits.py
"""

import torch

import armillary
from armillary.edits import Scale, Shuffle, Silence, across, within
from armillary.flow.capture import run, still

gpt = armillary.load("builtin:gpt", progress=False)
ids = gpt.tokenizer("It was the best of times, it was the worst of times.", return_tensors="pt").input_ids


def loss() -> float:
    with still(gpt.model):
        logits = run(gpt, ids, logits=True)
    return float(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]))


untouched = loss()
trials = {
    "the stream doubled after block 3": Scale(layer=3, factor=2.0),
    "head 0 of layer 1 silent": Silence(layer=1, heads=(0,)),
    "axes of layer 3 shuffled within heads": Shuffle(3, within(gpt.n_heads, gpt.k, seed=0)),
    "axes of layer 3 shuffled across heads": Shuffle(3, across(gpt.n_heads, gpt.k, seed=0)),
}
print(f"{'untouched':40} {untouched:.3f} nats a token")
for what, edit in trials.items():
    with armillary.edited(gpt, edit):
        print(f"{what:40} {loss() - untouched:+.3f}")
assert loss() == untouched
