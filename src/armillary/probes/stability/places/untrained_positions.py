"""What do norms give at positions beyond the trained length, beside the last ones within it?"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Window
from armillary.probes.machinery import Floats, Interval, interval_of_draws, redrawn
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.places.position_bins import DRAWS, distances
from armillary.results import Why

SPAN, WINDOWS, EACH = 64, 8, 16
# Longer windows than these would cost more than all else.
LONGEST = 1024


@dataclass(frozen=True, eq=False)
class Beyond:
    """Energy distances [1 + draw, norm] across the trained length, and across a place as far before it."""

    sites: tuple[str, ...]
    across: Floats
    before: Floats
    length: int
    """The trained length, in tokens."""

    def median(self, draws: Floats) -> Interval:
        """Of the median norm, over windows."""
        return interval_of_draws(np.median(draws, axis=1), WINDOWS)


def span_of(anatomy: Anatomy) -> int:
    return min(SPAN, anatomy.context // 4)


def window_length(anatomy: Anatomy) -> int:
    return anatomy.context + span_of(anatomy)


@dataclass(frozen=True)
class Obstacle:
    """Why positions beyond the trained length are not looked at."""

    why: Why
    reason: str


def obstacle(anatomy: Anatomy, tokens: int) -> Obstacle | None:
    """None where they can be."""
    if anatomy.signal is not None:
        return Obstacle(Why.NOT_APPLICABLE, f"{anatomy.reads} have one fixed size, so no position lies beyond it")
    if anatomy.positions.kind == "learned":
        return Obstacle(
            Why.NOT_APPLICABLE, f"the table of positions ends at {anatomy.context}, so no position lies beyond it"
        )
    length = window_length(anatomy)
    if length > LONGEST:
        return Obstacle(Why.NOT_AFFORDED, f"this would need windows of {length} tokens, more than are tried")
    if tokens < max(length, 3 * WINDOWS * span_of(anatomy)):
        return Obstacle(Why.TOO_LITTLE_TEXT, f"the text is too short for windows of {length} tokens")
    return None


def long_windows(bench: Bench) -> list[Window]:
    """Windows that begin at even steps of the text, read as a ring: their ends share no token."""
    text = [token for w in bench.corpus.windows for token in w.ids[w.prefix : len(w.ids) - w.suffix]]
    length = window_length(bench.anatomy)
    starts = [round(i * len(text) / WINDOWS) for i in range(WINDOWS)]
    return [Window(i, tuple(text[(at + j) % len(text)] for j in range(length))) for i, at in enumerate(starts)]


def look_beyond(bench: Bench) -> Beyond | Obstacle:
    anatomy = bench.anatomy
    tokens = sum(len(w.ids) - w.prefix - w.suffix for w in bench.corpus.windows)
    if (problem := obstacle(anatomy, tokens)) is not None:
        return problem
    span, sites = span_of(anatomy), tuple(anatomy.norms)
    places = torch.linspace(0, 3 * span - 1, 3 * min(EACH, span)).round().long() - 3 * span
    states: dict[str, list[Tensor]] = {site: [] for site in sites}

    def keep(site: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            states[site].append(value[:, places].float().cpu())

        return watch

    windows = long_windows(bench)
    for batch in bench.batches(windows):
        with still(anatomy.model), watching(anatomy, {site: keep(site) for site in sites}):
            run(anatomy, batch.ids, batch.mask)
        bench.tick(batch.tokens)
    return Beyond(sites, *_distances(states, places + 3 * span, span, bench.seed), anatomy.context)


def _distances(states: dict[str, list[Tensor]], places: Tensor, span: int, seed: int) -> tuple[Floats, Floats]:
    """[1 + draw, norm] across the trained length and before it, from values [windows, place, d]."""
    weights = redrawn(WINDOWS, DRAWS, seed)
    third = (places // span).repeat(WINDOWS).numpy()
    window = torch.arange(WINDOWS).repeat_interleave(len(places)).numpy()
    across: list[Floats] = []
    before: list[Floats] = []
    for rows in states.values():
        points = torch.cat(rows).flatten(0, 1).double().numpy()
        for values, pair in ((before, (0, 1)), (across, (1, 2))):
            chosen = np.isin(third, pair)
            values.append(distances(points[chosen], window[chosen], third[chosen], weights)[0])
    return np.stack(across, 1), np.stack(before, 1)


def passes(anatomy: Anatomy) -> float:
    from armillary.probes.machinery.bench import TOKENS

    possible = anatomy.positions.kind != "learned" and window_length(anatomy) <= LONGEST
    return WINDOWS * window_length(anatomy) / TOKENS if possible else 0.0
