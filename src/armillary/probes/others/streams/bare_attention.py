"""What is left of the differences between tokens if skips or feed-forwards are taken away?"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import Change, changing
from armillary.probes.machinery import Floats
from armillary.probes.machinery.bench import Bench

WHOLE, SKIPS, FORWARDS, ALONE = "whole", "attention with skips", "attention and feed-forwards", "attention alone"
WAYS = {WHOLE: (True, True), SKIPS: (True, False), FORWARDS: (False, True), ALONE: (False, False)}
"""Way → are there skips, and feed-forwards?"""


@dataclass(frozen=True)
class Bare:
    """Run the model without its skips, without its feed-forwards, or without both. Norms stay."""

    skips: bool
    forwards: bool
    example: ClassVar[str] = "Bare(skips=False, forwards=False)"

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        with ExitStack() as stack:
            for layer in range(anatomy.layers):
                for site, change in self._changes(anatomy, layer).items():
                    stack.enter_context(changing(anatomy, site, change))
            yield

    def _changes(self, anatomy: Anatomy, layer: int) -> dict[str, Change]:
        block, changes = anatomy.blocks[layer], dict[str, Change]()
        # Where a norm acts on the write itself, its output is what is added.
        attention = f"L{layer}.attn_out" if block.ln1_post is None else f"L{layer}.ln1_post"
        forward = f"L{layer}.mlp_out" if block.ln2_post is None else f"L{layer}.ln2_post"
        if not self.skips:
            changes |= _skipless(f"L{layer}.resid_pre", attention, received=False)
            if self.forwards and not anatomy.parallel:
                # Between the two sublayers the stream is what the second norm receives, or what the first one gives.
                post = anatomy.order == "post"
                changes |= _skipless(f"L{layer}.ln1" if post else f"L{layer}.ln2", forward, received=not post)
        if not self.forwards:
            changes[forward] = lambda value, given: torch.zeros_like(value)
        return changes


def _skipless(stream: str, write: str, received: bool) -> dict[str, Change]:
    """What a block adds a write to is taken off the write beforehand. It is what `stream` gives, or receives."""
    stored: list[Tensor] = []

    def keep(value: Tensor, given: Tensor | None) -> Tensor:
        assert given is not None or not received, "a norm takes a tensor"
        stored[:] = [given if received and given is not None else value]
        return value

    return {stream: keep, write: lambda value, given: value - stored[0]}


def left_over(bench: Bench, way: str) -> Floats:
    """[document group, state, (|X − mean|², |X|²)] of each document's tokens, first ones left out."""
    anatomy = bench.anatomy
    states = ["L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(anatomy.layers))]
    edits = () if way == WHOLE else (Bare(*WAYS[way]),)
    sums = np.zeros((bench.corpus.groups, len(states), 2))
    for batch in bench.batches():
        streams = bench.states(batch, states, *edits)
        groups = bench.groups(batch).tolist()
        for row, window in enumerate(batch.windows):
            for index, state in enumerate(states):
                x = streams[state][row, 1 : len(window.ids)].double()
                if len(x) > 1:
                    sums[groups[row], index] += (float((x - x.mean(0)).square().sum()), float(x.square().sum()))
    return sums


def share(sums: Floats) -> Floats:
    """[draw, state]: the relative length of what is left beside the mean vector, 0 where all tokens are one."""
    return np.asarray(np.sqrt(sums[..., 0] / np.maximum(sums[..., 1], 1e-300)))


def left(sums: Floats) -> Floats:
    """[draw, state]: the share over that before the first block."""
    each = share(sums)
    return np.asarray(each / np.maximum(each[..., :1], 1e-300))
