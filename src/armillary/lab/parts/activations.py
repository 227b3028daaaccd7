"""Which activations are compared? Some destroy information (two inputs, one output), others can be inverted."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from armillary.errors import ArmillaryError, nearest

# Below 1, so that x + a·sin x rises everywhere and can be inverted.
WAVE = 0.9


def relu2(x: Tensor) -> Tensor:
    return functional.relu(x).square()


def leaky(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.5)


def leaky_tenth(x: Tensor) -> Tensor:
    """Leaky ReLU with slope 0.1: it can be inverted, and bends nearly as ReLU does."""
    return functional.leaky_relu(x, 0.1)


def wave(x: Tensor) -> Tensor:
    """x + a·sin x: as far from a straight line as a function that can be inverted."""
    return x + WAVE * torch.sin(x)


def signed_root(x: Tensor) -> Tensor:
    """2·sign(x)·(√(1 + |x|) − 1): slope 1 at 0, grows as a root."""
    return 2 * torch.sign(x) * (torch.sqrt(1 + x.abs()) - 1)


def gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": gelu,
    "relu2": relu2,
    "leaky": leaky,
    "leaky 0.1": leaky_tenth,
    "wave": wave,
    "signed root": signed_root,
    "absolute": torch.abs,
    "identity": identity,
}
# What an activation maps to one number it destroys: half of the line for ReLU, the sign for |x|.
LOSSY = frozenset({"relu", "gelu", "relu2", "absolute"})


class Activation(nn.Module):
    """An activation by name. `activation_name` tells a model's reader that this is the block's activation."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in ACTIVATIONS:
            raise ArmillaryError(f"there is no activation {name!r}; {nearest(name, ACTIVATIONS)}")
        self.activation_name, self._function = name, ACTIVATIONS[name]

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)

    def extra_repr(self) -> str:
        return self.activation_name
