"""What does the loss, or a head's result, ask of each head's slices of W_Q, W_K and W_V?

The gradient of a slice is yᵀg, with y what the projection reads and g the gradient at what it gives, summed over tokens. So
gradients are taken at the projections' outputs: no parameter is asked for one, and none keeps one. Products of two such
gradients follow from t × t matrices, without the d × k ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import projected
from armillary.edits import Edit, edited
from armillary.edits.edit import changing
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch

# float16 cannot hold small gradients; every number asked for here is a ratio of two of them.
LOSS_SCALE = 1024.0


@dataclass(frozen=True, eq=False)
class Slices:
    """One layer: y [b, t, d], and the gradients at q [b, t, h, k] and at k and v [b, t, g, k]; float64."""

    y: Tensor
    q: Tensor
    k: Tensor
    v: Tensor

    def products(self, other: "Slices", side: str) -> Tensor:
        """⟨yᵀg, y'ᵀg'⟩ of every document and head [b, heads], for the slices of W_Q, W_K or W_V."""
        mine, theirs = getattr(self, side), getattr(other, side)
        tokens = self.y @ other.y.mT
        return torch.einsum("bts,bthk,bshk->bh", tokens, mine, theirs)


@contextmanager
def _tracked(anatomy: Anatomy) -> Iterator[None]:
    """Gradients from the first block on, whether or not any parameter asks for one; the model stays in evaluation mode."""

    def root(stream: Tensor, given: Tensor | None) -> Tensor:
        return stream.detach().requires_grad_(True)

    with still(anatomy.model), torch.enable_grad(), changing(anatomy, "L0.resid_pre", root):
        yield


class _Seen:
    """Where the layers' projections stand in the graph of one pass."""

    def __init__(self, anatomy: Anatomy, layers: Sequence[int]) -> None:
        self.anatomy, self.layers = anatomy, layers
        self.given: dict[int, Tensor] = {}
        self.outputs: dict[tuple[int, str], Tensor] = {}
        self.results: dict[int, Tensor] = {}

    def watchers(self) -> dict[str, Watcher]:
        return {f"L{at}.{part}": self._watch(at, part) for at in self.layers for part in "qkvz"}

    def _watch(self, layer: int, part: str) -> Watcher:
        def watch(given: Tensor | None, output: Tensor) -> None:
            assert given is not None, "a projection takes a tensor"
            if part == "z":
                self.results[layer] = given
            else:
                self.outputs[layer, part] = output
            if part == "q":
                self.given[layer] = given.detach()

        return watch

    def slices(self, target: Tensor, shape: torch.Size, layers: Sequence[int], keep: bool = False) -> dict[int, Slices]:
        """The gradients of one number; where the graph does not lead, they are 0."""
        names = [(at, part) for at in layers for part in "qkv"]
        # One module may give q, k and v: ask it once.
        unique = {id(self.outputs[name]): self.outputs[name] for name in names}
        grads = torch.autograd.grad(target, list(unique.values()), retain_graph=keep, allow_unused=True)
        by = dict(zip(unique, grads, strict=True))
        made = {}
        for at in layers:
            parts = []
            for part in "qkv":
                output = self.outputs[at, part]
                found = by[id(output)]
                found = torch.zeros_like(output) if found is None else found
                parts.append(projected(self.anatomy, f"L{at}.{part}", found.reshape(*shape, -1)).double() / LOSS_SCALE)
            made[at] = Slices(self.given[at].reshape(*shape, -1).double(), *parts)
        return made


def loss_slices(
    anatomy: Anatomy, batch: Batch, layers: Sequence[int], edits: Sequence[Edit] = ()
) -> tuple[dict[int, Slices], Tensor]:
    """The loss's gradients at the slices of these layers, and every document's loss [b]."""
    seen = _Seen(anatomy, layers)
    with _tracked(anatomy), edited(anatomy, *edits), watching(anatomy, seen.watchers()):
        logits = run(anatomy, batch.ids, batch.mask, logits=True).float()
        target = batch.following.to(logits.device)
        nll = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), reduction="none", ignore_index=-1
        ).reshape(target.shape)
        found = seen.slices(nll.sum() * LOSS_SCALE, batch.ids.shape, layers)
    return found, nll.detach().double().sum(1).cpu()


def result_slices(anatomy: Anatomy, batch: Batch, layers: Sequence[int]) -> dict[int, dict[int, dict[int, Slices]]]:
    """layer → head → layer → the gradients of a random sum of this head's results: at its own layer's slices for every
    head, and for the first head at those of the earlier layers too."""
    seen = _Seen(anatomy, layers)
    made: dict[int, dict[int, dict[int, Slices]]] = {}
    with _tracked(anatomy), watching(anatomy, seen.watchers()):
        run(anatomy, batch.ids, batch.mask)
        draw = torch.Generator().manual_seed(0)
        for at in layers:
            results = seen.results[at].reshape(*batch.ids.shape, anatomy.n_heads, anatomy.k)
            weights = torch.randn(results.shape[:2] + results.shape[3:], generator=draw).to(results)
            weights = weights * batch.mask.to(results)[..., None]
            made[at] = {}
            for head in range(anatomy.n_heads):
                reached = [other for other in layers if other == at or (other < at and head == 0)]
                target = (results[:, :, head] * weights).sum() * LOSS_SCALE
                made[at][head] = seen.slices(target, batch.ids.shape, reached, keep=True)
    return made
