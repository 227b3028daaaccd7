"""Change a running model, and leave it exactly as it was.

The only file with writing hooks. An edit is a frozen description. `edited` applies edits for the duration of a `with`
statement, in order where two act at one site, and removes them whatever happens. No weight is changed, so there is
nothing to restore but the hooks.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.anatomy.sites import received, restored_rows, site_named
from armillary.errors import ArmillaryError, ModelError

Change = Callable[[Tensor, Tensor | None], Tensor]
"""From a site's value (shaped as `anatomy.sites` lists), and what its module received, to the value that goes on."""

HeadChange = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From q [b, h, t, k] and k, v [b, g, t, k], as the scores are about to see them, to those that go on."""


class Edit(Protocol):
    """A frozen dataclass whose fields are its settings; its docstring says what it does."""

    example: ClassVar[str]
    """One line of Python that makes one."""

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]: ...


@contextmanager
def edited(anatomy: Anatomy, *edits: Edit) -> Iterator[None]:
    """The model, changed by every edit while inside, itself again afterwards, bit for bit."""
    with ExitStack() as stack:
        for edit in edits:
            stack.enter_context(edit.on(anatomy))
        yield


@contextmanager
def changing(anatomy: Anatomy, site: str, change: Change) -> Iterator[None]:
    """Let `change` decide what goes on from a site; an edit that never took place is an error."""
    place = site_named(anatomy.sites, site)
    if place.side == "pattern":
        raise ModelError(f"{site} can be watched but not edited; edit the heads' results at L{place.layer}.z instead.")
    fired = []
    with restored_rows(anatomy.model, anatomy.sites) as restore:

        def changed(x: Tensor, given: Tensor | None) -> Tensor:
            fired.append(True)
            whole = restore(x)
            value = change(place.take(whole), None if given is None else restore(given))
            return place.put(value, whole).reshape(x.shape)

        handle = _writing_hook(anatomy.model.get_submodule(place.path), place.side, changed)
        try:
            yield
        finally:
            handle.remove()
    if not fired:
        raise ModelError(
            f"the edit at {site} never took place: the model did not pass it (compiled, fused, or not run?)."
        )


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
def changing_heads(anatomy: Anatomy, layer: int, change: HeadChange) -> Iterator[None]:
    """Let `change` decide on q, k and v of one layer after rotation and q/k-norm, just before their products.

    No module gives q and k there, so the function that multiplies them is wrapped. Other layers, and other models that
    run meanwhile, go through it unchanged.
    """
    site = site_named(anatomy.sites, f"L{layer}.pattern")
    mine = set(anatomy.model.get_submodule(site.path).modules())
    fired = []

    def wrapped(former: Callable[..., Any]) -> Callable[..., Any]:
        def attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Any:
            if module in mine:
                fired.append(True)
                q, k, v = change(q, k, v)
            return former(module, q, k, v, *args, **kwargs)

        return attend

    model: Any = anatomy.model
    with _attention_function(mine, model.config._attn_implementation, wrapped):
        yield
    if not fired:
        raise ModelError(f"the edit on the heads of layer {layer} never took place: its attention was not run.")


@contextmanager
def _attention_function(
    modules: set[nn.Module], implementation: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """The function by which these modules attend, replaced."""
    source: Any = next((s for s in (sys.modules[type(m).__module__] for m in modules) if _attends(s)), None)
    if source is None:
        raise ModelError("this model attends by code of its own, so q and k cannot be edited; edit z instead.")
    if implementation in (None, "eager"):
        former = source.eager_attention_forward
        source.eager_attention_forward = wrapped(former)
        try:
            yield
        finally:
            source.eager_attention_forward = former
        return
    table = source.ALL_ATTENTION_FUNCTIONS
    # A local entry hides the library's own; afterwards there must be as few as before.
    local = dict(table._local_mapping)
    table[implementation] = wrapped(table[implementation])
    try:
        yield
    finally:
        table._local_mapping = local


def _attends(source: Any) -> bool:
    return hasattr(source, "ALL_ATTENTION_FUNCTIONS") and hasattr(source, "eager_attention_forward")


def stream_site(anatomy: Anatomy, layer: int) -> str:
    """Where the stream is after block `layer`; −1 stands for what the first block receives."""
    if not -1 <= layer < anatomy.layers:
        raise ArmillaryError(f"there is no layer {layer}: the model has {anatomy.layers}, 0 to {anatomy.layers - 1}.")
    return "L0.resid_pre" if layer == -1 else f"L{layer}.resid_post"
