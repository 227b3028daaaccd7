"""Which axis belongs to which head? A matrix M (heads × axes) of memberships, by one of several constraints.

Ordinary heads are the hard case: every axis belongs to one head alone. The others let an axis belong to several.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from armillary.errors import ArmillaryError, nearest


def block(heads: int, width: int) -> Tensor:
    """Ordinary heads: 1 for the axes of a head's own block, 0 elsewhere.

    >>> block(2, 4).tolist()
    [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    """
    return torch.eye(heads).repeat_interleave(_axes(heads, width), 1)


def triangular(heads: int, width: int) -> Tensor:
    """A head's membership falls linearly to 0 over one block on either side of its centre; columns sum to 1."""
    return (1 - _distance(heads, width)).clamp_min(0)


def raised_sine(heads: int, width: int) -> Tensor:
    """The same with cos² in place of the straight line."""
    distance = _distance(heads, width)
    # cos² of a quarter turn is 4e-15 in float32, not 0, and would count as support.
    return torch.cos(0.5 * math.pi * distance).square() * (distance < 1)


def uniform(heads: int, width: int) -> Tensor:
    """Every head has an equal share of every axis: all heads are one."""
    _axes(heads, width)
    return torch.full((heads, width), 1 / heads)


SHAPES: Mapping[str, Callable[[int, int], Tensor]] = {
    "block": block,
    "triangular": triangular,
    "raised sine": raised_sine,
    "uniform": uniform,
}
LEARNED = ("learned", "free", "mixing")
MEMBERSHIPS = (*SHAPES, "random", *LEARNED)


class Membership(nn.Module):
    """M by name. Fixed: the shapes above, and 'random' (a softmax of Gaussian logits). Learned: 'learned' (a softmax
    over heads with a learned temperature, so that columns stay non-negative and sum to 1), 'free' (any numbers), and
    'mixing' (block ⊗ a free mixture of heads, which gives talking heads). Learned ones begin near ordinary heads.

    `pairs` makes M equal on the two axes that rotary positions turn together: axes i and i + k/2 of each block.
    """

    fixed: Tensor

    def __init__(self, name: str, heads: int, width: int, pairs: bool = False, seed: int = 0) -> None:
        super().__init__()
        if name not in MEMBERSHIPS:
            raise ArmillaryError(f"there is no membership {name!r}; {nearest(name, MEMBERSHIPS)}")
        k = _axes(heads, width)
        if pairs and k % 2:
            raise ArmillaryError(f"rotary positions turn axes in pairs, and blocks of {k} axes have an odd number.")
        self.name, self.heads, self.width, self.pairs = name, heads, width, pairs
        start = torch.Generator().manual_seed(seed)
        if name in SHAPES:
            self.register_buffer("fixed", SHAPES[name](heads, width))
        elif name == "random":
            self.register_buffer("fixed", torch.softmax(2 * torch.randn(heads, width, generator=start), 0))
        elif name == "learned":
            # Nine tenths of an axis stay with its own head at first.
            own = math.log(9.0 * max(1, heads - 1))
            self.logits = nn.Parameter(own * block(heads, width))
            self.log_temperature = nn.Parameter(torch.zeros(()))
        elif name == "free":
            self.matrix = nn.Parameter(block(heads, width))
        else:
            self.mixture = nn.Parameter(torch.eye(heads))

    def forward(self) -> Tensor:
        """[head, axis]."""
        if self.name == "learned":
            matrix = torch.softmax(self.logits / self.log_temperature.exp(), 0)
        elif self.name == "free":
            matrix = self.matrix
        elif self.name == "mixing":
            matrix = self.mixture.repeat_interleave(self.width // self.heads, 1)
        else:
            matrix = self.fixed
        return _paired(matrix, self.heads) if self.pairs else matrix

    @property
    def learns(self) -> bool:
        return self.name in LEARNED

    def extra_repr(self) -> str:
        return f"{self.name}, heads={self.heads}, width={self.width}"


def membership(name: str, heads: int, width: int) -> Tensor:
    """A matrix M by name, as it is before training."""
    return Membership(name, heads, width)().detach()


def _paired(matrix: Tensor, heads: int) -> Tensor:
    halves = matrix.reshape(len(matrix), heads, 2, -1).mean(2, keepdim=True)
    return halves.expand(-1, -1, 2, -1).flatten(1)


def _axes(heads: int, width: int) -> int:
    if heads < 1 or width < 1 or width % heads:
        raise ArmillaryError(f"{heads} heads do not divide a width of {width}; choose another number of heads.")
    return width // heads


def _distance(heads: int, width: int) -> Tensor:
    """[head, axis]: distance of an axis from a head's centre around the circle of axes, in blocks.

    With one or two heads the tails of a head would meet themselves on the other side.
    """
    k = _axes(heads, width)
    if heads < 3:
        raise ArmillaryError(f"overlapping heads need at least 3 heads, got {heads}.")
    centres = (torch.arange(heads) + 0.5) * k
    apart = (torch.arange(width) + 0.5 - centres[:, None]).abs()
    return torch.minimum(apart, width - apart) / k
