"""Can norms alone compute what no linear map can? XOR, parity and a circle, with and without activation and norm.

A network of linear maps and a constant scale is one linear map: XOR, parity of three bits and the inside of a circle
are beyond it, whatever it learns, so its accuracy has a bound that is known. What a norm adds to the same maps is then
seen without any statistics of text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from armillary.errors import ArmillaryError, nearest
from armillary.lab.parts.activations import Activation
from armillary.lab.parts.norms import new_norm

Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def parity(bits: int) -> Draw:
    """All corners of a cube, −1 or 1; the answer is whether the number of ones is odd. Two bits are XOR."""
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=bits)))
    answers = ((corners > 0).sum(1) % 2).float()

    def draw(n: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        return corners, answers

    return draw


def circle(n: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Gaussian points of the plane; the answer is whether a point lies inside the circle that holds half of them."""
    points = torch.randn(n, 2, generator=draws)
    return points, (points.square().sum(1) < 2 * torch.log(torch.tensor(2.0))).float()


TASKS: Mapping[str, tuple[Draw, int, float]] = {
    # Draws, inputs, and the most that a linear threshold gets right: 3 of 4 corners, 6 of 8, and of Gaussian points
    # those of the half-plane x > 0.965, whose edge meets the circle where half of the edge lies inside.
    "xor": (parity(2), 2, 0.75),
    "parity of 3": (parity(3), 3, 0.75),
    "circle": (circle, 2, 0.6332),
}


@dataclass(frozen=True)
class Network:
    """Layers of a linear map, a norm and an activation, then a linear answer."""

    norm: str = "layernorm"
    activation: str = "identity"
    width: int = 16
    layers: int = 2

    def build(self, inputs: int, seed: int) -> nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            parts: list[nn.Module] = []
            for layer in range(self.layers):
                parts += [nn.Linear(inputs if layer == 0 else self.width, self.width), new_norm(self.norm, self.width)]
                parts.append(Activation(self.activation))
            return nn.Sequential(*parts, nn.Linear(self.width, 1))


@dataclass(frozen=True)
class Lesson:
    """How a network learns a task."""

    steps: int = 2000
    rows: int = 256
    rate: float = 3e-2
    examined: int = 4000

    def accuracy(self, task: str, network: Network, seed: int = 0) -> float:
        """Share of right answers after training, on fresh points where points are drawn."""
        if task not in TASKS:
            raise ArmillaryError(f"there is no task {task!r}; {nearest(task, TASKS)}")
        draw, inputs, _ = TASKS[task]
        draws = torch.Generator().manual_seed(seed)
        model = network.build(inputs, seed)
        optimizer = torch.optim.Adam(model.parameters(), self.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, self.steps)
        for _ in range(self.steps):
            x, y = draw(self.rows, draws)
            optimizer.zero_grad()
            torch.autograd.backward(binary_cross_entropy_with_logits(model(x)[:, 0], y))
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            x, y = draw(self.examined, draws)
            return float(((model(x)[:, 0] > 0) == (y > 0)).float().mean())
