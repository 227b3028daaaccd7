"""Symmetriser: can a norm be computed by parallel heads that only exchange messages?

Each of H heads (`blocks`) sees its own block of axes. It knows the mean of its axes, and for `rounds` rounds replaces
it by a weighted mean of those of the heads it hears. It centres its axes by the outcome, does the same with their mean
square, and scales them. If every head hears all others equally, one round gives LayerNorm exactly; if it hears none,
LayerNorm of each block by itself. The scale 1/√v is found by a Newton-like recurrence with learned coefficients.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from armillary.errors import ArmillaryError, nearest
from armillary.lab.parts.norms import in_float32

Messages = Literal["none", "ring", "subset", "all", "learned"]
MESSAGES: tuple[Messages, ...] = get_args(Messages)
# y ← y·(1.5 − 0.5·m·y²) is Newton's step for 1/√m; it converges for 0 < y < √(3/m).
NEWTON = (1.5, 0.5)
# The straight line through 1/√m at m = 1 and m = 4, which is where range reduction brings every variance: within 9 %.
START = (7 / 6, -1 / 6)


class Symmetriser(nn.Module):
    """A norm by heads and messages; `steps` Newton-like steps, coefficients learned if `learned_scale`."""

    mixing: Tensor

    def __init__(
        self,
        width: int,
        blocks: int = 4,
        messages: Messages = "all",
        rounds: int = 1,
        steps: int = 4,
        eps: float = 1e-5,
        learned_scale: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check(width, blocks, messages, rounds, steps)
        self.width, self.blocks, self.messages = width, blocks, messages
        self.rounds, self.steps, self.eps = rounds, steps, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        start = torch.tensor(START, dtype=torch.float32)
        newton = torch.tensor([NEWTON] * steps, dtype=torch.float32)
        if learned_scale:
            self.start, self.newton = nn.Parameter(start), nn.Parameter(newton)
        else:
            self.register_buffer("start", start)
            self.register_buffer("newton", newton)
        weights = mixing_weights(blocks, messages, seed)
        if messages == "learned":
            # Begins as all-to-all; a softmax keeps every head's weights positive with sum 1.
            self.logits = nn.Parameter(torch.zeros(blocks, blocks))
        else:
            self.register_buffer("mixing", weights)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.width:
            raise ValueError(f"this norm has width {self.width}; the input has width {x.shape[-1]}")
        blocks = in_float32(x).reshape(*x.shape[:-1], self.blocks, -1)
        mean = self._exchanged(blocks.mean(-1))
        centred = blocks - mean[..., None]
        square = self._exchanged(centred.square().mean(-1))
        scaled = centred * self.inverse_root(square + self.eps)[..., None]
        return (scaled.flatten(-2) * self.weight + self.bias).to(x.dtype)

    def _exchanged(self, numbers: Tensor) -> Tensor:
        """[…, head] after all rounds of messages."""
        mixing = torch.softmax(self.logits, -1) if self.messages == "learned" else self.mixing
        for _ in range(self.rounds if self.messages != "none" else 0):
            numbers = numbers @ mixing.T.to(numbers.dtype)
        return numbers

    def inverse_root(self, variance: Tensor) -> Tensor:
        """1/√variance by the recurrence. A power of four is taken out first, so that m lies in [1, 4): without it,
        Newton's step diverges for every variance that is three times larger than the start assumes."""
        power = torch.floor(torch.log2(variance.detach().clamp_min(torch.finfo(variance.dtype).tiny)) / 2)
        m = variance * torch.exp2(-2 * power)
        y = self.start[0] + self.start[1] * m
        for a, b in self.newton:
            y = y * (a - b * m * y.square())
        return y * torch.exp2(-power)

    def extra_repr(self) -> str:
        return f"{self.width}, blocks={self.blocks}, messages={self.messages}, rounds={self.rounds}, steps={self.steps}"


def mixing_weights(heads: int, messages: Messages, seed: int = 0) -> Tensor:
    """[head, head heard]: rows of non-negative weights that sum to 1."""
    eye = torch.eye(heads)
    if messages == "none":
        return eye
    if messages == "ring":
        # Distinct neighbours only: with two heads left and right are the same head.
        heard = ((eye + eye.roll(1, 1) + eye.roll(-1, 1)) > 0).float()
    elif messages == "subset":
        # Every head hears itself and about √H others, fixed by the seed.
        others = torch.rand(heads, heads, generator=torch.Generator().manual_seed(seed)).fill_diagonal_(-1.0)
        most = min(heads - 1, round(math.sqrt(heads)))
        heard = eye.scatter(1, others.topk(most, dim=1).indices, 1.0) if most else eye
    else:
        heard = torch.ones(heads, heads)
    return heard / heard.sum(1, keepdim=True)


def _check(width: int, blocks: int, messages: str, rounds: int, steps: int) -> None:
    if messages not in MESSAGES:
        raise ArmillaryError(f"there are no messages {messages!r}; {nearest(messages, MESSAGES)}")
    if blocks < 1 or width % blocks or width // blocks < 2:
        raise ArmillaryError(
            f"{blocks} blocks do not divide a width of {width} into runs of at least two axes; choose another number."
        )
    if rounds < 1 or steps < 0:
        raise ArmillaryError(f"a symmetriser needs at least 1 round and 0 steps, got {rounds} and {steps}.")
