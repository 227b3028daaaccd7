"""Which library multiplies a model's float32 matrices? On AMD processors with AVX-512, oneDNN instead of MKL.

MKL keeps to narrower instructions on processors that are not Intel's. Measured on an EPYC, one thread: 110 GFLOP/s by
MKL, 250 by oneDNN, which PyTorch contains as well. The choice follows from the processor alone, not from a race, so a
run that is repeated gives the same bits. Half precision and GPUs are left alone.
"""

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

# Below either, what a call of oneDNN costs (20 µs) is more than it saves.
ROWS_LEAST, PRODUCTS_LEAST = 8, 1 << 21


@cache
def prefers_onednn() -> bool:
    """Is oneDNN the faster library on this processor, and at hand?"""
    there = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    wide = torch._C.has_mkl and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return there and wide and _is_amd()


def _is_amd() -> bool:
    cores = Path("/proc/cpuinfo")
    name = cores.read_text(errors="replace").split("\n\n")[0] if cores.is_file() else platform.processor()
    return "AuthenticAMD" in name


@contextmanager
def fast_products(model: nn.Module) -> Iterator[None]:
    """Inside, the model's linear maps of float32 on the CPU are computed by the faster library; outside, as ever.

    Equal to rounding. No weight is changed or copied. Where a gradient of a weight is asked for, the module's own code
    runs.
    """
    changed, first = [], next(model.parameters(), None)
    on_cpu = first is not None and first.device.type == "cpu"
    if on_cpu and prefers_onednn() and torch.backends.mkldnn.enabled:
        for module in model.modules():
            forward = _KINDS.get(type(module))
            # A module with a forward of its own is somebody else's: offloaded, patched, or changed already.
            if forward is not None and "forward" not in vars(module) and _suits(module):
                module.forward = partial(forward, module)
                changed.append(module)
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def _suits(module: nn.Module) -> bool:
    weight: Any = module.weight
    return weight.dtype is torch.float32 and weight.device.type == "cpu" and type(weight) in (Tensor, nn.Parameter)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b by oneDNN, for x [..., in] and W [out, in], with a gradient for x alone."""
    if torch.is_grad_enabled() and x.requires_grad:
        result: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return _computed(x, weight, bias)


def _computed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


class _Product(torch.autograd.Function):
    """For autograd, which does not know the operation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return _computed(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return _computed(gradient, weight.T, None), None, None


def _pays(x: Any, weight: Tensor, bias: Tensor | None) -> bool:
    plain = type(x) is Tensor and x.dtype is torch.float32 and x.device.type == "cpu"
    learns = weight.requires_grad or (bias is not None and bias.requires_grad)
    if not plain or (learns and torch.is_grad_enabled()):
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= ROWS_LEAST and rows * weight.numel() >= PRODUCTS_LEAST


def _linear(module: nn.Linear, input: Tensor) -> Tensor:
    if not _pays(input, module.weight, module.bias):
        return nn.Linear.forward(module, input)
    return product(input, module.weight, module.bias)


def _conv1d(module: Conv1D, x: Tensor) -> Tensor:
    if not _pays(x, module.weight, module.bias):
        result: Tensor = Conv1D.forward(module, x)
        return result
    return product(x, module.weight.T, module.bias)


_KINDS: dict[type, Callable[..., Tensor]] = {nn.Linear: _linear, Conv1D: _conv1d}
