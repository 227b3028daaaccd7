"""Lets a model write many windows of text by itself, in several arms at once, while the window slides by half."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, still, watching
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.growth import APART, FROZEN, LIVE
from armillary.probes.stability.ring_text import Ring, Tokens
from armillary.probes.stability.row_freeze import RowFreeze, Switch

EVICTED = "live, old keys kept"
"""The window's first half falls out of the cache, and the keys and values of the second stay as they were."""


# Prompts of an arm with frozen norms: that a trend is large takes fewer than that there is none.
FEW = 8
GOLDEN = (5**0.5 - 1) / 2


def arms_of(anatomy: Anatomy, prompts: int) -> dict[str, int]:
    """arm → how many prompts; all of them with norms live. Keys can stay where positions count by their differences
    alone, and where no layer has a window of its own."""
    windowed = any(block.attention.window is not None for block in anatomy.blocks)
    keeps = {EVICTED: FEW} if anatomy.positions.kind == "rotary" and not windowed else {}
    return {LIVE: prompts, FROZEN: FEW, APART: FEW, **keeps}


@dataclass(frozen=True, eq=False)
class Generations:
    """arm → the tokens that the model read while it wrote, one series per prompt; the first of each is the prompt's
    last. `starts` are the places of these on the ring."""

    arms: dict[str, Tokens]
    starts: tuple[int, ...]


class Writer:
    """One batch of all arms' prompts: every arm has the first few. A prompt's random numbers are those of all arms."""

    def __init__(self, bench: Bench, ring: Ring, half: int, arms: Mapping[str, int], steps: int) -> None:
        self.bench, self.ring, self.half, self.steps, self.arms = bench, ring, half, steps, arms
        blocks, prompts = len(ring.ids) // half, max(arms.values())
        # In the order of a golden spiral, so that the first few lie as far apart as all of them.
        places = [int(blocks * (i * GOLDEN % 1)) for i in range(prompts)]
        self.starts = tuple(half * place for place in places)
        each = torch.stack([ring.stretch(start + 1, -half - 1) for start in self.starts])
        chosen = torch.cat([torch.arange(count) for count in arms.values()])
        self.ids, self.names = each[chosen], [arm for arm, count in arms.items() for _ in range(count)]
        draws = torch.tensor(np.random.default_rng([bench.seed, 73]).random((steps, prompts)))
        self.draws = draws[:, chosen]
        self.switch = Switch()

    def write(self, sites: Sequence[str]) -> Generations:
        """Norms are live while the prompt is read, and frozen in their arms from its last token on."""
        anatomy, kept = self.bench.anatomy, {site: list[Tensor]() for site in sites}
        frozen, apart = self._rows(FROZEN, APART), self._rows(APART)
        entropy: list[Tensor] = []
        cache: Any = None
        with still(anatomy.model), ExitStack() as stack:
            stack.enter_context(RowFreeze(self.ring.scales, frozen, apart, self.switch).on(anatomy))
            stack.enter_context(watching(anatomy, {site: _keeping(each) for site, each in kept.items()}))
            for step in range(self.steps):
                if step % self.half == 0:
                    cache = self._slid(cache, step)
                self.switch.on = True
                scores = self._read(cache, step).log_softmax(-1)
                chances = scores.exp()
                entropy.append(-(chances * scores).sum(-1).cpu())
                self.ids = torch.cat((self.ids, self._drawn(chances, step)), 1)
        states = {site: torch.stack(each, 1) for site, each in kept.items()}
        whole = Tokens(self.ids[:, self.half : self.half + self.steps], torch.stack(entropy, 1), states)
        return Generations({arm: _part(whole, self._rows(arm)) for arm in self.arms}, self.starts)

    def _rows(self, *arms: str) -> Tensor:
        """[b]: which rows belong to these arms."""
        return torch.tensor([name in arms for name in self.names])

    def _slid(self, cache: Any, step: int) -> Any:
        """A cache of the last half window, read anew from its first position, as the first half has fallen out."""
        anatomy, before = self.bench.anatomy, self.ids[:, step : step + self.half].to(self.bench.anatomy.device)
        fresh = anatomy.backbone(input_ids=before, use_cache=True).past_key_values
        self.bench.tick(before.numel())
        if cache is not None and EVICTED in self.arms:
            rows = self._rows(EVICTED).to(anatomy.device)
            for new, old in zip(fresh.layers, cache.layers, strict=True):
                new.keys[rows] = old.keys[rows, :, -self.half :]
                new.values[rows] = old.values[rows, :, -self.half :]
        return fresh

    def _read(self, cache: Any, step: int) -> Tensor:
        """The prediction [b, v] after the newest token, which is added to the cache."""
        more: dict[str, Any] = {}
        device = self.bench.anatomy.device
        if EVICTED in self.arms:
            place = torch.where(self._rows(EVICTED), step, step % self.half) + self.half
            more["position_ids"] = place[:, None].to(device)
        ids = self.ids[:, -1:].to(device)
        output = self.bench.anatomy.model(input_ids=ids, past_key_values=cache, use_cache=True, **more)
        self.bench.tick(len(ids))
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def _drawn(self, chances: Tensor, step: int) -> Tensor:
        """One token per row, drawn at temperature 1; from all tokens alike where a row has overflowed."""
        sums = torch.nan_to_num(chances, nan=1.0).cumsum(-1, dtype=torch.float64).cpu()
        drawn = torch.searchsorted(sums, self.draws[step][:, None] * sums[:, -1:])
        return drawn.clamp_max(sums.shape[1] - 1)


def _keeping(states: list[Tensor]) -> Watcher:
    def see(given: Tensor | None, value: Tensor) -> None:
        assert given is not None, "a norm takes a tensor"
        # A longer pass reads what was written before.
        if given.shape[1] == 1:
            states.append(given[:, 0].detach().float().cpu())

    return see


def _part(whole: Tokens, rows: Tensor) -> Tokens:
    return Tokens(whole.ids[rows], whole.entropy[rows], {site: x[rows] for site, x in whole.states.items()})
