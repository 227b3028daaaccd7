"""Which tokens of the text does a pass hold, and at which positions?

A column of a tensor is not a position: with a cache a pass holds the newest tokens only, and a batch may be padded on
the left. Positions are counted here from every row's first token that is not padding, whatever the model itself does.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.errors import ModelError


@dataclass(frozen=True, eq=False)
class PassTokens:
    """The tokens of one pass, as the model was given them."""

    past: int
    """How many columns the cache held before the pass."""
    ids: Tensor | None
    """[b, t]; None where the model was given embeddings."""
    mask: Tensor | None
    """[b, past + t], 0 where a column is padding; None if nothing is. Other shapes say nothing about padding."""
    position_ids: Tensor | None
    packed: bool
    """Are several texts laid end to end in one row?"""
    slid: int = 0
    """How many columns of the text a window that slid has left out before the first."""

    @classmethod
    def of(cls, given: Mapping[str, Any], slid: int = 0) -> "PassTokens":
        """The tokens in the arguments, by name, of the module that reads them."""
        mask = given.get("attention_mask")
        return cls(
            past=past_length(given.get("past_key_values")),
            ids=given.get("input_ids"),
            mask=mask,
            position_ids=given.get("position_ids"),
            packed=given.get("cu_seq_lens_q") is not None,
            slid=slid,
        )

    def positions(self, b: int, t: int, device: torch.device) -> Tensor:
        """[b, t]: 0 for the first token of a row, negative for padding before it."""
        if self.packed:
            raise ModelError("several texts in one row have no common positions: run each in its own row.")
        columns = self.past + torch.arange(t, device=device)[None]
        if self.mask is None:
            return columns.expand(b, t)
        if not is_flat(self.mask):
            if self.position_ids is None:
                raise ModelError(
                    "which tokens are padding cannot be seen in an attention mask of this shape, so positions are not "
                    "known: pass a mask [b, t], or position_ids."
                )
            return self.position_ids.to(device).expand(b, t)
        return columns - first_real(self.mask).to(device)[:, None]

    def real(self, b: int, t: int, device: torch.device) -> Tensor:
        """[b, t]: which tokens are not padding."""
        if not is_flat(self.mask):
            return torch.ones(b, t, dtype=torch.bool, device=device)
        return (self.mask[:, self.past : self.past + t] != 0).to(device)

    def chosen(self, start: int, b: int, t: int, device: torch.device) -> Tensor:
        """[b, t]: the tokens from position `start` on; a negative `start` counts from the end of each row."""
        positions = self.positions(b, t, device)
        if start >= 0:
            return positions >= start
        if self.past:
            raise ModelError(
                f"start={start} counts from the end of the text, but with a cache the end moves while earlier "
                "tokens stay unchanged: run without a cache (use_cache=False), or count from the beginning."
            )
        ends = torch.where(self.real(b, t, device), positions, -1).amax(1, keepdim=True) + 1
        return positions >= (ends + start).clamp_min(0)


def is_flat(mask: Any) -> TypeGuard[Tensor]:
    """Does this attention mask say for every column whether it is padding?"""
    return isinstance(mask, Tensor) and mask.ndim == 2


def first_real(mask: Tensor) -> Tensor:
    """[b]: the first column that is not padding.

    >>> first_real(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])).tolist()
    [2, 0]
    """
    return (mask != 0).int().argmax(1)


def past_length(cache: Any) -> int:
    """How many columns a cache holds; 0 without one."""
    return 0 if cache is None else int(cache.get_seq_length())


def named(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a module is called with, every argument by its name."""
    return {**dict(zip(_parameters(module), args, strict=False)), **kwargs}


def around_blocks(anatomy: Anatomy, argument: str) -> list[nn.Module]:
    """The modules around the blocks that take an argument of this name, from the whole model inwards."""
    parts = anatomy.sites["L0.resid_pre"].path.split(".")
    around = [anatomy.model.get_submodule(".".join(parts[:n])) for n in range(len(parts))]
    return [module for module in around if argument in _parameters(module)]


def _parameters(module: nn.Module) -> tuple[str, ...]:
    """The names of what a module is called with. A class's are looked up once: that takes a tenth of a small pass."""
    function = getattr(module.forward, "__func__", None)
    return tuple(inspect.signature(module.forward).parameters) if function is None else _method_parameters(function)


@cache
def _method_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)[1:]


def reader_of(anatomy: Anatomy) -> nn.Module:
    """The innermost module that is called with token ids, on every way through the model.

    Not always `anatomy.backbone`: OPT's language model calls the decoder inside it directly.
    """
    readers = around_blocks(anatomy, "input_ids" if anatomy.signal is None else anatomy.signal.argument)
    if not readers:
        raise ModelError(f"no module of {type(anatomy.model).__name__} takes input_ids, so its tokens are not known.")
    return readers[-1]


_slides: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


@contextmanager
def slid_by(reader: nn.Module, columns: int) -> Iterator[None]:
    """While this is on, the module reads texts without so many first columns more; edits that count columns of the
    whole text look here."""
    _slides[reader] = _slides.get(reader, 0) + columns
    try:
        yield
    finally:
        _slides[reader] -= columns


@contextmanager
def reading_tokens(anatomy: Anatomy) -> Iterator[Callable[[], PassTokens]]:
    """A function that gives the tokens of the pass under way."""
    latest: list[PassTokens] = []

    def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        latest[:] = [PassTokens.of(named(module, args, kwargs), _slides.get(module, 0))]

    def tokens() -> PassTokens:
        if not latest:
            raise ModelError("a block was run by itself, so its tokens' positions are not known: run the whole model.")
        return latest[0]

    handle = reader_of(anatomy).register_forward_pre_hook(see, with_kwargs=True)
    try:
        yield tokens
    finally:
        handle.remove()


@contextmanager
def own_caches(anatomy: Anatomy, first: int) -> Iterator[None]:
    """Refuse a cache that was begun outside and holds tokens from position `first` on: no edit reached those."""
    begun: WeakSet[Any] = WeakSet()

    def check(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = named(module, args, kwargs).get("past_key_values")
        if past_length(cache) > first and cache not in begun:
            raise ModelError(
                f"the cache was created outside the edit and holds {past_length(cache)} tokens computed without it: "
                "create the cache inside the edit, or run without one (use_cache=False)."
            )

    def remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        parts = output.values() if isinstance(output, Mapping) else output
        begun.update(part for part in parts if hasattr(part, "get_seq_length"))

    reader = reader_of(anatomy)
    handles = [
        reader.register_forward_pre_hook(check, with_kwargs=True),
        reader.register_forward_hook(remember, with_kwargs=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
