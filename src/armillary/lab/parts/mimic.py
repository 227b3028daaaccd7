"""Can a Symmetriser learn a norm from examples, of Gaussian vectors or of a model's own states?

Examples are scaled at random over six decades. What is learned is the recurrence for the scale, the messages, and, on
a model's states, gain and shift. `bench/mimic.py` measures how well, and what it costs a model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.errors import ArmillaryError
from armillary.flow.capture import Watcher, run, still, watching
from armillary.lab.parts.norms import take_affine
from armillary.lab.parts.symmetriser import Symmetriser

Target = Callable[[Tensor], Tensor]
"""What is imitated: rows of width d to rows of width d."""
Source = Callable[[int, torch.Generator], Tensor]
"""Draws so many rows of width d."""
# Adam divides by the gradient's size, and gradients of an error of 1e-5 are smaller than its usual 1e-8.
TINY = 1e-12


@dataclass(frozen=True)
class Lessons:
    """How a norm is imitated: steps of so many rows, whose scales are spread over so many decades around 1."""

    steps: int = 400
    rows: int = 64
    rate: float = 1e-1
    decades: float = 6.0

    def __post_init__(self) -> None:
        if min(self.steps, self.rows) < 1 or self.rate <= 0 or self.decades < 0:
            raise ArmillaryError(f"lessons need at least one step, one row, and a rate above 0; got {self}.")

    def scaled(self, rows: Tensor, draws: torch.Generator) -> Tensor:
        spread = torch.rand(len(rows), 1, generator=draws) - 0.5
        return rows * 10 ** (self.decades * spread)


def gaussian(width: int) -> Source:
    """Gaussian rows with a mean of their own, so that centring matters."""

    def draw(n: int, draws: torch.Generator) -> Tensor:
        return torch.randn(n, width, generator=draws) + torch.randn(n, 1, generator=draws)

    return draw


def rows_of(states: Tensor) -> Source:
    """Rows of a matrix of states [n, d], in units of their typical axis."""
    if states.dim() != 2 or not len(states) or not torch.isfinite(states).all():
        raise ArmillaryError(f"states must be a finite matrix [token, axis] with rows; got {tuple(states.shape)}.")
    states = states / states.square().mean(1).sqrt().median()

    def draw(n: int, draws: torch.Generator) -> Tensor:
        return states[torch.randint(len(states), (n,), generator=draws)]

    return draw


def errors(norm: Target, target: Target, rows: Tensor) -> Tensor:
    """|norm(x) − target(x)| / |target(x)| of every row."""
    wanted = target(rows)
    apart = torch.linalg.vector_norm(norm(rows) - wanted, dim=-1)
    return apart / torch.linalg.vector_norm(wanted, dim=-1).clamp_min(TINY)


def imitate(
    norms: Mapping[str, Symmetriser],
    targets: Mapping[str, Target],
    sources: Mapping[str, Source],
    lessons: Lessons | None = None,
    seed: int = 0,
    gains: bool = False,
) -> None:
    """Train norms in place to be their targets on their sources, all at once; some may share parameters.

    Recurrence and messages learn, or, with `gains`, gain and shift do. Never all at once: the gain could take over a
    factor that the recurrence then lacks in another model.
    """
    lessons = lessons or Lessons()
    draws = torch.Generator().manual_seed(seed)
    affine = ("weight", "bias")
    chosen = {id(p): p for norm in norms.values() for name, p in norm.named_parameters() if (name in affine) == gains}
    optimizer = torch.optim.Adam(chosen.values(), lessons.rate, eps=TINY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lessons.rate, lessons.steps)
    # Gradients may be off where this is called, as in an evaluation.
    with torch.enable_grad():
        for _ in range(lessons.steps):
            optimizer.zero_grad()
            for site, norm in norms.items():
                rows = lessons.scaled(sources[site](lessons.rows, draws), draws)
                torch.autograd.backward(errors(norm, targets[site], rows).square().mean())
            optimizer.step()
            schedule.step()
    for parameter in chosen.values():
        parameter.grad = None


def standard(centred: bool, eps: float) -> Target:
    """LayerNorm without gain and shift, or RMSNorm if not `centred`."""

    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if centred else x
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

    return norm


def mimicked(width: int, seed: int = 0, lessons: Lessons | None = None, **settings: Any) -> Symmetriser:
    """A Symmetriser that began at random and learned the norm's sphere on Gaussian rows; `settings` are its own."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        norm = Symmetriser(width, start="random", **settings)
    imitate({"": norm}, {"": standard(norm.centred, norm.eps)}, {"": gaussian(width)}, lessons, seed=seed + 1)
    return norm


def states_of(anatomy: Anatomy, ids: Tensor) -> dict[str, Tensor]:
    """What every norm of the stream receives while the model reads ids [b, t]: [b·t, d] by site."""
    seen: dict[str, Tensor] = {}

    def keep(site: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            assert given is not None
            seen[site] = given.detach().flatten(0, -2).float().cpu()

        return watch

    with still(anatomy.model), watching(anatomy, {site: keep(site) for site in anatomy.norms}):
        run(anatomy, ids)
    return seen


def mimics(
    anatomy: Anatomy,
    ids: Tensor,
    shared: bool = False,
    lessons: Lessons | None = None,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Symmetriser]:
    """Symmetrisers by site that began at random and learned the model's own norms on what these receive.

    Half of the steps teach recurrence and messages, with the model's gains and shifts; the other half gains and shifts.
    With `shared`, one recurrence and one set of messages serve all sites. `swap(model, norm=…)` takes the outcome.
    """
    states = states_of(anatomy, ids)
    norms: dict[str, Symmetriser] = {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for site, own in anatomy.norms.items():
            norm = Symmetriser(anatomy.d, start="random", eps=own.eps, centred=own.kind == "layernorm", **settings)
            take_affine(norm, own.gain, own.shift)
            if shared and norms:
                norm.share(next(iter(norms.values())))
            norms[site] = norm
    teach(norms, anatomy, states, lessons, seed + 1)
    return norms


def teach(
    norms: Mapping[str, Symmetriser],
    anatomy: Anatomy,
    states: Mapping[str, Tensor],
    lessons: Lessons | None = None,
    seed: int = 0,
) -> None:
    """Train norms in place to be a model's own on its states: first recurrence and messages, then gain and shift."""
    lessons = lessons or Lessons()
    own = {site: _on_cpu(norm) for site, norm in anatomy.norms.items()}
    sources = {site: rows_of(states[site]) for site in norms}
    half = replace(lessons, steps=max(1, lessons.steps // 2))
    for gains in (False, True):
        imitate(norms, own, sources, half, seed=seed + gains, gains=gains)


def transferred(norms: Mapping[str, Symmetriser], anatomy: Anatomy, **settings: Any) -> dict[str, Symmetriser]:
    """Symmetrisers for another model, which take over recurrence and messages of these, unchanged.

    The n-th norm of the other model takes over from the norm at the same share of the depth. Gain, shift and what a
    norm centres are the other model's own.
    """
    given = list(norms.values())
    if not given:
        raise ArmillaryError("there is no Symmetriser to transfer; give what `mimics` returns.")
    new: dict[str, Symmetriser] = {}
    for index, (site, own) in enumerate(anatomy.norms.items()):
        norm = Symmetriser(anatomy.d, eps=own.eps, centred=own.kind == "layernorm", **settings)
        norm.adopt(given[round(index * (len(given) - 1) / max(1, len(anatomy.norms) - 1))])
        take_affine(norm, own.gain, own.shift)
        new[site] = norm
    return new


def _on_cpu(norm: Any) -> Target:
    gain, shift = norm.gain.float().cpu(), None if norm.shift is None else norm.shift.float().cpu()
    core = standard(norm.kind == "layernorm", norm.eps)

    def target(x: Tensor) -> Tensor:
        y = core(x) * gain
        return y if shift is None else y + shift

    return target
