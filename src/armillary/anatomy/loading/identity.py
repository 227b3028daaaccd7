"""Which model is it? Hashes of its weights and config, and a first look at whether the weights can be measured."""

import hashlib
import json
import math
from typing import Any

import torch
from torch import Tensor, nn

# What a config says of where it came from, not of what the model computes.
_ASIDE = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "_attn_implementation")
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(model: Any) -> str:
    """A short hash of every weight and of the config.

    The bits of a weight are added as integers, which gives the same sum in any order, on any device.
    """
    config = {key: value for key, value in model.config.to_dict().items() if key not in _ASIDE}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode("utf-8", "backslashreplace"))
    for name, value in model.state_dict().items():
        digest.update(f"{name} {_sum(value)}".encode())
    return digest.hexdigest()[:16]


def _sum(value: Any) -> str:
    """A weight's shape, type and bits; of packed weights, which are tuples, those of each part."""
    if isinstance(value, tuple | list):
        return " ".join(map(_sum, value))
    if not isinstance(value, Tensor):
        return str(value)
    bits = (value.int_repr() if value.is_quantized else value).detach().contiguous().flatten()
    total = int(bits.view(_BITS[bits.element_size()]).sum(dtype=torch.int64)) if bits.numel() else 0
    return f"{tuple(value.shape)} {value.dtype} {total}"


# The square of a product of two weights must be finite in float32, in which lengths are measured: a norm squares what
# one matrix makes of another's output.
LARGEST = torch.finfo(torch.float32).max ** 0.25


def _largest(weight: Tensor) -> float:
    """The largest magnitude, in one pass without a temporary; NaN where one is."""
    if not weight.numel():
        return 0.0
    # Eight bits hold no large number, and torch has no extremes of them.
    low, high = torch.aminmax(weight.float() if weight.is_floating_point() and weight.itemsize == 1 else weight)
    return max(-float(low), float(high)) if low == low else math.nan


def weight_peaks(model: nn.Module) -> dict[str, float]:
    """Weight → largest magnitude; NaN where it holds one."""
    return {name: _largest(parameter.detach()) for name, parameter in model.named_parameters()}


def fingerprint(model: nn.Module) -> tuple[str, str]:
    """A short hash of the weights, and what is wrong with one of them ('' if none is)."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        largest = _largest(parameter.detach())
        if not math.isfinite(largest):
            return "", f"{name} contains NaN or infinity"
        if largest > LARGEST:
            return "", f"{name} contains {largest:.1e}, whose products overflow in float32"
        some = parameter.detach().flatten()[:: max(1, parameter.numel() // 97)].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)} {[float(v).hex() for v in some]}".encode())
    return digest.hexdigest()[:16], ""
