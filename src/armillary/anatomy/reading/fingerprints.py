"""Which model is this? Short hashes of its weights and its config."""

import hashlib
import json
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


def fingerprint(model: nn.Module) -> tuple[str, str]:
    """A short hash of the weights, and the name of one that contains NaN or infinity ('' if none does)."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        # The sum is one pass without a temporary; only where it is not finite is each value looked at.
        total = parameter.detach().sum(dtype=torch.float32)
        if not torch.isfinite(total) and not torch.isfinite(parameter).all():
            return "", name
        some = parameter.detach().flatten()[:: max(1, parameter.numel() // 97)].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)} {[float(v).hex() for v in some]}".encode())
    return digest.hexdigest()[:16], ""
