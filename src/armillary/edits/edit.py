"""Change a running model, and leave it exactly as it was.

With `slide`, the only file with writing hooks. An edit is a frozen description. `edited` applies edits for the duration
of a `with` statement, in order where two act at one site, and removes them whatever happens, in whatever order they are
left. No weight is changed, so there is nothing to restore but the hooks.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.anatomy.sites import received, restored_rows, site_named
from armillary.edits.edit_settings import check_layer
from armillary.edits.token_places import PassTokens, own_caches, reading_tokens
from armillary.errors import ArmillaryError, ModelError

Change = Callable[[Tensor, Tensor | None], Tensor]
"""From a site's value (shaped as `anatomy.sites` lists), and what its module received, to the value that goes on."""

HeadChange = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From q [b, h, t, k] and k, v [b, g, t, k], as the scores are about to see them, to those that go on."""


class Edit(Protocol):
    """A frozen dataclass whose fields are its settings; its docstring says what it does.

    An edit that has an attribute `unchanged` says how many blocks, counted from the first, give what they give without
    it: passes that differ only behind them may start there.
    """

    example: ClassVar[str]
    """One line of Python that makes one."""

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]: ...


@contextmanager
def edited(anatomy: Anatomy, *edits: Edit) -> Iterator[None]:
    """Apply every edit to the model inside the `with` statement; afterwards it is unchanged, bit for bit.

    Inside, `model.generate` and caches may be used: an edit acts with a cache as it does without, or refuses. A cache
    belongs to the edits under which it was created. Positions count from a row's first token that is not padding.
    Compiled models run uncompiled.
    """
    if not isinstance(anatomy, Anatomy):
        raise ArmillaryError(f"`edited` takes what armillary.load(model) gives; got a {type(anatomy).__name__}.")
    for edit in edits:
        if isinstance(edit, type) or not hasattr(edit, "on"):
            raise ArmillaryError(f"`edited` takes edits such as Scale(layer=3, factor=2.0); got {edit!r}.")
    with ExitStack() as stack:
        if edits:
            stack.enter_context(own_caches(anatomy, min(max(0, getattr(edit, "start", 0)) for edit in edits)))
        for edit in edits:
            stack.enter_context(edit.on(anatomy))
        yield


@contextmanager
def changing(anatomy: Anatomy, site: str, change: Change) -> Iterator[None]:
    """Let `change` decide what a site passes on; an edit without effect is an error."""
    place = site_named(anatomy.sites, site)
    if place.side == "pattern":
        raise ModelError(f"{site} can be watched but not edited; edit the heads' results at L{place.layer}.z instead.")
    fired = False
    with uncompiled(), restored_rows(anatomy.model, anatomy.sites) as restore:

        def changed(x: Tensor, given: Tensor | None) -> Tensor:
            nonlocal fired
            fired = True
            whole = restore(x)
            value = change(place.take(whole), None if given is None else restore(given))
            return restore.undone(place.put(value, whole), x)

        handle = _writing_hook(anatomy.model.get_submodule(place.path), place.side, changed)
        try:
            yield
        finally:
            handle.remove()
    if not fired:
        raise ModelError(f"the edit at {site} never took effect: its module was not run (is it fused?).")


@contextmanager
def seeing(anatomy: Anatomy, name: str) -> Iterator[dict[str, Tensor]]:
    """For a change elsewhere: the `value` that a site had last, and what its module had `received`."""
    site, seen = site_named(anatomy.sites, name), dict[str, Tensor]()

    def see(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        seen.update(value=site.take(output), received=args[0])

    handle = anatomy.model.get_submodule(site.path).register_forward_hook(see)
    try:
        yield seen
    finally:
        handle.remove()


def _writing_hook(module: nn.Module, side: str, changed: Change) -> Any:
    """Put `changed` on what the module receives or gives; the handle takes it off."""

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (changed(args[0], None), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": changed(kwargs["hidden_states"], None)}

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        given = received(args, kwargs)
        if isinstance(output, tuple):
            return (changed(output[0], given), *output[1:])
        return changed(output, given)

    if side == "input":
        return module.register_forward_pre_hook(before, with_kwargs=True)
    return module.register_forward_hook(after, with_kwargs=True)


@contextmanager
def changing_stream(
    anatomy: Anatomy, layer: int, start: int, change: Callable[[Tensor, PassTokens], Tensor]
) -> Iterator[None]:
    """Let `change` decide on the stream after block `layer` (−1: before the first), from position `start` on."""
    check_layer(anatomy, layer, first=-1)
    site = "L0.resid_pre" if layer == -1 else f"L{layer}.resid_post"
    # A tensor, read on leaving only: looking at every pass would wait for the device.
    reached: Tensor | None = None
    with reading_tokens(anatomy) as tokens:

        def changed(stream: Tensor, given: Tensor | None) -> Tensor:
            nonlocal reached
            after = change(stream, tokens())
            if start == 0:
                return after
            chosen = tokens().chosen(start, stream.shape[0], stream.shape[1], stream.device)
            reached = chosen.any() if reached is None else reached | chosen.any().to(reached.device)
            return torch.where(chosen[..., None], after, stream)

        with changing(anatomy, site, changed):
            yield
    if reached is not None and not reached:
        raise ModelError(
            f"the edit at {site} never took effect: no text has a token at position {start}; start earlier."
        )


_STANCES: list[Any] = []
"""One for every edit that is on; the first remembers how the compiler stood before."""


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled models run uncompiled inside: compiled code ignores hooks that came later, and can keep removed ones.

    Whoever leaves last restores what the first one found, because edits may be left in any order.
    """
    _STANCES.append(torch.compiler.set_stance("force_eager"))
    try:
        yield
    finally:
        last = _STANCES.pop()
        if not _STANCES:
            last.__exit__(None, None, None)


@contextmanager
def changing_heads(anatomy: Anatomy, layer: int, change: HeadChange) -> Iterator[None]:
    """Let `change` decide on q, k and v of one layer after rotation and q/k-norm, just before their products.

    No module gives q and k there, so the table of attention functions is asked to wrap what it hands out. Other layers,
    and other models that run meanwhile, get them unchanged. A cache holds k and v as they were before the change.
    """
    check_layer(anatomy, layer)
    if "heads" in anatomy.swapped:
        raise ModelError(
            f"the heads of this model were swapped for {anatomy.swapped['heads']}, whose queries and keys cannot be "
            "edited after their rotation; undo the swap."
        )
    parts = set(anatomy.model.get_submodule(anatomy.sites[f"L{layer}.pattern"].path).modules())
    sources = [sys.modules[type(module).__module__] for module in parts]
    table: Any = next((s.ALL_ATTENTION_FUNCTIONS for s in sources if hasattr(s, "ALL_ATTENTION_FUNCTIONS")), None)
    if table is None:
        raise ModelError("this model uses its own attention code, so q and k cannot be edited; edit z instead.")
    fired = False

    def attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        nonlocal fired
        if module not in parts:
            return q, k, v
        fired = True
        return change(q, k, v)

    with uncompiled(), _before_attention(table, attend):
        yield
    if not fired:
        raise ModelError(f"the edit on the heads of layer {layer} never took effect: its attention was not run.")


@contextmanager
def _before_attention(table: Any, attend: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> Iterator[None]:
    """Pass q, k and v through `attend` before every attention function that the table hands out."""
    changes: list[Any] = vars(table).setdefault("_changes", [])
    if not changes:
        table.get_interface = _wrapping(table.get_interface, changes)
    changes.append(attend)
    try:
        yield
    finally:
        # In whatever order edits are left, the table is its own again when the last has gone.
        changes.remove(attend)
        if not changes:
            del table.get_interface, table._changes


def _wrapping(choose: Callable[..., Any], changes: list[Any]) -> Callable[..., Any]:
    """`choose`, which gives an attention function, with all changes put before that function."""

    def chosen(*asked: Any, **named: Any) -> Callable[..., Any]:
        function = choose(*asked, **named)

        def attention(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Any:
            for change in changes:
                q, k, v = change(module, q, k, v)
            return function(module, q, k, v, *args, **kwargs)

        return attention

    return chosen
