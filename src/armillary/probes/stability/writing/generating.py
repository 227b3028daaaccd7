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
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE
from armillary.probes.stability.nudges.row_freeze import RowFreeze, Switch
from armillary.probes.stability.writing.ring_text import Ring, TokenSeries

ANEW = "live, window read anew"
"""Where the cache evicts: the second half of a full window is read anew from the first position instead."""

# Prompts of an arm beside the live one: that a trend is large takes fewer than that there is none.
FEW = 8
GOLDEN = (5**0.5 - 1) / 2
# Rotations whose angles depend on how long the text is: old keys would not fit new queries.
STRETCHED = ("dynamic", "longrope")


def evicts(anatomy: Anatomy) -> bool:
    """Can the oldest keys fall out of the cache while the others stay as they are? Where positions count by their
    differences alone, and no layer has a window of its own."""
    windowed = any(block.attention.window is not None for block in anatomy.blocks)
    positions = anatomy.positions
    return positions.kind == "rotary" and positions.rotary_type not in STRETCHED and not windowed


def arms_of(anatomy: Anatomy, prompts: int) -> dict[str, int]:
    """arm → how many prompts; all of them with norms live. A cache that evicts begins no window after the prompt, which
    is read with norms live: its frozen arm has no first tokens to set apart."""
    other = ANEW if evicts(anatomy) else APART
    return {LIVE: prompts, FROZEN: FEW, other: FEW}


@dataclass(frozen=True, eq=False)
class Generations:
    """arm → the tokens that the model read while it wrote, one series per prompt; the first of each is the prompt's
    last. `starts` are the places of these on the ring."""

    arms: dict[str, TokenSeries]
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
        self.evicts = evicts(bench.anatomy)
        self.anew = self._rows(ANEW) if self.evicts else torch.ones(len(self.names), dtype=torch.bool)

    def write(self, sites: Sequence[str]) -> Generations:
        """Norms are live while the prompt is read, and frozen in their arms from its last token on."""
        anatomy, streams = self.bench.anatomy, {site: list[Tensor]() for site in sites}
        frozen, apart = self._rows(FROZEN, APART), self._rows(APART)
        entropy: list[Tensor] = []
        cache: Any = None
        with still(anatomy.model), ExitStack() as stack:
            stack.enter_context(RowFreeze(self.ring.scales, frozen, apart, self.switch).on(anatomy))
            stack.enter_context(watching(anatomy, {site: _keeping(each) for site, each in streams.items()}))
            for step in range(self.steps):
                if step % self.half == 0:
                    cache = self._slid(cache, step)
                self.switch.on = True
                scores = self._read(cache, step).log_softmax(-1)
                chances = scores.exp()
                entropy.append(-(chances * scores).sum(-1).cpu())
                self.ids = torch.cat((self.ids, self._drawn(chances, step)), 1)
        states = {site: torch.stack(each, 1) for site, each in streams.items()}
        whole = TokenSeries(self.ids[:, self.half : self.half + self.steps], torch.stack(entropy, 1), states)
        return Generations({arm: _part(whole, self._rows(arm)) for arm in self.arms}, self.starts)

    def _rows(self, *arms: str) -> Tensor:
        """[b]: which rows belong to these arms."""
        return torch.tensor([name in arms for name in self.names])

    def _slid(self, cache: Any, step: int) -> Any:
        """A cache of the last half window: what stays when the first half has fallen out, or what is read anew."""
        before = self.ids[:, step : step + self.half]
        if cache is None or self.anew.all():
            return self._begun(before)
        # Rows that are read anew here have live norms.
        self.switch.on = False
        fresh, rows = self._begun(before[self.anew]), self.anew.to(self.bench.anatomy.device)
        for old, new in zip(cache.layers, fresh.layers, strict=True):
            for name in ("keys", "values"):
                tail = getattr(old, name)[:, :, -self.half :].clone()
                tail[rows] = getattr(new, name)
                setattr(old, name, tail)
        return cache

    def _begun(self, ids: Tensor) -> Any:
        """A cache of these tokens [b, t], read from the first position."""
        anatomy = self.bench.anatomy
        self.bench.tick(ids.numel())
        return anatomy.backbone(input_ids=ids.to(anatomy.device), use_cache=True).past_key_values

    def _read(self, cache: Any, step: int) -> Tensor:
        """The prediction [b, v] after the newest token, which is added to the cache."""
        more: dict[str, Any] = {}
        device = self.bench.anatomy.device
        if self.evicts:
            place = torch.where(self.anew, step % self.half, step) + self.half
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


def _part(whole: TokenSeries, rows: Tensor) -> TokenSeries:
    return TokenSeries(whole.ids[rows], whole.entropy[rows], {site: x[rows] for site, x in whole.states.items()})
