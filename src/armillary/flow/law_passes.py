"""What the laws look at: passes over a tiny batch, with every site's value kept."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.anatomy import Attention
from armillary.anatomy.entries.signal import random_ids
from armillary.edits import Scale, edited
from armillary.errors import ModelError
from armillary.flow.capture import Watcher, run, watching

TOKENS = 12
# Windows are shrunk to so many tokens, and a text of so many shows what they hide; windows that cannot be shrunk are
# shown by a text that is longer than they, up to LONGEST tokens.
WINDOW, WINDOWED, LONGEST = 6, 16, 1024
# Images and clips have a fixed size. Patterns of a long one would take gigabytes: of those one row is read, and of its
# patterns so many queries are kept.
LONG, QUERIES = 256, 64


@dataclass(frozen=True)
class Windowed:
    """A pass of a text that is longer than the model's windows."""

    shrunk: int
    """By how many tokens the windows were shrunk."""
    reads: dict[int, Tensor]
    """What each layer's attention received."""
    results: dict[int, Tensor]


@dataclass(frozen=True)
class Seen:
    anatomy: Anatomy
    ids: Tensor
    at: dict[str, tuple[Tensor | None, Tensor]]
    """What each site's module received, and the site's value."""
    last: Tensor
    doubled: dict[int, Tensor]
    """The last hidden state when the stream at the last position was doubled after that layer."""
    again: Tensor
    """The stream after the last block, once every edit was undone."""
    logits: Tensor | None
    queries: Tensor
    """The queries whose patterns were kept: all but of long inputs."""
    windowed: "Windowed | None" = None

    def x(self, site: str) -> Tensor:
        """What the site's module received."""
        x = self.at[site][0]
        if x is None:
            path = self.anatomy.sites[site].path
            raise ModelError(f"the module at {path} ({site}) received no tensor: check its path in the family's table.")
        return x

    def y(self, site: str) -> Tensor:
        """The site's value."""
        return self.at[site][1]

    def heads(self, site: str) -> Tensor:
        """The values of all heads side by side [b, t, h·k]."""
        return self.y(site).flatten(2)


def look(anatomy: Anatomy) -> Seen:
    """Passes over a tiny batch of fixed random tokens; it is small enough to keep everything."""
    ids = random_ids(anatomy, 2, TOKENS, seed=0)
    queries = torch.arange(ids.shape[1])
    if ids.shape[1] > LONG:
        ids, queries = ids[:1], torch.linspace(0, ids.shape[1] - 1, QUERIES).long()
    at: dict[str, tuple[Tensor | None, Tensor]] = {}

    def keep(name: str) -> Watcher:
        def watcher(given: Tensor | None, value: Tensor) -> None:
            some = value[:, :, queries.to(value.device)] if anatomy.sites[name].side == "pattern" else value.clone()
            at[name] = (None if given is None else given.detach().clone(), some.detach())

        return watcher

    patterns = [name for name, site in anatomy.sites.items() if site.side == "pattern"]
    # Patterns need a pass of their own: the other sites are checked with the attention that the model uses.
    with watching(anatomy, {name: keep(name) for name in patterns}):
        run(anatomy, ids)
    with watching(anatomy, {name: keep(name) for name in anatomy.sites if name not in patterns}):
        last = run(anatomy, ids)
    doubled = {}
    for layer in sorted({0, anatomy.layers // 2, anatomy.layers - 1}) if anatomy.causal else ():
        with edited(anatomy, Scale(layer, 2.0, start=-1)):
            doubled[layer] = run(anatomy, ids)
    end = f"L{anatomy.layers - 1}.resid_post"
    before, has_head = at[end], anatomy.W_U is not None
    with watching(anatomy, {end: keep(end)}):
        output = run(anatomy, ids, logits=has_head)
    again, at[end] = at[end][1], before
    windowed = None if "heads" in anatomy.swapped else _look_at_windows(anatomy)
    logits = output if has_head else None
    return Seen(anatomy, ids.to(anatomy.device), at, last, doubled, again, logits, queries.to(anatomy.device), windowed)


def _look_at_windows(anatomy: Anatomy) -> Windowed | None:
    """A pass in which windows hide something; None where the model has none, or none that a text can show."""
    setting, windows = anatomy.window_setting, [part.window for _, part in attentions(anatomy) if part.window]
    set_to = getattr(anatomy.model.config, setting, None) if setting else None
    if isinstance(set_to, int):
        windows.append(set_to)
    shrinks = isinstance(set_to, int) and set_to > WINDOW and not anatomy.window_built_in
    length = WINDOWED if shrinks else min(windows, default=0) + WINDOW
    if not windows or not any(attentions(anatomy)) or length > min(anatomy.context, LONGEST):
        return None
    ids = random_ids(anatomy, 1, length, seed=1)
    reads: dict[int, Tensor] = {}
    results: dict[int, Tensor] = {}
    watchers: dict[str, Watcher] = {}
    for i, _ in attentions(anatomy):
        own_norm = anatomy.order == "pre" and anatomy.blocks[i].ln1 is not None
        site = f"L{i}.ln1" if own_norm else f"L{i}.resid_pre"
        watchers[site] = _into(reads, i)
        watchers[f"L{i}.z"] = _into(results, i)
    with _shrunk(anatomy, setting, WINDOW) if shrinks else nullcontext(), watching(anatomy, watchers):
        run(anatomy, ids)
    return Windowed(set_to - WINDOW if shrinks and isinstance(set_to, int) else 0, reads, results)


def _into(outputs: dict[int, Tensor], layer: int) -> Watcher:
    return lambda given, value: outputs.update({layer: value.detach()})


@contextmanager
def _shrunk(anatomy: Anatomy, setting: str, window: int) -> Iterator[None]:
    """The model with another window: masks are made from the config at every pass."""
    configs = {id(m.config): m.config for m in anatomy.model.modules() if hasattr(m, "config")}.values()
    before = [(config, getattr(config, setting)) for config in configs if getattr(config, setting, None) is not None]
    try:
        for config, _ in before:
            setattr(config, setting, window)
        yield
    finally:
        for config, value in before:
            setattr(config, setting, value)


def attentions(anatomy: Anatomy) -> Iterator[tuple[int, Attention]]:
    """The layers whose mixer is attention that is understood."""
    for i, block in enumerate(anatomy.blocks):
        if isinstance(block.mixer, Attention):
            yield i, block.mixer
