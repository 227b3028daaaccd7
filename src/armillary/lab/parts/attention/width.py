"""Attention whose heads have any width, and whose projections may see only their own block of the stream's axes."""

import math

import torch
from torch import Tensor, nn

from armillary.errors import ArmillaryError

STD = 0.02


class Projection(nn.Module):
    """x [b, t, d] → [b, t, parts·H·k]. `block_diagonal` lets head h read the h-th of H equal runs of axes alone.

    Ordinary heads cut the result of a full projection, not the stream: only block-diagonal projections tie a head to
    axes of the stream.
    """

    def __init__(self, d: int, heads: int, k: int, parts: int = 3, block_diagonal: bool = False) -> None:
        super().__init__()
        if min(d, heads, k) < 1:
            raise ArmillaryError(f"a projection needs positive sizes; got width {d}, {heads} heads of width {k}.")
        if k > d:
            raise ArmillaryError(
                f"heads of width {k} cannot see more than the {d} axes of the stream; choose a smaller k."
            )
        if block_diagonal and d % heads:
            raise ArmillaryError(f"{heads} heads do not divide a width of {d}; choose another number of heads.")
        self.heads, self.k, self.parts, self.block_diagonal = heads, k, parts, block_diagonal
        reads = d // heads if block_diagonal else d
        # A block that reads fewer axes starts with larger weights, so that its results are as long.
        self.weight = nn.Parameter(torch.randn(heads, reads, parts * k) * STD * math.sqrt(d / reads))
        self.bias = nn.Parameter(torch.zeros(heads * parts * k))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.block_diagonal:
            blocks = x.reshape(*x.shape[:2], self.heads, -1)
            out = torch.einsum("bthi,hio->btho", blocks, self.weight)
        else:
            heads, reads, each = self.weight.shape
            out = (x @ self.weight.transpose(0, 1).reshape(reads, heads * each)).reshape(*x.shape[:2], heads, each)
        return tuple(part.flatten(-2) for part in (out + self.bias.reshape(self.heads, -1)).chunk(self.parts, -1))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, k={self.k}, parts={self.parts}, block_diagonal={self.block_diagonal}"


class WideAttention(nn.Module):
    """Causal self-attention of H heads of width k in a stream of width d; k need not be d/H."""

    no_canonical_form = "heads of another width"

    def __init__(self, d: int, heads: int, k: int, layers: int, block_diagonal: bool = False) -> None:
        super().__init__()
        self.read = Projection(d, heads, k, block_diagonal=block_diagonal)
        self.write = nn.Linear(heads * k, d)
        self.heads = heads
        nn.init.normal_(self.write.weight, std=STD / math.sqrt(2 * layers))
        nn.init.zeros_(self.write.bias)

    def forward(self, hidden_states: Tensor, **kwargs: object) -> tuple[Tensor, None]:
        if kwargs.get("past_key_values") is not None:
            raise ArmillaryError("this attention keeps no cache of keys and values; call with use_cache=False.")
        q, k, v = (part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in self.read(hidden_states))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.write(mixed.transpose(1, 2).flatten(-2)), None


def matched_feed_forward(d: int, inner: int, heads: int, k: int) -> int:
    """Hidden width of a feed-forward that keeps a layer's parameters when heads of width d/H become heads of width k.

    >>> matched_feed_forward(192, 768, 6, 64), matched_feed_forward(192, 768, 1, 192)
    (384, 768)
    """
    left = inner + 2 * d - 2 * heads * k
    if left < 1:
        raise ArmillaryError(
            f"{heads} heads of width {k} have more parameters than a whole layer of width {d} with a feed-forward of "
            f"{inner}; give fewer or narrower heads."
        )
    return left
