"""Which library multiplies float32 matrices? On AMD processors with AVX-512, oneDNN instead of MKL.

MKL keeps to narrower instructions on processors that are not Intel's. Measured on an EPYC, one thread: 110 GFLOP/s by
MKL, 250 by oneDNN, which PyTorch contains as well. The choice follows from the processor alone, not from a race, so a
run that is repeated gives the same bits. Half precision and GPUs are left alone.
"""

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# Below either, what a call of oneDNN costs (20 µs) is more than it saves.
ROWS_LEAST, PRODUCTS_LEAST = 8, 1 << 21


def wide(x: Tensor) -> Tensor:
    """float32 or better: weights of a float32 model are then used as they lie, without a copy."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


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


def times(x: Tensor, rows: Tensor) -> Tensor:
    """x · rowsᵀ for x [..., d] and rows [n, d], by the faster library.

    >>> times(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 7.]])
    """
    same = rows.dtype is torch.float32 and rows.device == x.device
    if same and prefers_onednn() and torch.backends.mkldnn.enabled and pays(x, rows, None):
        return fast_product(x, rows, None)
    return x @ rows.mT


def fast_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
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


def pays(x: Any, weight: Tensor, bias: Tensor | None) -> bool:
    """Is it worth a call, and allowed? No gradient of a weight would be computed."""
    plain = type(x) is Tensor and x.dtype is torch.float32 and x.device.type == "cpu"
    learns = weight.requires_grad or (bias is not None and bias.requires_grad)
    if not plain or (learns and torch.is_grad_enabled()):
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= ROWS_LEAST and rows * weight.numel() >= PRODUCTS_LEAST
