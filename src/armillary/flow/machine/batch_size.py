"""How many tokens does a model read at once? By the device that it is on."""

import torch

from armillary.anatomy import Anatomy
from armillary.flow import tokens as texts

# On an H200 GPT-2 small took 4.3 times as long with 2 048 tokens in a batch as with 16 384; with 65 536 it took twice
# as long per token again, and a Llama of 135M 1.15 times.
GPU_TOKENS = 16_384
# Of the device's memory, for what a batch needs beside the weights and the states.
SHARE = 1 / 8


def batch_tokens(anatomy: Anatomy) -> int:
    """How many tokens a batch of the pass has: by the kind of device, its memory and the model's width.

    By the memory that the device has, not by what is free: a text's batches must not depend on who else is there.
    """
    if anatomy.device.type != "cuda":
        return texts.BATCH_TOKENS
    room = SHARE * torch.cuda.get_device_properties(anatomy.device).total_memory
    return fitting(room, row_bytes(anatomy))


def fitting(room: float, each: int) -> int:
    """The most tokens of `each` bytes that fit, halved from `GPU_TOKENS` down to a CPU's number.

    >>> fitting(room=1e9, each=100_000)
    8192
    """
    tokens = GPU_TOKENS
    while tokens > texts.BATCH_TOKENS and tokens * each > room:
        tokens //= 2
    return tokens


def row_bytes(anatomy: Anatomy) -> int:
    """What a token takes while a batch passes, roughly: a layer's activations, rows in float32, numbers per site."""
    d, wide = anatomy.d, 4 * anatomy.d if anatomy.opaque else anatomy.m
    return torch.finfo(anatomy.dtype).bits // 8 * (8 * d + 4 * wide) + 4 * 16 * d + 400 * len(anatomy.norms)
