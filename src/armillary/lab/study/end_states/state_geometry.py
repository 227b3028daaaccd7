"""What does each arm do to the geometry? Read at the norms of a trained end state, whatever the norms compute.

A survey reads models that its tables describe, and many arms are none of them. These numbers need only the vectors
that enter and leave each norm, so they are the same for every arm.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from armillary.errors import OutputError
from armillary.results.disk.files import read_bytes

# Windows of held-out text.
ROWS = 32
# Pairs of tokens for a mean cosine: each with the one this many places on.
SHIFT = 37


def keep(model: nn.Module, path: Path) -> None:
    """Weights and buffers in float16; what is tied is stored once."""
    from safetensors.torch import save_file

    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            small = tensor.half() if tensor.is_floating_point() else tensor
            weights[name] = small.cpu().contiguous().clone()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, path)


def restore(model: nn.Module, path: Path) -> None:
    """Put a kept end state into a model of the same arm and size."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    own = model.state_dict()
    try:
        stored = load(read_bytes(path, most=None))
        for name, tensor in stored.items():
            if own[name].shape != tensor.shape:
                raise ValueError(f"{name} is {list(tensor.shape)} in place of {list(own[name].shape)}")
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        why = f"it holds {error}, which the arm has not" if isinstance(error, KeyError) else error
        raise OutputError(f"{path} is damaged ({why}); run the study again.") from error
    with torch.no_grad():
        for name, tensor in stored.items():
            own[name].copy_(tensor)


def geometry(model: Any, windows: Tensor) -> dict[str, float]:
    """Mean over all norms of the model, of tokens after the first of each window."""
    sites: list[dict[str, float]] = []
    with _watched(model) as passed, torch.no_grad():
        model(input_ids=windows, use_cache=False)
    for before, after in passed:
        sites.append(reading(before, after))
    means = {name: float(torch.tensor([site[name] for site in sites]).mean()) for name in sites[0]}
    return {**means, "last length": sites[-1]["length"]}


def reading(before: Tensor, after: Tensor) -> dict[str, float]:
    """Numbers of one norm from the vectors that enter and leave it, [token, axis]."""
    x, y = before.double(), after.double()
    lengths, out = x.norm(dim=-1), y.norm(dim=-1)
    z = x / lengths[:, None].clamp_min(1e-12)
    return {
        "length": float(lengths.mean()),
        "spread of lengths": float(lengths.std() / lengths.mean()),
        "spread after the norm": float(out.std() / out.mean()),
        "mean cosine": float((z * z.roll(SHIFT, 0)).sum(-1).mean()),
        "effective rank": effective_rank(z),
        "effective rank after": effective_rank(y / out[:, None].clamp_min(1e-12)),
        "top axis": float((y.var(0) / y.var(0).sum()).max()),
    }


def effective_rank(z: Tensor) -> float:
    """Participation ratio of the covariance's eigenvalues: (Σλ)² / Σλ².

    >>> round(effective_rank(torch.eye(4).repeat(5, 1).double()), 6)
    3.0
    """
    values = torch.linalg.eigvalsh(torch.cov(z.T)).clamp_min(0)
    total = float(values.square().sum())
    return float(values.sum()) ** 2 / total if total else math.nan


@contextmanager
def _watched(model: Any) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """What enters and leaves every norm of a GPT-2 shape, in order, without first positions."""
    passed: list[tuple[Tensor, Tensor]] = []
    norms = [module for name, module in model.named_modules() if name.split(".")[-1].startswith("ln_")]

    def watch(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        passed.append((args[0][:, 1:].flatten(0, 1), out[:, 1:].flatten(0, 1)))

    hooks = [module.register_forward_hook(watch) for module in norms]
    try:
        yield passed
    finally:
        for hook in hooks:
            hook.remove()
