"""Feed-forward layers with a gate: one projection through the activation multiplies another."""

import math
from typing import Any

from torch import Tensor, nn

from armillary.errors import ArmillaryError
from armillary.lab.parts.attention.width import STD


class GatedFeedForward(nn.Module):
    """(act(x W_gate + b_gate) ⊙ (x W_in + b_in)) W_out + b_out, as SwiGLU with any activation (arXiv 2002.05202)."""

    no_canonical_form = "feed-forward layers with a gate"

    def __init__(self, d: int, inner: int, layers: int, act: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        if min(d, inner, layers) < 1:
            raise ArmillaryError(
                f"a feed-forward needs positive sizes; got width {d}, {inner} hidden, {layers} layers."
            )
        self.gate, self.up, self.out = nn.Linear(d, inner), nn.Linear(d, inner), nn.Linear(inner, d)
        self.act, self.dropout = act, nn.Dropout(dropout)
        for layer in (self.gate, self.up, self.out):
            nn.init.normal_(layer.weight, std=STD)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.out.weight, std=STD / math.sqrt(2 * layers))

    def forward(self, x: Tensor) -> Tensor:
        written: Tensor = self.dropout(self.out(self.act(self.gate(x)) * self.up(x)))
        return written


def matched_gate(inner: int) -> int:
    """Hidden width of a gated feed-forward with as many parameters as a plain one of width `inner`.

    >>> matched_gate(768)
    512
    """
    return max(1, round(2 * inner / 3))


def gated(old: Any, d: int, layers: int) -> GatedFeedForward:
    """In place of a GPT-2's feed-forward layer, with its activation and as many parameters."""
    return GatedFeedForward(d, matched_gate(old.c_fc.weight.shape[1]), layers, old.act, old.dropout.p)
