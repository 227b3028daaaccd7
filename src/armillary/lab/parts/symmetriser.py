"""Symmetriser: can a norm be computed by parallel heads that only exchange messages?

Each of H heads (`blocks`) sees its own block of axes. It knows the mean of its axes, and for `rounds` rounds replaces
it by a weighted mean of those of the heads it hears. It centres its axes by the outcome, does the same with their mean
square, and scales them. If every head hears all others equally, one round gives LayerNorm exactly; if it hears none,
LayerNorm of each block by itself. The scale 1/√v is found by a Newton-like recurrence with learned coefficients.

Newton's step converges only from 0 < y < √(3/v), so a power of four is taken out of v first; and y is kept where the
answer can lie, so that no coefficients, however they were learned, can make the output explode.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from armillary.errors import ArmillaryError, nearest
from armillary.lab.parts.norms import in_float32

Messages = Literal["none", "ring", "subset", "all", "learned"]
MESSAGES: tuple[Messages, ...] = get_args(Messages)
Start = Literal["newton", "random"]
# y ← y·(1.5 − 0.5·m·y²) is Newton's step for 1/√m; it converges for 0 < y < √(3/m).
NEWTON = (1.5, 0.5)
# The straight line through 1/√m at m = 1 and m = 4, which is where range reduction brings every variance: within 9 %.
START = (7 / 6, -1 / 6)
# Where y is kept. The answer lies between ½ and 1, so this holds whatever the coefficients: a factor of two beyond.
LOWEST, HIGHEST = 0.25, 2.0


class Symmetriser(nn.Module):
    """A norm by heads and messages; `steps` Newton-like steps, coefficients learned if `learned_scale`.

    `start` 'newton' begins with Newton's own coefficients and equal messages, 'random' with random ones, from torch's
    global generator. Without `centred` no mean is taken out, as in RMSNorm. Without `aligned` the blocks are runs of
    permuted axes, the same for a seed: they fit no head. A model's reader takes it for no known sphere, because what is
    learned may be any.
    """

    geometry = ""

    mixing: Tensor
    order: Tensor

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
        start: Start = "newton",
        centred: bool = True,
        aligned: bool = True,
    ) -> None:
        super().__init__()
        _check(width, blocks, messages, rounds, steps, start)
        self.width, self.blocks, self.messages, self.centred, self.aligned = width, blocks, messages, centred, aligned
        self.rounds, self.steps, self.eps = rounds, steps, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        first, newton, logits = _coefficients(start, steps, blocks)
        if learned_scale:
            self.start, self.newton = nn.Parameter(first), nn.Parameter(newton)
        else:
            self.register_buffer("start", first)
            self.register_buffer("newton", newton)
        if messages == "learned":
            # A softmax keeps every head's weights positive with sum 1.
            self.logits = nn.Parameter(logits)
        else:
            self.register_buffer("mixing", mixing_weights(blocks, messages, seed))
        if not aligned:
            self.register_buffer("order", torch.randperm(width, generator=torch.Generator().manual_seed(seed)))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.width:
            raise ValueError(f"this norm has width {self.width}; the input has width {x.shape[-1]}")
        # Messages are matrix products, which autocast would round to half precision.
        with torch.autocast(x.device.type, enabled=False):
            wide = in_float32(x)
            blocks = (wide if self.aligned else wide[..., self.order]).reshape(*x.shape[:-1], self.blocks, -1)
            if self.centred:
                blocks = blocks - self._exchanged(blocks.mean(-1))[..., None]
            square = self._exchanged(blocks.square().mean(-1))
            scaled = (blocks * self.inverse_root(square + self.eps)[..., None]).flatten(-2)
            if not self.aligned:
                scaled = scaled[..., self.order.argsort()]
            return (scaled * self.weight + self.bias).to(x.dtype)

    def _exchanged(self, numbers: Tensor) -> Tensor:
        """[…, head] after all rounds of messages."""
        mixing = self.heard()
        for _ in range(self.rounds if self.messages != "none" else 0):
            numbers = numbers @ mixing.T.to(numbers.dtype)
        return numbers

    def heard(self) -> Tensor:
        """[head, head heard]: the weights of one round of messages."""
        return torch.softmax(self.logits, -1) if self.messages == "learned" else self.mixing

    def inverse_root(self, variance: Tensor) -> Tensor:
        """1/√variance by the recurrence. A power of four is taken out first, so that m lies in [1, 4): without it,
        Newton's step diverges for every variance that is three times larger than the start assumes. A variance that
        is infinite or NaN gives NaN."""
        power = torch.floor(torch.log2(variance.detach().clamp_min(torch.finfo(variance.dtype).tiny)) / 2)
        m = variance * torch.exp2(-2 * power)
        y = _clamped(self.start[0] + self.start[1] * m)
        for a, b in self.newton:
            y = _clamped(y * (a - b * m * y.square()))
        return y * torch.exp2(-power)

    def learned(self) -> dict[str, Tensor]:
        """The recurrence and the messages, by name: what does not depend on the width."""
        names = ("start", "newton", *(["logits"] if self.messages == "learned" else []))
        return {name: getattr(self, name) for name in names}

    def share(self, other: "Symmetriser") -> None:
        """Use another's recurrence and messages from now on; gain and shift stay its own."""
        self._must_fit(other)
        for name, value in other.learned().items():
            setattr(self, name, value)

    def adopt(self, other: "Symmetriser") -> None:
        """Copy another's recurrence and messages. Its width may differ, its blocks and steps may not."""
        self._must_fit(other)
        with torch.no_grad():
            for name, value in other.learned().items():
                getattr(self, name).copy_(value)

    def _must_fit(self, other: "Symmetriser") -> None:
        shapes, other_shapes = ({name: tuple(v.shape) for name, v in norm.learned().items()} for norm in (self, other))
        if shapes != other_shapes:
            raise ArmillaryError(
                f"a symmetriser with {shapes} cannot take over {other_shapes}; both need the same messages, blocks "
                "and steps."
            )

    def extra_repr(self) -> str:
        return f"{self.width}, blocks={self.blocks}, messages={self.messages}, rounds={self.rounds}, steps={self.steps}"


def _clamped(y: Tensor) -> Tensor:
    """y between LOWEST and HIGHEST. Its gradient passes as if nothing had been cut: a recurrence that is outside for
    every variance could not learn its way back otherwise."""
    return y.clamp(LOWEST, HIGHEST).detach() + (y - y.detach())


def operations(norm: Symmetriser) -> int:
    """Multiplications and additions per token; a message is one multiply-add, an axis five: mean, centre, square,
    scale, gain and shift. LayerNorm has the five alone.

    >>> operations(Symmetriser(256, 4, "none")), operations(Symmetriser(256, 4, "all"))
    (1352, 1384)
    """
    off = int((norm.heard() > 0).sum())
    messages = 0 if norm.messages == "none" else (1 + norm.centred) * norm.rounds * off
    recurrence = norm.blocks * (2 + 4 * norm.steps)
    return (5 if norm.centred else 3) * norm.width + messages + recurrence


def _coefficients(start: Start, steps: int, blocks: int) -> tuple[Tensor, Tensor, Tensor]:
    """The recurrence's first value and steps, and the logits of learned messages."""
    if start == "newton":
        newton = torch.tensor([NEWTON] * steps, dtype=torch.float32).reshape(steps, 2)
        return torch.tensor(START, dtype=torch.float32), newton, torch.zeros(blocks, blocks)
    # So far from Newton's that the scale is wrong by a third, so near that some rows are within LOWEST and HIGHEST.
    first = torch.tensor(START) + torch.tensor([0.4, 0.1]) * (2 * torch.rand(2) - 1)
    newton = torch.tensor(NEWTON) + torch.tensor([0.5, 0.3]) * (2 * torch.rand(steps, 2) - 1)
    return first, newton, torch.randn(blocks, blocks)


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


def _check(width: int, blocks: int, messages: str, rounds: int, steps: int, start: str) -> None:
    if messages not in MESSAGES:
        raise ArmillaryError(f"there are no messages {messages!r}; {nearest(messages, MESSAGES)}")
    if blocks < 1 or width % blocks or width // blocks < 2:
        raise ArmillaryError(
            f"{blocks} blocks do not divide a width of {width} into runs of at least two axes; choose another number."
        )
    if rounds < 1 or steps < 0:
        raise ArmillaryError(f"a symmetriser needs at least 1 round and 0 steps, got {rounds} and {steps}.")
    if start not in get_args(Start):
        raise ArmillaryError(f"there is no start {start!r}; {nearest(start, get_args(Start))}")
