"""Watch a running model without changing it.

The only file with reading hooks (but for the batch's shape, which `anatomy.sites` notes). A hook hands over views of
what passes and returns None, because a returned value would replace the module's output. Nothing is stored here.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy, Site
from armillary.anatomy.sites import received, restored_rows, site_named
from armillary.errors import ModelError
from armillary.flow.machine.products import fast_products

Watcher = Callable[[Tensor | None, Tensor], None]
"""Called with `given`, what the site's module received (None if no tensor), and `value`, what the site's name promises:
`anatomy.sites` lists the shapes."""

PatternWatcher = Callable[[int, Tensor], None]
"""Called with a layer's number and its attention pattern [b, h, t, t]: queries, then keys."""

Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


@contextmanager
def watching(anatomy: Anatomy, watchers: Mapping[str, Watcher]) -> Iterator[None]:
    """Call each site's watcher whenever the model passes it; a site that was never passed is an error.

    If a pattern site is among them, the model attends eagerly meanwhile: SDPA never writes a pattern out. Not by
    `output_attentions`, which in transformers 5 leaves hooks of its own on the modules for good and holds all layers'
    patterns at once. Dropout thins patterns too: enter `still` for those of the model itself.
    """
    sites = {name: site_named(anatomy.sites, name) for name in watchers}
    patterns = any(site.side == "pattern" for site in sites.values())
    with (
        _eager(anatomy.model) if patterns else nullcontext(),
        restored_rows(anatomy.model, anatomy.sites) as restore,
        _hooked(anatomy.model, {n: (site.path, _hook(site, watchers[n], restore)) for n, site in sites.items()}),
    ):
        yield


def watching_patterns(anatomy: Anatomy, watcher: PatternWatcher) -> AbstractContextManager[None]:
    """Call the watcher with every layer's number and pattern as a batch passes."""

    def of(layer: int) -> Watcher:
        return lambda given, pattern: watcher(layer, pattern)

    return watching(anatomy, {f"L{layer}.pattern": of(layer) for layer in range(anatomy.layers)})


def _hook(site: Site, watcher: Watcher, restore: Callable[[Tensor], Tensor]) -> Hook:
    def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = received(args, kwargs)
        given = None if given is None else restore(given)
        if site.side == "pattern":
            watcher(given, _pattern(module, output, site.index))
            return
        value = given if site.side == "input" else output[0] if isinstance(output, tuple) else output
        if value is None:
            raise ModelError(f"{type(module).__name__} at {site.path} received no tensor, so {site.name} has no value.")
        watcher(given, site.take(restore(value)))

    return see


def _pattern(module: nn.Module, output: Any, index: int) -> Tensor:
    if isinstance(output, tuple) and len(output) > index and isinstance(output[index], Tensor):
        pattern: Tensor = output[index]
        return pattern
    raise ModelError(f"{type(module).__name__} gave no attention pattern, even with eager attention: not watched.")


def module_at(model: nn.Module, path: str) -> nn.Module:
    """As `get_submodule`, which takes ten times as long; a pass sets hundreds of hooks."""
    module: nn.Module | None = model
    for name in path.split("."):
        module = None if module is None else module._modules.get(name)
    return model.get_submodule(path) if module is None else module


@contextmanager
def _hooked(model: nn.Module, hooks: Mapping[str, tuple[str, Hook]]) -> Iterator[None]:
    """Each named hook on the module at its path; a name whose module never ran is an error."""
    silent = set(hooks)
    handles = []

    def heard(name: str, hook: Hook) -> Hook:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            silent.discard(name)
            hook(module, args, kwargs, output)

        return see

    try:
        for name, (path, hook) in hooks.items():
            module = module_at(model, path)
            if name.endswith(".pattern") and "output_attentions" in inspect.signature(module.forward).parameters:
                handles.append(module.register_forward_pre_hook(_ask_for_pattern, with_kwargs=True))
            handles.append(module.register_forward_hook(heard(name, hook), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if silent:
        raise ModelError(f"the model never passed {sorted(silent)}: its modules are bypassed (compiled or fused?).")


def _ask_for_pattern(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Some modules give their pattern only if they are asked (MPNet)."""
    return args, {**kwargs, "output_attentions": True}


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Attention that writes its pattern out; the former implementation comes back afterwards."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values()
    before = [(config, config._attn_implementation) for config in configs]
    try:
        # Not through `set_attn_implementation`, which checks what it sets: it refuses models that attend by code of
        # their own (Falcon), and could refuse what was there.
        for config, _ in before:
            config._attn_implementation = "eager"
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; training mode comes back afterwards. Matrices are multiplied by the library
    that is faster on this processor.

    Not `inference_mode`: its tensors cannot meet trainable parameters later.
    """
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    # Not `model.eval()`, which sets every module anew: a tenth of a small pass.
    for module in training:
        module.training = False
    try:
        with torch.no_grad(), fast_products(model, modules):
            yield
    finally:
        for module in training:
            module.training = True


def run(anatomy: Anatomy, ids: Tensor, mask: Tensor | None = None, logits: bool = False) -> Tensor:
    """One forward pass of Hugging Face's own module: the last hidden state, or the logits."""
    model = anatomy.model if logits else anatomy.backbone
    more = {} if anatomy.signal is not None else {"use_cache": False}
    output = model(**anatomy.inputs(ids, mask, whole=logits), **more)
    if logits:
        return output.logits
    last: Tensor = output.last_hidden_state
    return last.flatten(2).transpose(1, 2) if last.ndim == 4 else last
