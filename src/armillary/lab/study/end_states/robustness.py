"""What does a trained arm lose when something is taken away? Losses with axes dropped, noise added, heads removed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# Of the axes after every norm.
DROPPED = 0.1
# Standard deviation of the noise over that of the axes it is added to: a signal-to-noise ratio of 10 in power.
NOISE = 0.1**0.5
SEED = 7


def robustness(model: Any, loss: Callable[[], float]) -> dict[str, Any]:
    """Losses beyond the plain one: `dropped`, `noisy`, and `heads`, one number per head."""
    plain = loss()
    norms = [module for name, module in model.named_modules() if name.split(".")[-1].startswith("ln_")]
    outcome: dict[str, Any] = {}
    for name, change in (("dropped", _dropped), ("noisy", _noisy)):
        with _changed(norms, change):
            outcome[name] = loss() - plain
    heads = []
    for block in model.base_model.h:
        writer = getattr(block.attn, "c_proj", None) or block.attn.write
        count = block.attn.num_heads if hasattr(block.attn, "num_heads") else _count(block.attn)
        for head in range(count):
            with _without(writer, head, count):
                heads.append(loss() - plain)
    return {**outcome, "heads": heads}


def _count(attention: Any) -> int:
    heads = attention.heads
    return heads if isinstance(heads, int) else int(getattr(heads, "heads", None) or heads.scores.heads)


def _dropped(z: Tensor, draws: torch.Generator) -> Tensor:
    """The same axes for all tokens, the rest scaled so that the length stays."""
    mask = (torch.rand(z.shape[-1], generator=draws) >= DROPPED).to(z)
    return z * mask * (1 - DROPPED) ** -0.5


def _noisy(z: Tensor, draws: torch.Generator) -> Tensor:
    noise = torch.randn(z.shape[-2:], generator=draws).to(z)
    return z + NOISE * z.std(-1, keepdim=True) * noise


@contextmanager
def _changed(modules: list[nn.Module], change: Callable[[Tensor, torch.Generator], Tensor]) -> Iterator[None]:
    draws = torch.Generator().manual_seed(SEED)
    hooks = [module.register_forward_hook(lambda m, args, out: change(out, draws)) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _without(writer: nn.Module, head: int, heads: int) -> Iterator[None]:
    def silence(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        parts = args[0].clone()
        width = parts.shape[-1] // heads
        parts[..., head * width : (head + 1) * width] = 0
        return (parts,)

    hook = writer.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        hook.remove()
