"""How is a running model watched without being touched?

The only file with reading hooks. A hook hands over views of what passes and returns None (a returned value would
replace the module's output); nothing is kept here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.anatomy.read import family_of
from armillary.errors import ModelError

Watcher = Callable[[Tensor | None, Tensor], None]
"""Called with what the site's module received (None if it takes no tensor) and what it gave."""

PatternWatcher = Callable[[int, Tensor], None]
"""Called with a layer's number and its attention pattern [b, h, t, t]: queries, then keys."""

Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


@contextmanager
def watching(anatomy: Anatomy, watchers: Mapping[str, Watcher]) -> Iterator[None]:
    """Call each site's watcher whenever the model passes it; complain of a site that was never passed."""

    def hook(watcher: Watcher) -> Hook:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            given = args[0] if args else kwargs.get("hidden_states")
            watcher(given, output[0] if isinstance(output, tuple) else output)

        return see

    hooks = {name: (anatomy.sites[name].path, hook(watcher)) for name, watcher in watchers.items()}
    with _hooked(anatomy.model, hooks):
        yield


@contextmanager
def watching_patterns(anatomy: Anatomy, watcher: PatternWatcher) -> Iterator[None]:
    """Call the watcher with every layer's attention pattern as a batch passes; complain of a layer never passed.

    The model attends eagerly meanwhile: SDPA never writes a pattern out. Not by `output_attentions`, which in
    transformers 5 leaves hooks of its own on the modules for good and holds all layers' patterns at once. Dropout thins
    patterns too: enter `still` for those of the model itself.
    """

    def hook(layer: int) -> Hook:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if not isinstance(output, tuple) or len(output) < 2 or output[1] is None:
                raise ModelError(
                    f"{type(module).__name__} gave no attention pattern, even with eager attention: not watched."
                )
            watcher(layer, output[1])

        return see

    attention = family_of(anatomy.family).attention
    paths = [f"{anatomy.sites[f'L{i}.resid_pre'].path}.{attention}" for i in range(anatomy.layers)]
    hooks = {f"L{i}.pattern": (path, hook(i)) for i, path in enumerate(paths)}
    with _eager(anatomy.model), _hooked(anatomy.model, hooks):
        yield


@contextmanager
def _hooked(model: nn.Module, hooks: Mapping[str, tuple[str, Hook]]) -> Iterator[None]:
    """Each named hook on the module at its path; complain of a name whose module never ran."""
    silent = set(hooks)
    handles = []

    def heard(name: str, hook: Hook) -> Hook:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            silent.discard(name)
            hook(module, args, kwargs, output)

        return see

    try:
        for name, (path, hook) in hooks.items():
            handles.append(model.get_submodule(path).register_forward_hook(heard(name, hook), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if silent:
        raise ModelError(f"the model never passed {sorted(silent)}: its modules are bypassed (compiled or fused?).")


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Attention that writes its pattern out; the former implementation comes back afterwards."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values()
    before = [(config, config._attn_implementation) for config in configs]
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        # Not through `set_attn_implementation`, which checks what it sets, and could refuse what was there.
        for config, implementation in before:
            config._attn_implementation = implementation


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; training mode comes back afterwards.

    Not `inference_mode`: its tensors cannot meet trainable parameters later.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def run(anatomy: Anatomy, ids: Tensor, mask: Tensor | None = None, logits: bool = False) -> Tensor:
    """One forward pass of Hugging Face's own module: the last hidden state, or the logits."""
    model = anatomy.model if logits else anatomy.backbone
    device = anatomy.device
    attention = None if mask is None or bool(mask.all()) else mask.to(device).long()
    output = model(input_ids=ids.to(device), attention_mask=attention, use_cache=False)
    return output.logits if logits else output.last_hidden_state
