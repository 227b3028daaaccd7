"""What is computed in one read of a model's rows on a GPU? Triton kernels, and the same in plain torch.

`kernels` is imported where Triton is there and the rows are on a GPU; everywhere else the plain form computes the same
numbers. Nothing here waits for the device.
"""

import importlib.util
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Tests ask for the batched path of GPUs on the CPU.
EVERYWHERE = False


def batched(device: "torch.device") -> bool:
    """Are the statistics of all sites of a batch computed together, once the batch has passed? On GPUs, where many
    small kernels cost more than the arithmetic; on a CPU rows are read while they are in its caches."""
    return device.type == "cuda" or EVERYWHERE


def fused(rows: "torch.Tensor") -> bool:
    """Can a kernel read these rows?"""
    import torch

    known = rows.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return known and has_triton() and (rows.device.type == "cuda" or interpreted())


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def interpreted() -> bool:
    """Does Triton run on the CPU, for tests?"""
    return os.environ.get("TRITON_INTERPRET") == "1"
