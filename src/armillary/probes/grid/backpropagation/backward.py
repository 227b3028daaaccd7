"""What are the gradients of the loss, or of a head's result, at each head's slices of W_Q, W_K, W_V and W_O?

The gradient of a slice is yᵀg summed over tokens, with y the input of the projection and g the gradient at its output.
So gradients are taken at the projections' outputs: no parameter requires one, and none stores one. Inner products of
two such gradients follow from t × t matrices, without the d × k ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit, edited
from armillary.edits.edit import Change, changing
from armillary.flow.capture import run, still
from armillary.flow.tokens import Batch

# float16 cannot represent small gradients; every number computed here is a ratio of two of them.
LOSS_SCALE = 1024.0


@dataclass(frozen=True, eq=False)
class Slices:
    """One layer: y [b, t, d], and the gradients at q [b, t, h, k] and at k and v [b, t, g, k].

    Where asked for, z [b, t, h, k], which W_O receives, and the gradient at what attention writes, o [b, t, d].
    """

    y: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    z: Tensor | None = None
    o: Tensor | None = None

    def products(self, other: "Slices", sides: str) -> Tensor:
        """⟨yᵀg, y'ᵀg'⟩ of every document and head [b, heads], for the slices of W_Q, W_K or W_V; summed over sides."""
        inputs = (self.y @ other.y.mT)[:, None]
        return torch.stack([(inputs * (g @ h.mT)).sum((-2, -1)) for g, h in _by_head(self, other, sides)]).sum(0)

    def gradient(self, side: str) -> Tensor:
        """The gradient itself, summed over the batch: of W_Q, W_K or W_V [heads, d, k], or of W_O [h, k, d]."""
        given, output = (self.y, getattr(self, side)) if side != "o" else (self.o, self.z)
        assert given is not None and output is not None, "the gradient at W_O was not asked for"
        whole = (given.flatten(0, 1).T @ output.flatten(0, 1).flatten(1)).reshape(-1, *output.shape[2:])
        return whole.permute((1, 0, 2) if side != "o" else (1, 2, 0))


def _by_head(first: Slices, second: Slices, sides: str) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradients [b, h, t, k] of each of these sides."""
    for side in sides:
        yield getattr(first, side).transpose(1, 2), getattr(second, side).transpose(1, 2)


@contextmanager
def _tracked(anatomy: Anatomy) -> Iterator[None]:
    """Gradients from the first block on, in evaluation mode. Parameters require none meanwhile: the graph need not keep
    what only their gradients would be computed from."""

    def root(stream: Tensor, given: Tensor | None) -> Tensor:
        return stream.detach().requires_grad_(True)

    learned = [parameter for parameter in anatomy.model.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        with still(anatomy.model), torch.enable_grad(), changing(anatomy, "L0.resid_pre", root):
            yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


class _Graph:
    """The layers' projections in the autograd graph of one pass."""

    def __init__(self, anatomy: Anatomy, layers: Sequence[int], parts: str = "qkv") -> None:
        self.anatomy, self.layers, self.parts = anatomy, layers, parts
        self.given: dict[int, Tensor] = {}
        self.outputs: dict[tuple[int, str], Tensor] = {}
        self.results: dict[int, Tensor] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """By edits that change nothing: a view that only a watcher holds is not part of the graph."""
        with ExitStack() as stack:
            for at in self.layers:
                for part in (*self.parts, "z"):
                    site = f"L{at}.{'attn_out' if part == 'o' else part}"
                    stack.enter_context(changing(self.anatomy, site, self._keep(at, part)))
            yield

    def _keep(self, layer: int, part: str) -> Change:
        def keep(value: Tensor, given: Tensor | None) -> Tensor:
            if part == "z":
                self.results[layer] = value
            else:
                self.outputs[layer, part] = value
            if part == "q" and given is not None:
                self.given[layer] = given.detach()
            return value

        return keep

    def slices(
        self, target: Tensor, layers: Sequence[int], keep: bool = False, dtype: torch.dtype = torch.float64
    ) -> dict[int, Slices]:
        """The gradients of a scalar; 0 at outputs that it does not depend on."""
        names = [(at, part) for at in layers for part in self.parts]
        outputs = [self.outputs[name] for name in names]
        grads = torch.autograd.grad(target, outputs, retain_graph=keep, allow_unused=True)
        gradients = {
            name: (torch.zeros_like(output) if grad is None else grad).to(dtype) / LOSS_SCALE
            for name, output, grad in zip(names, outputs, grads, strict=True)
        }
        given = {at: {part: gradients[at, part] for part in self.parts} for at in layers}
        if "o" in self.parts:
            given = {at: {**parts, "z": self.results[at].detach().to(dtype)} for at, parts in given.items()}
        return {at: Slices(self.given[at].to(dtype), **parts) for at, parts in given.items()}


def loss_slices(
    anatomy: Anatomy, batch: Batch, layers: Sequence[int], edits: Sequence[Edit] = ()
) -> tuple[dict[int, Slices], Tensor]:
    """The loss's gradients at the slices of these layers, and every document's loss [b]."""
    graph = _Graph(anatomy, layers)
    with _tracked(anatomy), edited(anatomy, *edits), graph.watching():
        nll = _losses(anatomy, batch)
        slices = graph.slices(nll.sum() * LOSS_SCALE, layers)
    return slices, nll.detach().double().sum(1).cpu()


def marked_slices(anatomy: Anatomy, batch: Batch, marks: Sequence[Tensor]) -> list[dict[int, Slices]]:
    """For each set of marked tokens [b, t], the gradients of their summed loss at the slices of every layer, W_O among
    them: one pass forward, and one backward per set. No W_O where a norm stands between it and the stream. In float32:
    only their sizes are compared."""
    graph = _Graph(anatomy, range(anatomy.layers), "qkv" if anatomy.blocks[0].ln1_post else "qkvo")
    with _tracked(anatomy), graph.watching():
        nll = _losses(anatomy, batch)
        targets = [(nll * mark.to(nll)).sum() * LOSS_SCALE for mark in marks]
        return [
            graph.slices(target, graph.layers, keep=target is not targets[-1], dtype=torch.float32)
            for target in targets
        ]


def _losses(anatomy: Anatomy, batch: Batch) -> Tensor:
    """Next-token loss [b, t], in the graph; 0 where no token follows."""
    logits = run(anatomy, batch.ids, batch.mask, logits=True).float()
    target = batch.following.to(logits.device)
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), reduction="none", ignore_index=-1
    ).reshape(target.shape)


def result_slices(anatomy: Anatomy, batch: Batch, layers: Sequence[int]) -> dict[int, dict[int, dict[int, Slices]]]:
    """Gradients of a random sum of one head's results, as layer → head → layer where the gradient is read.

    Every head's are read at the slices of its own layer; the first head's at those of the earlier layers, too.
    """
    graph = _Graph(anatomy, layers)
    gradients: dict[int, dict[int, dict[int, Slices]]] = {}
    with _tracked(anatomy), graph.watching():
        run(anatomy, batch.ids, batch.mask)
        draw = torch.Generator().manual_seed(0)
        for at in layers:
            results = graph.results[at]
            weights = torch.randn(results.shape[:2] + results.shape[3:], generator=draw).to(results)
            weights = weights * batch.mask.to(results)[..., None]
            gradients[at] = {}
            for head in range(anatomy.n_heads):
                inputs = [other for other in layers if other == at or (other < at and head == 0)]
                target = (results[:, :, head] * weights).sum() * LOSS_SCALE
                gradients[at][head] = graph.slices(target, inputs, keep=True)
    return gradients
